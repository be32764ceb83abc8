//! A trace that is read as it comes, as `trace::start` does it, by a thread that says how far it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rtprof::trace::{self, Options, Reader, Stats};

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
            cpu_seconds()
        });
        Self { generations, consumer }
    }

    /// How many were encoded.
    pub(crate) fn generations(&self) -> u64 {
        self.generations.load(Ordering::Relaxed)
    }

    /// Ends it. Returns what was recorded, and the seconds of processor time that it took to read it.
    pub(crate) fn stop(self) -> (Stats, f64) {
        let stats = trace::stop().expect("everything is read");
        (stats, self.consumer.join().expect("reading does not panic"))
    }
}

/// Processor time of the current thread.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a local; the clock exists on every kernel.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
