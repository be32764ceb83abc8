//! Threads that use the processor all of the time, half of it, and a tenth of it.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::processor::used;
use crate::work::steps;

/// A pattern of work and sleep of a thread.
#[derive(Debug)]
pub struct Kind {
    /// The thread's name.
    pub name: &'static str,
    work: Duration,
    sleep: Duration,
}

/// The kinds; each has one thread.
pub const KINDS: [Kind; 3] = [
    Kind { name: "steady", work: Duration::from_millis(5), sleep: Duration::ZERO },
    Kind { name: "half", work: Duration::from_millis(5), sleep: Duration::from_millis(5) },
    Kind { name: "tenth", work: Duration::from_millis(1), sleep: Duration::from_millis(9) },
];

thread_local! {
    // Without destructor and lazy initialisation, because signal handlers read it.
    static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Returns the index in [`KINDS`] of the current thread's kind; `None` if [`run`] did not start the thread. Safe to
/// call in a signal handler.
pub fn own_kind() -> Option<usize> {
    let own = OWN.with(Cell::get);
    (own < KINDS.len()).then_some(own)
}

/// Lets one thread of each kind work for `length`. Calls `begin` when the threads have started, and `end` when they
/// have stopped working but not ended. Returns the result of `end`, and the seconds of processor time of each thread in
/// between.
///
/// # Panics
/// When the system refuses three threads.
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

/// Uses `time` of processor time.
fn work_for(time: Duration) {
    let end = used() + time;
    while used() < end {
        black_box(steps(1, 20_000));
    }
}
