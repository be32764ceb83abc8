//! The wakers that a task hands out: cloned, given up, and used.

use core::sync::atomic::Ordering;
use core::task::Waker;
use std::panic::{self, AssertUnwindSafe};

use super::{Identity, NUMBER, Task};
use crate::task::TASKS;
use crate::task::noted::Flag;
use crate::task::polls::before;
use crate::task::shared_waker::{Released, Share};

impl Task {
    /// Does what is left to do.
    #[inline]
    pub(super) fn settle(&'static self, released: Released<Waker>) {
        if let Some(waker) = self.settled(released) {
            drop(waker);
        }
    }

    /// Gives the slot back if it is not needed any more. The waker that is returned comes last: it runs code of the executor's.
    #[inline]
    fn settled(&'static self, released: Released<Waker>) -> Option<Waker> {
        if released.is_last {
            TASKS.give_back(self);
        }
        released.waker
    }

    /// Counts a clone of its waker. If that cannot be counted, returns a clone of the executor's, to be used in its place.
    /// `is_polled` says that the current thread polls this task. For hooks.
    ///
    /// # Safety
    /// The caller holds a clone of the task's waker, or uses the waker of a poll in which it may be handed out.
    #[inline]
    pub unsafe fn share(
        &'static self,
        is_polled: impl FnOnce() -> bool,
        identity: impl FnOnce(&Waker) -> Identity,
    ) -> Option<Waker> {
        match self.shared.share() {
            Share::Counted => None,
            // SAFETY: the caller's promise.
            Share::Full => Some(unsafe { self.with_executors(Waker::clone) }),
            Share::Empty => {
                // SAFETY: there is no clone, so the caller uses the waker of a poll.
                let executor = unsafe { self.executor() };
                if !is_polled() {
                    self.awaits.noted().add(Flag::IsForeign);
                    return Some(executor.clone());
                }
                for (part, value) in self.held.iter().zip(identity(executor)) {
                    part.store(value, Ordering::Relaxed);
                }
                // SAFETY: this thread polls the task.
                unsafe { self.shared.put(executor.clone()) };
                None
            }
        }
    }

    /// # Safety
    /// A poll goes on, and does not end meanwhile.
    #[inline]
    unsafe fn executor(&self) -> &Waker {
        // SAFETY: that of the poll, which lives as long; who uses it on another thread was given a waker by the one that polls.
        unsafe { &*self.executor.load(Ordering::Relaxed) }
    }

    /// Runs `f` with a waker of the executor's.
    ///
    /// # Safety
    /// As [`Task::share`].
    unsafe fn with_executors<R>(&'static self, f: impl FnOnce(&Waker) -> R) -> R {
        // While no poll goes on the caller has a clone; and while one does, perhaps the waker of the poll only, so that what others
        // have put here may go at any time.
        let held = match self.polls.get().is_inside() {
            true => Some(Held::new(self)),
            false => None,
        };
        match held {
            // SAFETY: no clone is left, so the caller uses the waker of the poll.
            Some(None) => f(unsafe { self.executor() }),
            // SAFETY: the caller's clone, or this one.
            _ => unsafe { self.shared.with(f) },
        }
    }

    /// Gives up a clone of its waker. For hooks.
    ///
    /// # Safety
    /// The caller holds the clone.
    #[inline]
    pub unsafe fn release(&'static self) {
        self.settle(self.shared.release());
    }

    /// Wakes it. `is_polled` says that the current thread polls this task. For hooks.
    ///
    /// # Safety
    /// As [`Task::share`].
    #[inline]
    pub unsafe fn wake_by_ref(&'static self, is_polled: impl FnOnce() -> bool) {
        self.note_when_woken();
        // First: the executor may poll it at once.
        self.shared.note_wake(|| self.polls.get().count(), is_polled);
        // SAFETY: the caller's promise.
        unsafe { self.with_executors(Waker::wake_by_ref) };
    }

    /// Wakes it, and gives up a clone of its waker. For hooks.
    ///
    /// # Safety
    /// The caller holds the clone.
    #[inline]
    pub unsafe fn wake(&'static self) {
        self.note_when_woken();
        match self.shared.release_to_wake(self.polls.get().count()) {
            Some(released) => {
                if let Some(waker) = self.settled(released) {
                    waker.wake();
                }
            }
            None => {
                // Also if the executor's code panics.
                let _held = Held(self);
                // SAFETY: the clone is held; so it does not matter who polls.
                unsafe { self.wake_by_ref(|| false) };
            }
        }
    }

    /// Whether it waits and its stack is not known, although a poll would tell it. Then: how many polls there were.
    pub(crate) fn is_unknown(&self) -> Option<u32> {
        let doing = self.doing();
        (doing.waits() && doing.has_waker() && self.awaits.is_empty()).then(|| doing.polls())
    }

    /// Has it polled, so that it leaves its stack. `false` if it has been asked before, or cannot be woken. Not for hooks: runs code
    /// of the executor's.
    pub(crate) fn ask(&'static self, polls: u32) -> bool {
        // Not once more where the executor has not come to it yet, or the poll has left no stack: its leaf has a waker, and keeps it.
        let is_in_vain = self.awaits.was_asked(polls) || self.awaits.was_asked(before(polls));
        if is_in_vain || !self.shared.acquire() {
            return false;
        }
        let _held = Held(self);
        self.awaits.ask(polls);
        // SAFETY: a clone is held. The task is not woken as far as it knows itself.
        let wake = || unsafe { self.shared.with(Waker::wake_by_ref) };
        // A panic of the executor's is not that of whoever looks at tasks.
        panic::catch_unwind(AssertUnwindSafe(wake)).is_ok()
    }

    /// Whether it was polled since it was asked, or is gone.
    pub(crate) fn has_answered(&self, id: u64, polls: u32) -> bool {
        let doing = self.doing();
        self.id.load(Ordering::Acquire) & NUMBER != id || doing.polls() != polls && !doing.is_inside()
    }
}

/// A clone of a task's waker, given up when this is dropped.
struct Held(&'static Task);

impl Held {
    /// Counts one. `None` if there is no other one.
    fn new(task: &'static Task) -> Option<Self> {
        // Not `then_some`: what is made in vain would give up a clone.
        task.shared.hold().then(|| Self(task))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the clone is this one's.
        unsafe { self.0.release() };
    }
}
