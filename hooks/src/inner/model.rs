//! Replacements of parking_lot_core and of the profiler for models: the same contracts, built from loom's types.
//!
//! The locks under test run unchanged. Their queue is one list behind one loom mutex, as a bucket is for the addresses
//! that share it. The clock counts up at every reading, so that no two events have the same tick. Events are summed up
//! instead of recorded.

#[cfg(test)]
mod locks;

use std::cell::Cell;

/// Sums over one execution of a model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// For locks, not for conditions.
    pub(crate) blocked: u64,
    pub(crate) waits: u64,
    pub(crate) condition_waits: u64,
    pub(crate) charged: u64,
    pub(crate) charged_waits: u64,
}

thread_local! {
    // std's thread-locals and not loom's: loom runs all threads of a model on one system thread, and neither the sums
    // nor the clock are modelled.
    static SUMS: Cell<Sums> = const {
        Cell::new(Sums { blocked: 0, waits: 0, condition_waits: 0, charged: 0, charged_waits: 0 })
    };
    static CLOCK: Cell<u64> = const { Cell::new(0) };
}

/// Resets sums and clock, at the beginning of an execution.
pub(crate) fn reset() {
    SUMS.set(Sums::default());
    CLOCK.set(0);
}

/// The sums of this execution.
pub(crate) fn sums() -> Sums {
    SUMS.get()
}

/// Models do not fork.
pub(crate) mod process {
    pub(crate) fn number() -> u32 {
        1
    }

    pub(crate) fn is_shared_with_vfork() -> bool {
        true
    }
}

pub(crate) mod clock {
    /// Even, because the queue takes the lowest bit.
    pub(crate) fn ticks() -> u64 {
        super::CLOCK.set(super::CLOCK.get() + 2);
        super::CLOCK.get()
    }

    pub(crate) fn since(start: u64, end: u64) -> u64 {
        end.checked_sub(start).expect("the model's clock never runs backwards")
    }
}

pub(crate) mod report {
    use super::SUMS;
    use crate::inner::account::Charge;
    use rtprof_runtime::goroutine::wait_reason::WaitReason;

    pub(crate) fn blocked(reason: WaitReason, ticks: u64) {
        let mut sums = SUMS.get();
        if reason == WaitReason::CondWait {
            sums.condition_waits += 1;
        } else {
            sums.blocked += ticks;
            sums.waits += 1;
        }
        SUMS.set(sums);
    }

    pub(crate) fn is_charged() -> bool {
        true
    }

    pub(crate) fn charged(charge: Charge) {
        let mut sums = SUMS.get();
        sums.charged += charge.ticks;
        sums.charged_waits += charge.waits;
        SUMS.set(sums);
    }
}

/// parking_lot_core, as far as `queue` uses it.
pub(crate) mod parking {
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::sync::{Arc, Mutex};

    pub(crate) use parking_lot_core::{
        FilterOp, ParkResult, ParkToken, RequeueOp, UnparkResult, UnparkToken,
    };

    const ASLEEP: usize = usize::MAX;

    struct Sleeper {
        key: usize,
        token: ParkToken,
        thread: loom::thread::Thread,
        woken_with: Arc<AtomicUsize>,
        has_deadline: bool,
    }

    impl Sleeper {
        /// A sleeper with a deadline does not park. Unparking it would end its wait for a loom mutex too early.
        fn wake(self, with: usize) {
            self.woken_with.store(with, Ordering::Release);
            if !self.has_deadline {
                self.thread.unpark();
            }
        }
    }

    loom::lazy_static! {
        static ref BUCKET: Mutex<Vec<Sleeper>> = Mutex::new(Vec::new());
    }

    pub(crate) unsafe fn park(
        key: usize,
        validate: impl FnOnce() -> bool,
        before_sleep: impl FnOnce(),
        timed_out: impl FnOnce(usize, bool),
        token: ParkToken,
        deadline: Option<std::time::Instant>,
    ) -> ParkResult {
        let woken_with = Arc::new(AtomicUsize::new(ASLEEP));
        {
            let mut bucket = BUCKET.lock().unwrap();
            if !validate() {
                return ParkResult::Invalid;
            }
            let (thread, woken_with) = (loom::thread::current(), woken_with.clone());
            bucket.push(Sleeper { key, token, thread, woken_with, has_deadline: deadline.is_some() });
        }
        before_sleep();
        loop {
            if deadline.is_none() {
                // Before the flag is read, so that the wake has happened when this thread goes on.
                loom::thread::park();
            }
            let with = woken_with.load(Ordering::Acquire);
            if with != ASLEEP {
                return ParkResult::Unparked(UnparkToken(with));
            }
            if deadline.is_none() {
                continue;
            }
            // A deadline may pass at any moment: the schedule decides whether a wake was faster.
            let mut bucket = BUCKET.lock().unwrap();
            let with = woken_with.load(Ordering::Acquire);
            if with != ASLEEP {
                return ParkResult::Unparked(UnparkToken(with));
            }
            let me = loom::thread::current().id();
            let place = bucket.iter().position(|sleeper| sleeper.thread.id() == me).expect("it sleeps");
            // A requeue may have changed the key.
            let Sleeper { key, .. } = bucket.remove(place);
            timed_out(key, !bucket.iter().any(|sleeper| sleeper.key == key));
            return ParkResult::TimedOut;
        }
    }

    pub(crate) unsafe fn unpark_requeue(
        from: usize,
        to: usize,
        validate: impl FnOnce() -> RequeueOp,
        callback: impl FnOnce(RequeueOp, UnparkResult) -> UnparkToken,
    ) -> UnparkResult {
        let mut bucket = BUCKET.lock().unwrap();
        let mut result = UnparkResult::default();
        let op = validate();
        if op == RequeueOp::Abort {
            return result;
        }
        let (moved, mut rest): (Vec<_>, Vec<_>) = bucket.drain(..).partition(|sleeper| sleeper.key == from);
        let mut moved = moved.into_iter();
        let woken = if op == RequeueOp::UnparkOneRequeueRest { moved.next() } else { None };
        result.unparked_threads = usize::from(woken.is_some());
        result.requeued_threads = moved.len();
        rest.extend(moved.map(|sleeper| Sleeper { key: to, ..sleeper }));
        *bucket = rest;
        let UnparkToken(with) = callback(op, result);
        if let Some(woken) = woken {
            woken.wake(with);
        }
        result
    }

    pub(crate) unsafe fn unpark_filter(
        key: usize,
        mut filter: impl FnMut(ParkToken) -> FilterOp,
        callback: impl FnOnce(UnparkResult) -> UnparkToken,
    ) -> UnparkResult {
        let mut bucket = BUCKET.lock().unwrap();
        let (mut woken, mut rest) = (Vec::new(), Vec::new());
        let mut has_stopped = false;
        let mut result = UnparkResult::default();
        for sleeper in bucket.drain(..) {
            if sleeper.key != key || has_stopped {
                result.have_more_threads |= sleeper.key == key;
                rest.push(sleeper);
                continue;
            }
            match filter(sleeper.token) {
                FilterOp::Unpark => woken.push(sleeper),
                FilterOp::Skip => {
                    result.have_more_threads = true;
                    rest.push(sleeper);
                }
                FilterOp::Stop => {
                    result.have_more_threads = true;
                    has_stopped = true;
                    rest.push(sleeper);
                }
            }
        }
        *bucket = rest;
        result.unparked_threads = woken.len();
        let UnparkToken(with) = callback(result);
        for sleeper in woken {
            sleeper.wake(with);
        }
        result
    }
}

/// The registry of goroutines. Models need nothing of it.
pub(crate) mod goroutine {
    use loom::sync::atomic::{AtomicU64, Ordering};

    use rtprof_runtime::stack::SavedFrame;

    pub(crate) struct Goroutine {
        /// `None` for a goroutine without an id.
        id: Option<&'static AtomicU64>,
    }

    pub(crate) fn current() -> Option<&'static Goroutine> {
        None
    }

    impl Goroutine {
        pub(crate) fn with_id(id: &'static AtomicU64) -> Self {
            Self { id: Some(id) }
        }

        pub(crate) fn id(&self) -> u64 {
            self.id.map_or(0, |id| id.load(Ordering::Relaxed))
        }

        pub(crate) fn token(&self) -> usize {
            0
        }

        pub(crate) fn park(&self, _: SavedFrame) {}

        pub(crate) fn unpark(&self) {}

        pub(crate) unsafe fn from_token(_: usize) -> &'static Self {
            &Self { id: None }
        }
    }
}

/// The states of goroutines. Models need nothing of them.
pub(crate) mod states {
    use super::goroutine::Goroutine;
    use rtprof_runtime::goroutine::wait_reason::WaitReason;

    pub(crate) fn block(_: &Goroutine, _: WaitReason, _: u64) {}

    pub(crate) fn announce(_: &Goroutine, _: WaitReason, _: u64) {}

    pub(crate) fn resume(_: &Goroutine) {}

    pub(crate) fn unblock(_: &Goroutine) {}
}
