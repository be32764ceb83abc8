//! The barrier: a count and a queue.

use std::fmt;

use crate::frame;
use crate::inner::primitive::{AtomicUsize, Ordering};
use crate::inner::queue::{self, Choice, Sleep, WaiterKind};
use crate::inner::wait::{Wait, WaitReason};

/// A barrier: threads wait until a whole group of them has arrived. It can be used again. With std's interface.
///
/// Each wait is one event of the block profile, from a thread's arrival to the last one's. The last one does not
/// wait.
pub struct Barrier {
    /// The number of threads in a group.
    threads: usize,
    /// The threads of the present group that wait. Changed only with the queue locked, together with the queue. So each
    /// group sleeps and leaves as a whole, and is not mixed up with the next one.
    waiting: AtomicUsize,
}

/// Whether a thread was its group's leader.
pub struct BarrierWaitResult {
    is_leader: bool,
}

impl BarrierWaitResult {
    /// Whether this thread arrived last. Exactly one thread of each group did.
    pub fn is_leader(&self) -> bool {
        self.is_leader
    }
}

impl Barrier {
    /// A barrier for groups of `threads`. With 1 or 0 no thread waits, and every thread is a leader.
    #[inline]
    pub const fn new(threads: usize) -> Self {
        Self { threads, waiting: AtomicUsize::new(0) }
    }

    /// Waits until a whole group has arrived. Afterwards the barrier can be used again.
    #[inline]
    pub fn wait(&self) -> BarrierWaitResult {
        let is_leader = self.threads <= 1 || self.wait_for_others();
        frame::keep();
        BarrierWaitResult { is_leader }
    }

    /// Returns whether this thread was the last one of its group. Which thread is the last can change until the queue
    /// is locked, so both paths check again then.
    fn wait_for_others(&self) -> bool {
        loop {
            if self.is_last() {
                if self.release() {
                    return true;
                }
            } else if self.sleep() != Sleep::Refused {
                return false;
            }
        }
    }

    fn is_last(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= self.threads - 1
    }

    fn key(&self) -> usize {
        &raw const *self as usize
    }

    fn sleep(&self) -> Sleep {
        let mut wait = Wait::prepare(WaitReason::Barrier);
        let validate = |wait: &mut Wait| {
            let sleeps = !self.is_last();
            if sleeps {
                self.waiting.store(self.waiting.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                wait.run();
            }
            sleeps
        };
        // SAFETY: the key is the address of this object, and the closures neither panic nor park nor wake.
        let sleep = unsafe { queue::park(self.key(), 0, &mut wait, validate, || {}, |_, _| {}, None) };
        wait.end();
        sleep
    }

    fn release(&self) -> bool {
        let mut is_last = false;
        let choose = |_: WaiterKind| if self.is_last() { Choice::Wake } else { Choice::Stop };
        let decide = |_: &queue::Woken| {
            is_last = self.is_last();
            if is_last {
                self.waiting.store(0, Ordering::Relaxed);
            }
            is_last
        };
        // SAFETY: the key is the address of this object, and the closures neither panic nor park nor wake.
        unsafe { queue::wake(self.key(), choose, decide) };
        is_last
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").finish_non_exhaustive()
    }
}

impl fmt::Debug for BarrierWaitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWaitResult").field("is_leader", &self.is_leader).finish()
    }
}
