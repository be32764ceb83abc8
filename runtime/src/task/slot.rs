//! A task: the slot that says who it is, what it does, and where it awaits.

mod read;
mod traced;
mod wait;
mod wake;

use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use core::task::Waker;

use super::await_stack::{AwaitStacks, Beside};
use super::noted::Flag;
use super::polls::{Polls, PollsSeen};
use super::shared_waker::{SharedWaker, WakerSeen};
use super::telling::told;
use super::{FORKS, request};
use crate::atomic_ref::AtomicRef;
use crate::clock;
use crate::labels::{self, LabelSetId};
use crate::name::Name;
use crate::slots::{Slot, SlotIndex};
use crate::stack::kept::NotedStack;
use crate::start::{Start, StartCell};
use crate::state::{StateWord, WordCell};

pub(crate) use read::Seen;
pub use traced::{KeptStack, clear_marks};
pub use wait::{WaitObserver, observe_waits};

/// An async task that the profiler follows.
///
/// Lives for ever, but not as the same task: when the future of one and all clones of its waker are gone, the slot serves a later
/// one, which [`Task::id`] tells apart.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Task {
    /// Its number, and above [`NUMBER`] how many forks led to its process; 0 while the slot has no future. Written last when a task
    /// begins and first when it ends.
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
    outer: AtomicRef<Task>,
    awaits: AwaitStacks,
    /// The state word of a claimed task; see [`traced`]. Its mark is 0 while the task is not claimed.
    traced: WordCell,
    polls: Polls,
    /// Its labels: while it is polled, those that are current.
    labels: AtomicU16,
    /// Those under which the last poll has left its first stack.
    first_labels: AtomicU16,
    creator: AtomicU64,
    created_by: NotedStack<Beside>,
    start: StartCell,
    name: Name,
    index: SlotIndex,
}

// SAFETY: atomics of numbers and pointers, and memory for a waker: zeroed, it is a slot that is free.
unsafe impl Slot for Task {
    fn index(&self) -> &SlotIndex {
        &self.index
    }
}

impl core::fmt::Debug for Task {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Task").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// The bits of a task's number.
const NUMBER: u64 = (1 << 48) - 1;

/// Its number, and how many forks led to its process: of those, the low 16 bits.
fn identified(number: u64, forks: u32) -> u64 {
    number & NUMBER | u64::from(forks) << NUMBER.count_ones()
}

/// What a task does, as of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doing {
    polls: PollsSeen,
    waker: WakerSeen,
}

impl Doing {
    /// The number of polls that have begun. Wraps at 2^31.
    #[inline]
    pub(crate) fn polls(self) -> u32 {
        self.polls.count()
    }

    /// It is polled.
    #[inline]
    pub(crate) fn is_inside(self) -> bool {
        self.polls.is_inside()
    }

    /// It was woken, and is polled soon.
    #[inline]
    pub(super) fn is_woken(self) -> bool {
        self.waker.woken_after() == self.polls.count()
    }

    /// It suspended, and was not woken since.
    #[inline]
    pub(crate) fn waits(self) -> bool {
        !self.is_inside() && self.polls() != 0 && !self.is_woken()
    }

    /// It may be woken.
    #[inline]
    pub(super) fn has_waker(self) -> bool {
        self.waker.has_waker()
    }
}

/// A poll that has begun.
#[must_use = "it is to be ended"]
pub struct Begun {
    /// Whether the task's own waker may be handed out: not if clones of it lead to another executor.
    pub is_shared: bool,
    /// The wait that the beginning of this poll may not have ended.
    wait: Option<wait::Wait>,
}

/// What tells an executor's waker from another one.
pub type Identity = [usize; 2];

impl Task {
    /// Its number, among those of goroutines; 0 when its future is gone.
    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed) & NUMBER
    }

    /// Runs `f` with the name that it was given; an empty one if none was. For hooks.
    pub fn with_name<T>(&self, f: impl FnOnce(&str) -> T) -> T {
        self.name.with(f)
    }

    pub(super) fn begin(&self, id: u64, name: &str, start: Start, creator: u64, labels: LabelSetId) {
        // First: what a trace found of the task before is none of this one, whose name it would take else.
        self.traced.reset(StateWord::unknown(id));
        self.name.set(name);
        self.start.set(Some(start));
        self.creator.store(creator, Ordering::Release);
        self.set_labels(labels);
        self.created_by.set(if request::is_on() { super::await_stack::here() } else { None });
        self.polls.reset();
        self.awaits.reset();
        self.shared.begin();
        // Last: who finds the number finds the rest.
        self.id.store(identified(id, FORKS.load(Ordering::Relaxed)), Ordering::Release);
    }

    /// What it does.
    #[inline]
    fn doing(&self) -> Doing {
        let polls = self.polls.get();
        Doing { polls, waker: self.shared.get() }
    }

    /// Its future is about to be dropped, inside a poll of `outer`, before it was ready. For hooks.
    ///
    /// # Safety
    /// By the owner of the future, who calls [`Task::end`] next.
    pub unsafe fn enter_end(&'static self, outer: Option<&'static Self>) {
        let before = self.doing();
        if before.polls() != 0 {
            self.charge_last(before);
        }
        self.set_outer(outer);
        self.polls.enter_end();
    }

    /// Its future is gone. For hooks.
    ///
    /// # Safety
    /// By the owner of the future, once.
    pub unsafe fn end(&'static self) {
        self.id.store(0, Ordering::Release);
        self.polls.leave();
        self.settle(self.shared.end());
    }

    /// Begins a poll under a waker of the executor's, inside a poll of `outer`. For hooks.
    ///
    /// # Safety
    /// By the owner of the future, who calls [`Task::leave`] or [`Task::end`] afterwards, and not both at once. The waker lives
    /// until then.
    #[inline]
    pub unsafe fn enter(
        &'static self,
        executor: &Waker,
        identity: impl FnOnce() -> Identity,
        outer: Option<&'static Self>,
    ) -> Begun {
        self.executor.store((&raw const *executor).cast_mut(), Ordering::Relaxed);
        let before = Doing { polls: self.polls.enter(), waker: self.shared.get() };
        let mut begun = Begun { is_shared: true, wait: None };
        let is_woken = before.is_woken() || before.polls() == 0;
        if request::is_on() || !is_woken || !self.awaits.noted().get().is_nothing() {
            begun.wait = self.resume(before);
        }
        self.set_outer(outer);
        if before.has_waker() && self.held.each_ref().map(|part| part.load(Ordering::Relaxed)) != identity() {
            begun.is_shared = false;
            self.awaits.noted().add(Flag::IsForeign);
        }
        begun
    }

    /// Ends a poll; the future waits, or `is_ready`. For hooks.
    ///
    /// # Safety
    /// By the owner of the future, after [`Task::enter`].
    #[inline]
    pub unsafe fn leave(&self, begun: Begun, is_ready: bool) {
        if is_ready {
            // Its owner ends it.
            return self.end_wait(begun.wait);
        }
        self.begin_wait(begun.wait);
        self.polls.leave();
    }

    /// Ends a poll that has panicked. For hooks.
    ///
    /// # Safety
    /// By the owner of the future, after [`Task::enter`].
    #[cold]
    pub unsafe fn leave_by_panic(&self) {
        self.awaits.noted().add(Flag::HasPanicked);
        self.since.store(clock::ticks(), Ordering::Release);
        self.polls.leave();
    }

    /// Which clones of its waker a poll hands out: those of one poll differ from those of the next, while stacks are wanted. For
    /// hooks.
    #[inline]
    pub fn is_other_side(&self) -> bool {
        self.awaits.noted().get().has(Flag::OtherSide)
    }

    #[inline]
    fn set_outer(&self, outer: Option<&'static Self>) {
        self.outer.set(outer);
    }

    /// Notes its labels. By the thread that polls it.
    pub(crate) fn set_labels(&self, labels: LabelSetId) {
        self.labels.store(labels.bits() as u16, Ordering::Release);
    }

    /// While it is polled: the task inside whose poll that is.
    pub fn outer(&self) -> Option<&'static Self> {
        self.outer.get()
    }

    /// A leaf future clones the waker, in a poll of this task by the current thread: notes where. `is_handed` says that the waker
    /// was a clone, which something between the task and the leaf has made. For hooks.
    #[inline]
    pub fn note_await(&self, is_handed: bool) {
        if request::is_on() && self.awaits.add_here(is_handed, told(self)) {
            self.first_labels.store(labels::current_id().bits() as u16, Ordering::Release);
        }
    }

    /// The process of this task is this one, to which so many forks have led.
    pub(super) fn set_forks(&self, forks: u32) {
        self.id.store(identified(self.id(), forks), Ordering::Relaxed);
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
