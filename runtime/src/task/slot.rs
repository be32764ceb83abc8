//! The slot of a task: its identity, its state, and where it awaits.

mod read;
mod traced;
mod wait;
mod wake;

use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use core::task::Waker;

use super::await_stack::{AwaitStacks, Beside};
use super::declared_reason::{DeclaredReason, declared_for};
use super::noted::Flag;
use super::polls::{Polls, PollsSeen};
use super::shared_waker::{SharedWaker, WakerSeen};
use super::{FORKS, request};
use crate::clock;
use crate::goroutine::name::Name;
use crate::goroutine::start::{Start, StartCell};
use crate::goroutine::state::{StateWord, WordCell};
use crate::goroutine::wait_reason::WaitReason;
use crate::labels::{self, LabelSetId};
use crate::memory::atomic_ref::AtomicRef;
use crate::memory::slots::{Slot, SlotIndex};
use crate::stack::kept::NotedStack;

pub(crate) use read::Seen;
pub use traced::{KeptStack, clear_marks};
pub use wait::{WaitChoice, WaitObserver, observe_waits};

/// An async task that the profiler follows.
///
/// A slot is never freed. When the future of its task and all clones of the task's waker are gone, it serves a later
/// task, which [`Task::id`] distinguishes.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Task {
    /// The task's id, and above [`NUMBER`] the number of forks that led to its process; 0 while the slot has no future.
    /// Written last when a task begins and first when it ends.
    id: AtomicU64,
    shared: SharedWaker<Waker>,
    /// The tick at which the last poll ended.
    since: AtomicU64,
    /// The tick at which it was last woken, if the block profile included waits of tasks.
    woken: AtomicU64,
    /// The executor's waker of the current poll; valid while the task is polled.
    executor: AtomicPtr<Waker>,
    /// The words that identify the executor's waker in `shared`.
    held: [AtomicUsize; 2],
    /// The task whose poll encloses the current poll; valid while the task is polled.
    outer: AtomicRef<Task>,
    awaits: AwaitStacks,
    /// The state word of a claimed task; see [`traced`]. Its mark is 0 while the task is not claimed.
    traced: WordCell,
    polls: Polls,
    /// Its labels; while it is polled, the current ones.
    labels: AtomicU16,
    /// The labels under which the last poll has left its first stack.
    first_labels: AtomicU16,
    /// The id of the goroutine that has created it, and above [`NUMBER`] the [`WaitChoice`] about its last wait, unless that is
    /// left out. After its beginning written by the thread that polls it.
    creator: AtomicU64,
    created_by: NotedStack<Beside>,
    start: StartCell,
    name: Name,
    index: SlotIndex,
}

// SAFETY: the fields are atomics of numbers and pointers, and memory for a waker: zeroed, they are a free slot.
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

/// The bits of a task's id.
const NUMBER: u64 = (1 << 48) - 1;

/// Returns the id with the low 16 bits of the number of forks above it.
fn identified(number: u64, forks: u32) -> u64 {
    number & NUMBER | u64::from(forks) << NUMBER.count_ones()
}

/// The state of a task, as of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doing {
    polls: PollsSeen,
    waker: WakerSeen,
}

impl Doing {
    /// Returns the number of polls that have begun. Wraps at 2^31.
    #[inline]
    pub(crate) fn polls(self) -> u32 {
        self.polls.count()
    }

    /// Returns whether the task is being polled.
    #[inline]
    pub(crate) fn is_inside(self) -> bool {
        self.polls.is_inside()
    }

    /// Returns whether the task was woken, and will be polled soon.
    #[inline]
    pub(super) fn is_woken(self) -> bool {
        self.waker.woken_after() == self.polls.count()
    }

    /// Returns whether the task has suspended and was not woken since.
    #[inline]
    pub(crate) fn waits(self) -> bool {
        !self.is_inside() && self.polls() != 0 && !self.is_woken()
    }

    /// Returns whether a waker is stored by which the task may be woken.
    #[inline]
    pub(super) fn has_waker(self) -> bool {
        self.waker.has_waker()
    }
}

/// A poll that has begun.
#[must_use = "it is to be ended"]
pub struct Begun {
    /// Whether the task's own waker may be handed out. `false` if its clones lead to another executor.
    pub is_shared: bool,
    /// Whether the waker of the poll is to differ from its clones, because the task notes where it is cloned.
    pub notes_stacks: bool,
    /// The wait that may continue after the beginning of this poll.
    wait: Option<wait::Wait>,
}

/// The words that identify an executor's waker.
pub type Identity = [usize; 2];

impl Task {
    /// Declares that awaits in this task, which the current thread polls, are waits for `reason`, until the guard is
    /// dropped. Overrides an outer declaration.
    pub fn declare(&'static self, reason: WaitReason) -> DeclaredReason {
        DeclaredReason::begin(self.address(), reason)
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Returns its id, from the sequence of goroutine ids; 0 when its future is gone.
    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed) & NUMBER
    }

    /// Runs `f` with the name that it was given, or an empty one. Safe to call in a hook.
    pub fn with_name<T>(&self, f: impl FnOnce(&str) -> T) -> T {
        self.name.with(f)
    }

    pub(super) fn begin(&self, id: u64, name: &str, start: Start, creator: u64, labels: LabelSetId) {
        // First: otherwise the traced state of the slot's previous task would be taken for this task's.
        self.traced.reset(StateWord::unknown(id));
        self.name.set(name);
        self.start.set(Some(start));
        self.creator.store(creator & NUMBER, Ordering::Release);
        self.set_labels(labels);
        self.created_by.set(if request::is_on() { super::await_stack::here() } else { None });
        self.polls.reset();
        self.awaits.reset();
        self.shared.begin();
        // Last: a reader that finds the id finds the other fields.
        self.id.store(identified(id, FORKS.load(Ordering::Relaxed)), Ordering::Release);
    }

    /// Returns its state.
    #[inline]
    fn doing(&self) -> Doing {
        let polls = self.polls.get();
        Doing { polls, waker: self.shared.get() }
    }

    /// Begins the drop of its future before it was ready, inside a poll of `outer`. Safe to call in a hook.
    ///
    /// # Safety
    /// Called by the owner of the future, which calls [`Task::end`] next.
    pub unsafe fn enter_end(&'static self, outer: Option<&'static Self>) {
        let before = self.doing();
        if before.polls() != 0 {
            self.charge_last(before);
        }
        self.set_outer(outer);
        self.polls.enter_end();
    }

    /// Ends the task after its future was dropped. Safe to call in a hook.
    ///
    /// # Safety
    /// Called by the owner of the future, once.
    pub unsafe fn end(&'static self) {
        self.id.store(0, Ordering::Release);
        self.polls.leave();
        self.settle(self.shared.end());
    }

    /// Begins a poll under a waker of the executor, inside a poll of `outer`. Safe to call in a hook.
    ///
    /// # Safety
    /// Called by the owner of the future, which calls [`Task::leave`] or [`Task::end`] afterwards, one poll at a time.
    /// The waker lives until then.
    #[inline]
    pub unsafe fn enter(
        &'static self,
        executor: &Waker,
        identity: impl FnOnce() -> Identity,
        outer: Option<&'static Self>,
    ) -> Begun {
        self.executor.store((&raw const *executor).cast_mut(), Ordering::Relaxed);
        let before = Doing { polls: self.polls.enter(), waker: self.shared.get() };
        let mut begun = Begun { is_shared: true, notes_stacks: false, wait: None };
        let is_woken = before.is_woken() || before.polls() == 0;
        let noted = self.awaits.noted().get();
        if request::is_on() || !is_woken || !noted.is_nothing() {
            // Most of the waits that the block profile leaves out follow another one that it leaves out.
            let choice = if is_woken && noted.is_left_out() { Some(self.choose()) } else { None };
            if choice != Some(false) {
                begun.wait = self.resume(before, choice);
                begun.notes_stacks = self.awaits.noted().get().has(Flag::NotesStacks);
            }
        }
        self.set_outer(outer);
        if before.has_waker() && self.held.each_ref().map(|part| part.load(Ordering::Relaxed)) != identity() {
            begun.is_shared = false;
            self.awaits.noted().add(Flag::IsForeign);
        }
        begun
    }

    /// Ends a poll; the future waits, or `is_ready`. Safe to call in a hook.
    ///
    /// # Safety
    /// Called by the owner of the future, after [`Task::enter`].
    #[inline]
    pub unsafe fn leave(&self, begun: Begun, is_ready: bool) {
        if is_ready {
            // The owner calls `end`.
            return self.end_wait(begun.wait);
        }
        self.begin_wait(begun.wait);
        self.polls.leave();
    }

    /// Ends a poll that has panicked. Safe to call in a hook.
    ///
    /// # Safety
    /// Called by the owner of the future, after [`Task::enter`].
    #[cold]
    pub unsafe fn leave_by_panic(&self) {
        self.awaits.noted().add(Flag::HasPanicked);
        self.since.store(clock::ticks(), Ordering::Release);
        self.polls.leave();
    }

    /// Returns whether the task notes in this poll where its waker is cloned. Safe to call in a hook.
    #[inline]
    pub fn notes_stacks(&self) -> bool {
        let noted = self.awaits.noted().get();
        // Also if that was requested after the beginning of the poll.
        let is_requested = || request::is_on() && (!noted.has(Flag::IsLeftOut) || request::has_every_poll());
        noted.has(Flag::NotesStacks) || is_requested()
    }

    /// Returns which of two vtables the clones of its waker have in this poll: it alternates between the polls in which the
    /// task notes stacks, so that a leaf sees another waker. Safe to call in a hook.
    #[inline]
    pub fn is_other_side(&self) -> bool {
        self.awaits.noted().get().has(Flag::OtherSide)
    }

    #[inline]
    fn set_outer(&self, outer: Option<&'static Self>) {
        self.outer.set(outer);
    }

    /// Notes its labels. Called by the thread that polls it.
    pub(crate) fn set_labels(&self, labels: LabelSetId) {
        self.labels.store(labels.bits() as u16, Ordering::Release);
    }

    /// Returns the task whose poll encloses the current poll, while it is polled.
    pub fn outer(&self) -> Option<&'static Self> {
        self.outer.get()
    }

    /// Notes the stack of a leaf future that clones the waker, in a poll of this task by the current thread.
    /// `is_handed` says that the waker was a clone, made by code between the task and the leaf. Safe to call in a hook.
    #[inline]
    pub fn note_await(&self, is_handed: bool) {
        if self.notes_stacks() {
            wait::noting(|| {
                if self.awaits.add_here(is_handed, declared_for(self.address())) {
                    self.first_labels.store(labels::current_id().bits() as u16, Ordering::Release);
                }
            });
        }
    }

    fn set_choice(&self, WaitChoice(choice): WaitChoice) {
        let creator = self.creator.load(Ordering::Relaxed) & NUMBER;
        self.creator.store(creator | u64::from(choice) << NUMBER.count_ones(), Ordering::Release);
    }

    fn choice(&self) -> WaitChoice {
        WaitChoice((self.creator.load(Ordering::Relaxed) >> NUMBER.count_ones()) as u16)
    }

    /// Assigns the task to this process, to which `forks` forks have led.
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
