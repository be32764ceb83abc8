//! A lock that several threads contend for, with work of a given length.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use lock_api::RawMutex;
use rtprof_benches::team::{Placement, Team};
use rtprof_benches::work::steps;

use crate::Done;

/// Measures one lock: with `threads` threads, so many steps of work under the lock and outside of it, for so many
/// microseconds.
pub(crate) type Measure = fn(&Team, threads: usize, work: [usize; 2], micros: usize) -> Done;

pub(crate) fn of(whose: &str) -> Measure {
    match whose {
        "rtprof" => measure::<lock_api::Mutex<rtprof::sync::QueueMutex, u64>>,
        "parking_lot" => measure::<lock_api::Mutex<parking_lot::RawMutex, u64>>,
        "std" => measure::<std::sync::Mutex<u64>>,
        other => panic!("unknown lock {other}"),
    }
}

trait Lock: Default + Send + Sync + 'static {
    fn with(&self, f: impl FnOnce(&mut u64));
}

impl<R: RawMutex + Send + Sync + 'static> Lock for lock_api::Mutex<R, u64> {
    #[inline(always)]
    fn with(&self, f: impl FnOnce(&mut u64)) {
        f(&mut self.lock());
    }
}

impl Lock for std::sync::Mutex<u64> {
    #[inline(always)]
    fn with(&self, f: impl FnOnce(&mut u64)) {
        f(&mut self.lock().expect("nobody panics"));
    }
}

/// Measures the time for an operation. All threads go on until the same instant, so that none is left alone with the
/// lock. The time is that of all threads together, from the first thread's start to the last one's end: for two threads
/// that never hinder each other it is half of what each needs.
fn measure<L: Lock>(team: &Team, threads: usize, [inside, outside]: [usize; 2], micros: usize) -> Done {
    let lock = L::default();
    let window = Duration::from_micros(micros as u64);
    let totals = Arc::new(Totals::default());
    let shared = Arc::clone(&totals);
    // Reading the clock takes longer than the shortest work, so the clock is read only now and then.
    let between_looks = (1_000 / inside.max(1)).clamp(1, 50);
    // If the kernel placed them, two woken threads could share a core and never contend.
    team.run(threads, Placement::Apart, move |_| {
        shared.present.fetch_add(1, Ordering::Relaxed);
        while shared.present.load(Ordering::Relaxed) < threads as u64 {
            thread::yield_now();
        }
        let start = *shared.start.get_or_init(Instant::now);
        let mut operations = 0;
        let mut idle = 0;
        while start.elapsed() < window {
            for _ in 0..between_looks {
                lock.with(|value| *value = steps(*value, inside));
                idle = steps(idle, outside);
            }
            operations += between_looks as u64;
        }
        black_box(idle);
        shared.operations.fetch_add(operations, Ordering::Relaxed);
        shared.nanos.fetch_max(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    });
    let operations = totals.operations.load(Ordering::Relaxed) as f64;
    Done { nanos: totals.nanos.load(Ordering::Relaxed) as f64 / operations, operations }
}

#[derive(Default)]
struct Totals {
    present: AtomicU64,
    start: OnceLock<Instant>,
    operations: AtomicU64,
    nanos: AtomicU64,
}
