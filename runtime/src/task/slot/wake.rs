//! The wakers that a task hands out: cloning, releasing and waking.

use core::sync::atomic::Ordering;
use core::task::Waker;
use std::panic::{self, AssertUnwindSafe};

use super::{Identity, NUMBER, Task};
use crate::task::TASKS;
use crate::task::noted::Flag;
use crate::task::polls::before;
use crate::task::shared_waker::{Released, Share};

impl Task {
    /// Performs what remains after a release.
    #[inline]
    pub(super) fn settle(&'static self, released: Released<Waker>) {
        if let Some(waker) = self.settled(released) {
            drop(waker);
        }
    }

    /// Gives the slot back if it is not needed any more. The caller handles the returned waker last: it runs code of
    /// the executor.
    #[inline]
    fn settled(&'static self, released: Released<Waker>) -> Option<Waker> {
        if released.is_last {
            TASKS.give_back(self);
        }
        released.waker
    }

    /// Counts a clone of its waker. If the clone cannot be counted, returns a clone of the executor's waker, to be used
    /// instead. `is_polled` returns whether the current thread polls this task. Safe to call in a hook.
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
            // SAFETY: the caller holds a clone of the task's waker, or uses the waker of a poll.
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
    /// A poll is in progress, and does not end while the reference is used.
    #[inline]
    unsafe fn executor(&self) -> &Waker {
        // SAFETY: the pointer is the waker of the poll, which lives as long as the poll; a thread that uses it
        // elsewhere received it from the polling thread.
        unsafe { &*self.executor.load(Ordering::Relaxed) }
    }

    /// Runs `f` with a waker of the executor.
    ///
    /// # Safety
    /// The caller holds a clone of the task's waker, or uses the waker of a poll in which it may be handed out.
    unsafe fn with_executors<R>(&'static self, f: impl FnOnce(&Waker) -> R) -> R {
        // Outside a poll the caller has a clone. During a poll it may have only the waker of the poll, so the stored
        // waker may be released at any time.
        let held = match self.polls.get().is_inside() {
            true => Some(Held::new(self)),
            false => None,
        };
        match held {
            // SAFETY: no clone is left, so the caller uses the waker of the poll.
            Some(None) => f(unsafe { self.executor() }),
            // SAFETY: either the caller or `held` holds a clone.
            _ => unsafe { self.shared.with(f) },
        }
    }

    /// Releases a clone of its waker. Safe to call in a hook.
    ///
    /// # Safety
    /// The caller holds the clone.
    #[inline]
    pub unsafe fn release(&'static self) {
        self.settle(self.shared.release());
    }

    /// Wakes it. `is_polled` returns whether the current thread polls this task. Safe to call in a hook.
    ///
    /// # Safety
    /// The caller holds a clone of the task's waker, or uses the waker of a poll in which it may be handed out.
    #[inline]
    pub unsafe fn wake_by_ref(&'static self, is_polled: impl FnOnce() -> bool) {
        self.note_when_woken();
        // First: the executor may poll it at once.
        self.shared.note_wake(|| self.polls.get().count(), is_polled);
        // SAFETY: the caller holds a clone of the task's waker, or uses the waker of a poll.
        unsafe { self.with_executors(Waker::wake_by_ref) };
    }

    /// Wakes it and releases a clone of its waker. Safe to call in a hook.
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
                // A guard, so that the clone is released also if the executor's code panics.
                let _held = Held(self);
                // SAFETY: the clone is held; so it does not matter which thread polls.
                unsafe { self.wake_by_ref(|| false) };
            }
        }
    }

    /// Returns the number of its polls, if it waits and its stack is not known although a poll would reveal it.
    pub(crate) fn is_unknown(&self) -> Option<u32> {
        let doing = self.doing();
        (doing.waits() && doing.has_waker() && self.awaits.is_empty()).then(|| doing.polls())
    }

    /// Has it polled, so that it leaves its stack. Returns `false` if it has been asked before, or cannot be woken.
    /// Must not be called in a hook: runs code of the executor.
    pub(crate) fn ask(&'static self, polls: u32) -> bool {
        // Not a second time while the executor has not polled it yet, or after a poll that has left no stack because
        // its leaf keeps an earlier waker.
        let is_in_vain = self.awaits.was_asked(polls) || self.awaits.was_asked(before(polls));
        if is_in_vain || !self.shared.acquire() {
            return false;
        }
        let _held = Held(self);
        self.awaits.ask(polls);
        // SAFETY: a clone is held. The task does not count this as a wake.
        let wake = || unsafe { self.shared.with(Waker::wake_by_ref) };
        // A panic of the executor must not reach the thread that takes a snapshot.
        panic::catch_unwind(AssertUnwindSafe(wake)).is_ok()
    }

    /// Returns whether it was polled since it was asked, or is gone.
    pub(crate) fn has_answered(&self, id: u64, polls: u32) -> bool {
        let doing = self.doing();
        self.id.load(Ordering::Acquire) & NUMBER != id || doing.polls() != polls && !doing.is_inside()
    }
}

/// A clone of a task's waker, released when this is dropped.
struct Held(&'static Task);

impl Held {
    /// Counts a clone. Returns `None` if no other clone exists.
    fn new(task: &'static Task) -> Option<Self> {
        // Not `then_some`: the unused value would be dropped and release a clone.
        task.shared.hold().then(|| Self(task))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: this guard holds the clone.
        unsafe { self.0.release() };
    }
}
