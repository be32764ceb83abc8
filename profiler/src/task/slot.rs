//! A task: the slot that says who it is, what it does, and where it awaits.

mod read;

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::task::Waker;
use std::panic::{self, AssertUnwindSafe};

use super::await_stack::AwaitStacks;
use super::shared_waker::{Doing, Released, Share, SharedWaker};
use super::{FORKS, TASKS, request};
use crate::clock;
use crate::contention;
use crate::goroutine::{Name, Start, StartCell};
use crate::labels::LabelSetId;
use crate::sampling::Hook;
use crate::slots::{Place, Slot};
use crate::stack::kept::NotedStack;
use crate::stack::marker;

pub(super) use read::Seen;

/// An async task that the profiler follows.
///
/// Lives for ever, but not as the same task: when the future of one and all clones of its waker are gone, the slot serves a later
/// one, which [`Task::id`] tells apart.
#[repr(C, align(128))]
pub struct Task {
    /// 0 while the slot has no future. Written last when a task begins and first when it ends.
    id: AtomicU64,
    shared: SharedWaker<Waker>,
    /// The tick at which the last poll ended.
    since: AtomicU64,
    /// The tick at which it was woken last, as far as the block profile had waits of tasks.
    woken: AtomicU64,
    /// While it is polled: the executor's waker of that poll.
    executor: AtomicPtr<Waker>,
    /// What the executor's waker that is shared consists of, to tell it from another.
    held: [AtomicUsize; 2],
    /// While it is polled: the task inside whose poll it is polled.
    outer: AtomicPtr<Task>,
    awaits: AwaitStacks,
    /// How many forks led to its process.
    forks: AtomicU32,
    /// Its labels: while it is polled, those that are current.
    labels: AtomicU32,
    creator: AtomicU64,
    created_by: NotedStack,
    start: StartCell,
    name: Name,
    place: Place,
}

// SAFETY: atomics of numbers and pointers, and memory for a waker: zeroed, it is a slot that is free.
unsafe impl Slot for Task {
    fn place(&self) -> &Place {
        &self.place
    }

    #[cfg(loom)]
    fn vacant() -> Self {
        Self {
            id: AtomicU64::new(0),
            shared: SharedWaker::default(),
            since: AtomicU64::new(0),
            woken: AtomicU64::new(0),
            executor: AtomicPtr::new(core::ptr::null_mut()),
            held: [AtomicUsize::new(0), AtomicUsize::new(0)],
            outer: AtomicPtr::new(core::ptr::null_mut()),
            awaits: AwaitStacks::default(),
            forks: AtomicU32::new(0),
            labels: AtomicU32::new(0),
            creator: AtomicU64::new(0),
            created_by: NotedStack::default(),
            start: StartCell::default(),
            name: Name::default(),
            place: Place::default(),
        }
    }
}

impl core::fmt::Debug for Task {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Task").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// What tells an executor's waker from another one.
pub type Identity = [usize; 2];

impl Task {
    /// Its number, among those of goroutines; 0 when its future is gone.
    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Runs `f` with the name that it was given; an empty one if none was. For hooks.
    pub(crate) fn with_name<T>(&self, f: impl FnOnce(&str) -> T) -> T {
        self.name.with(f)
    }

    pub(super) fn begin(&self, id: u64, name: &str, start: Start, creator: u64, labels: LabelSetId) {
        self.name.set(name);
        self.start.set(Some(start));
        self.creator.store(creator, Ordering::Release);
        self.set_labels(labels);
        self.created_by.note(if request::is_on() { super::await_stack::here() } else { None });
        self.forks.store(FORKS.load(Ordering::Relaxed), Ordering::Release);
        self.awaits.reset();
        self.shared.begin();
        // Last: who finds the number finds the rest.
        self.id.store(id, Ordering::Release);
    }

    /// Its future is gone. For hooks.
    ///
    /// # Safety
    /// By the owner of the future, once.
    pub unsafe fn end(&'static self) {
        let doing = self.shared.doing();
        if request::has_waits() && !doing.is_inside() {
            self.charge_wait(doing);
        }
        self.id.store(0, Ordering::Release);
        self.settle(self.shared.end());
    }

    /// Does what is left to do.
    #[inline]
    fn settle(&'static self, released: Released<Waker>) {
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

    /// Begins a poll under a waker of the executor's, inside a poll of `outer`. Returns whether the task's own waker may be handed
    /// out: not if clones of it lead to another executor. For hooks.
    ///
    /// # Safety
    /// By the owner of the future, who calls [`Task::leave`] or [`Task::end`] afterwards, and not both at once. The waker lives
    /// until then.
    #[inline]
    pub unsafe fn enter(
        &'static self,
        executor: &Waker,
        identity: Identity,
        outer: Option<&'static Self>,
    ) -> bool {
        self.executor.store((&raw const *executor).cast_mut(), Ordering::Release);
        let before = self.shared.enter();
        let is_asked = self.awaits.begin_poll(before);
        if request::has_waits() && !is_asked {
            self.charge_wait(before);
        }
        self.outer.store(
            outer.map_or(core::ptr::null_mut(), |outer| (&raw const *outer).cast_mut()),
            Ordering::Relaxed,
        );
        self.awaits.clear();
        !before.has_waker() || self.held.each_ref().map(|part| part.load(Ordering::Relaxed)) == identity
    }

    /// A wait is over, as which it was doing `waited`: an event of the block profile. By the owner of the future.
    #[cold]
    fn charge_wait(&self, waited: Doing) {
        if waited.polls() == 0 {
            return;
        }
        let end = if waited.is_woken() { self.woken.load(Ordering::Acquire) } else { clock::ticks() };
        // 0 if it was woken during the poll, or before the profile had waits of tasks.
        let ticks = clock::since(self.since.load(Ordering::Relaxed), end);
        if ticks == 0 {
            return;
        }
        let labels = self.awaits.labels();
        let own_labels = || LabelSetId::from_bits(self.labels.load(Ordering::Relaxed));
        let unknown = match waited.is_woken() || waited.has_waker() {
            true => [marker::frame(marker::task_was_not_polled_for_its_stack)],
            false => [marker::frame(marker::task_has_no_waker)],
        };
        let noted = self.awaits.get().next();
        let stack = noted.as_ref().map_or(&unknown[..], |stack| stack);
        // Leaves `errno` as it was.
        let _hook = Hook::enter();
        contention::await_event(ticks, stack, labels.unwrap_or_else(own_labels));
    }

    /// Ends a poll after which the future waits. For hooks.
    ///
    /// # Safety
    /// By the owner of the future, after [`Task::enter`].
    #[inline]
    pub unsafe fn leave(&'static self) {
        // One that was polled for its stack has waited all the time.
        if !self.awaits.is_only_asked() {
            let now = clock::ticks();
            self.since.store(now, Ordering::Release);
            request::look_at_lease(now);
        }
        self.settle(self.shared.leave());
    }

    /// Notes its labels. By the thread that polls it.
    pub(crate) fn set_labels(&self, labels: LabelSetId) {
        self.labels.store(labels.bits(), Ordering::Release);
    }

    /// While it is polled: the task inside whose poll that is.
    pub fn outer(&self) -> Option<&'static Self> {
        // SAFETY: null, or from a reference to a slot, which is never freed.
        unsafe { self.outer.load(Ordering::Relaxed).as_ref() }
    }

    /// A leaf future clones the waker, in a poll of this task by the current thread: notes where. For hooks.
    #[inline]
    pub fn note_await(&self) {
        if request::is_on() {
            self.awaits.add_here();
        }
    }

    /// Counts a clone of its waker. If that cannot be counted, returns a clone of the executor's, to be used in its place.
    /// `is_polled` says that the current thread polls this task. For hooks.
    ///
    /// # Safety
    /// The caller holds a clone of the task's waker, or uses the waker of a poll in which it may be handed out.
    #[inline]
    pub unsafe fn share(
        &self,
        is_polled: impl FnOnce() -> bool,
        identity: impl FnOnce(&Waker) -> Identity,
    ) -> Option<Waker> {
        match self.shared.share() {
            Share::Counted => None,
            // SAFETY: the caller's promise.
            Share::Full => unsafe { self.shared.with(Waker::clone) },
            Share::Empty => {
                // SAFETY: there is no clone, so the caller uses the waker of a poll.
                let executor = unsafe { self.executor() };
                if !is_polled() {
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
    unsafe fn executor(&self) -> &Waker {
        // SAFETY: that of the poll, which lives as long.
        unsafe { &*self.executor.load(Ordering::Acquire) }
    }

    /// Gives up a clone of its waker. For hooks.
    ///
    /// # Safety
    /// The caller holds the clone.
    #[inline]
    pub unsafe fn release(&'static self) {
        self.settle(self.shared.release());
    }

    /// Wakes it. For hooks.
    ///
    /// # Safety
    /// As [`Task::share`].
    #[inline]
    pub unsafe fn wake_by_ref(&self) {
        self.note_when_woken();
        // First: the executor may poll it at once.
        self.shared.note_wake();
        // SAFETY: the caller's promise.
        let woken = unsafe { self.shared.with(Waker::wake_by_ref) };
        if woken.is_none() {
            // SAFETY: there is no clone, so the caller uses the waker of a poll.
            unsafe { self.executor() }.wake_by_ref();
        }
    }

    /// Wakes it, and gives up a clone of its waker. For hooks.
    ///
    /// # Safety
    /// The caller holds the clone.
    #[inline]
    pub unsafe fn wake(&'static self) {
        self.note_when_woken();
        match self.shared.release_to_wake() {
            Some(released) => {
                if let Some(waker) = self.settled(released) {
                    waker.wake();
                }
            }
            None => {
                // Also if the executor's code panics.
                let _held = Held(self);
                // SAFETY: the clone is held.
                unsafe { self.wake_by_ref() };
            }
        }
    }

    /// It is about to be woken, perhaps not for the first time.
    #[inline]
    fn note_when_woken(&self) {
        if request::has_waits() && !self.shared.doing().is_woken() {
            // Before the word says so, so that the thread that polls it next reads this.
            self.woken.store(clock::ticks(), Ordering::Release);
        }
    }

    /// Whether it waits and its stack is not known, although a poll would tell it. Then: how many polls there were.
    pub(super) fn is_unknown(&self) -> Option<u32> {
        let doing = self.shared.doing();
        let waits = !doing.is_inside() && !doing.is_woken() && doing.polls() > 0;
        (waits && doing.has_waker() && self.awaits.is_empty()).then(|| doing.polls())
    }

    /// Has it polled, so that it leaves its stack. `false` if it has been asked before, or cannot be woken. Not for hooks: runs code
    /// of the executor's.
    pub(super) fn ask(&'static self, polls: u32) -> bool {
        // Not once more where the executor has not come to it yet.
        if self.awaits.was_asked(polls) || !self.shared.acquire() {
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
    pub(super) fn has_answered(&self, id: u64, polls: u32) -> bool {
        let doing = self.shared.doing();
        self.id.load(Ordering::Acquire) != id || doing.polls() != polls && !doing.is_inside()
    }

    /// The process of this task is this one, to which so many forks have led.
    pub(super) fn set_forks(&self, forks: u32) {
        self.forks.store(forks, Ordering::Relaxed);
    }
}

/// A clone of a task's waker, given up when this is dropped.
struct Held(&'static Task);

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the clone is this one's.
        unsafe { self.0.release() };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_task_takes_as_much_memory_as_the_guide_says() {
        assert_eq!(size_of::<Task>(), 256);
    }
}
