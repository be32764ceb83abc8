//! A trace that is read while it is recorded, as by `trace::start`, by a thread that reports its progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rtprof::trace::{self, Options, Reader, Stats};
use rtprof_benches::processor::used;

pub(crate) struct Recording {
    generations: Arc<AtomicU64>,
    consumer: JoinHandle<f64>,
}

impl Recording {
    pub(crate) fn start(options: Options) -> Self {
        let mut reader = Reader::start_with(options).expect("no trace goes on");
        let generations = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&generations);
        let consumer = thread::spawn(move || {
            while reader.read_chunk().is_some() {
                read.store(reader.stats().generations, Ordering::Relaxed);
            }
            used().as_secs_f64()
        });
        Self { generations, consumer }
    }

    /// Returns the number of generations that were encoded.
    pub(crate) fn generations(&self) -> u64 {
        self.generations.load(Ordering::Relaxed)
    }

    /// Ends the trace. Returns its statistics, and the seconds of processor time that reading took.
    pub(crate) fn stop(self) -> (Stats, f64) {
        let stats = trace::stop().expect("everything is read");
        (stats, self.consumer.join().expect("reading does not panic"))
    }
}
