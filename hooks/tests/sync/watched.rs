//! Threads whose waits a test can see, and patience. (test-support has some of this too, but these tests cannot use it: it
//! depends on this crate, and with the feature `interpose` a unit test would have its C functions twice.)

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rtprof_runtime::goroutine;
use rtprof_runtime::goroutine::wait_reason::WaitReason;

/// Long enough for a busy machine, short enough to notice a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long a stress test keeps on: `RTPROF_STRESS_SECS`, half a second unless rx.
pub(crate) fn stress() -> Duration {
    let seconds = std::env::var("RTPROF_STRESS_SECS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(0.5))
}

/// Returns when `done` does, and fails if that takes too long.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A thread that runs on when its test fails, so that a wait without end is a failure and no hang.
pub(crate) struct Watched<T> {
    handle: JoinHandle<T>,
    id: u32,
}

/// Starts one.
pub(crate) fn start<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Watched<T> {
    rtprof_profiler::init::open();
    let (tx, rx) = mpsc::channel();
    let handle = std::thread::spawn(move || {
        tx.send(goroutine::current().expect("there is memory").thread_id()).expect("the starter listens");
        body()
    });
    let id = rx.recv().expect("the thread says who it is");
    Watched { handle, id }
}

impl<T> Watched<T> {
    /// Returns when the thread sleeps for `reason`, in the queue of what it waits for.
    pub(crate) fn until_it_waits(&self, reason: WaitReason) {
        until("the wait", || {
            let mut all = goroutine::all();
            let own = all.find(|goroutine| goroutine.thread_id == self.id).expect("the thread is alive");
            own.waiting.is_some_and(|(waits_for, _)| waits_for == reason)
        });
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.handle.is_finished()
    }

    /// What the thread returns.
    pub(crate) fn end(self) -> T {
        self.result().expect("the thread does not panic")
    }

    pub(crate) fn result(self) -> std::thread::Result<T> {
        until("the thread's end", || self.has_ended());
        self.handle.join()
    }
}

/// For what must not happen: gives it a moment.
pub(crate) fn a_moment() {
    std::thread::sleep(Duration::from_millis(20));
}
