//! Threads that use the processor all of the time, half of it, and a tenth of it.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::processor::used;
use crate::work::steps;

/// How a thread goes through its time.
#[derive(Debug)]
pub struct Kind {
    /// The thread's name.
    pub name: &'static str,
    work: Duration,
    sleep: Duration,
}

/// One thread of each.
pub const KINDS: [Kind; 3] = [
    Kind { name: "steady", work: Duration::from_millis(5), sleep: Duration::ZERO },
    Kind { name: "half", work: Duration::from_millis(5), sleep: Duration::from_millis(5) },
    Kind { name: "tenth", work: Duration::from_millis(1), sleep: Duration::from_millis(9) },
];

thread_local! {
    // No destructor and no lazy initialisation, for signal handlers.
    static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The place among [`KINDS`] of the current thread's kind, if it is one of [`run`]. For signal handlers.
pub fn own_kind() -> Option<usize> {
    let own = OWN.with(Cell::get);
    (own < KINDS.len()).then_some(own)
}

/// Lets one thread of each kind work for this long. Calls `begin` when the threads are there, `end` when they work no more,
/// before they go. Returns what `end` does, and the seconds of processor time of each in between.
///
/// # Panics
/// When there is no room for three threads.
pub fn run<B, E>(
    length: Duration,
    begin: impl FnOnce() -> B,
    end: impl FnOnce(B) -> E,
) -> (E, [f64; KINDS.len()]) {
    let (met, is_over) = (Barrier::new(KINDS.len() + 1), AtomicBool::new(false));
    thread::scope(|scope| {
        let (met, is_over) = (&met, &is_over);
        let threads: Vec<_> = KINDS
            .iter()
            .enumerate()
            .map(|(at, kind)| {
                let thread = thread::Builder::new().name(kind.name.into());
                let body = move || {
                    OWN.with(|own| own.set(at));
                    met.wait();
                    met.wait();
                    let started = used();
                    while !is_over.load(Ordering::Relaxed) {
                        work_for(kind.work);
                        if !kind.sleep.is_zero() {
                            thread::sleep(kind.sleep);
                        }
                    }
                    let worked = used() - started;
                    met.wait();
                    met.wait();
                    worked.as_secs_f64()
                };
                thread.spawn_scoped(scope, body).expect("there is room for three threads")
            })
            .collect();
        met.wait();
        let begun = begin();
        met.wait();
        thread::sleep(length);
        is_over.store(true, Ordering::Relaxed);
        met.wait();
        let ended = end(begun);
        met.wait();
        let mut seconds = [0.0; KINDS.len()];
        for (seconds, thread) in seconds.iter_mut().zip(threads) {
            *seconds = thread.join().expect("work does not panic");
        }
        (ended, seconds)
    })
}

/// Uses so much processor time.
fn work_for(time: Duration) {
    let end = used() + time;
    while used() < end {
        black_box(steps(1, 20_000));
    }
}
