//! Where a task awaits: the stacks at which leaf futures cloned its waker in the last poll.
//!
//! A waiting task has no stack: its poll has returned. But when a leaf future suspends, it clones the waker, deep
//! inside the poll, and the stack there is the chain of async functions that await each other, down to the leaf. Each
//! distinct stack is stored once, and the task has a pointer to it.
//!
//! # Which stack comes first
//!
//! Problem: a poll may leave several stacks. `select!`, `join!` and `timeout` poll one future after the other and await
//! all of them: the first stack says most, as the last stack of a `timeout` is its timer. But an async function that
//! has progressed in the middle of the poll leaves the stack of a completed await: then only the last stack is current.
//!
//! Scheme: a poll that begins without a wake finds the task where it was, so all stacks that it leaves are awaited at
//! once. The last stack then stores a reference to the first one ([`Beside`]). Where a task has both later, the first
//! one is shown; without this reference, the last one. Code that polls a future with its own clone of the waker leaves
//! a stack too, where it clones the waker; a stack left by a clone of a clone has precedence over those. (`select!`
//! begins with any of its branches, each at several places of the compiled code: some of its tasks show one branch
//! first and some another.)
//!
//! # Locks
//!
//! None: see [`crate::stack::table`].

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use super::noted::{Noted, NotedSeen};
use crate::counters::{CountedProfile, Counter};
use crate::goroutine::wait_reason::WaitReason;
use crate::hook::Hook;
use crate::labels;
use crate::stack::kept::{Frames, NotedStack};
use crate::stack::scratch::with_frames;
use crate::stack::table::{Entry, Table};
use crate::stack::{Stack, capture, with_room};

/// The number of distinct stacks that are stored.
const MAX_STACKS: usize = 1 << 16;

/// Awaits beyond this number.
static OVER_LIMIT: Counter = Counter::new(&[CountedProfile::Goroutine, CountedProfile::Block], || {
    format!(
        "times a task awaited at a stack beyond the {MAX_STACKS} distinct ones that are kept, which is not in profiles"
    )
});

/// The number of stacks stored per task: one for each branch of a `select!` or `join!`.
pub const MAX_BRANCHES: usize = 5;

lazy_under_loom! {
    static STACKS: Table<Frames, Beside> = Table::new(MAX_STACKS);
}

/// The data stored beside a stack.
#[derive(Default)]
pub(crate) struct Beside {
    /// The first stack of a poll that left this stack last, and found the task waiting where it waited before.
    first: NotedStack<Self>,
    /// Whether a leaf left this stack by cloning a clone of the waker, which the code that polls the leaf had made.
    is_handed: AtomicBool,
    /// The number of the wait reason that the program declares for this stack; 0 for none.
    declared_reason: AtomicU8,
}

impl Beside {
    /// Returns the wait reason that the program declares.
    #[inline]
    pub(super) fn declared_reason(&self) -> Option<WaitReason> {
        WaitReason::from_number(self.declared_reason.load(Ordering::Relaxed))
    }
}

/// A stored stack of a task.
pub(crate) type TaskStack = Entry<Frames, Beside>;

pub(super) fn open() {
    STACKS.open();
}

/// Returns the caller's stack. Returns `None` and counts the loss where there is no room for it.
#[inline(never)]
pub(super) fn here() -> Option<&'static TaskStack> {
    // The guard restores `errno`.
    let _hook = Hook::enter();
    with_room(intern_here).flatten()
}

#[inline(never)]
fn intern_here() -> Option<&'static TaskStack> {
    let stack = with_frames(|frames| {
        let depth = capture(frames);
        STACKS.intern(Frames, &frames[..depth]).ok()
    });
    if stack.is_none() {
        OVER_LIMIT.add();
    }
    stack
}

/// The last stacks that the last poll has left, each once, in the order in which they were left. Written by the thread
/// that polls; readers compare the number of polls before and after.
#[derive(Default)]
pub(super) struct AwaitStacks {
    /// The number of polls at the time when the task was last asked to be polled for its stack.
    asked: AtomicU32,
    noted: Noted,
    stacks: [NotedStack<Beside>; MAX_BRANCHES],
}

impl AwaitStacks {
    /// Clears the stacks for a new task.
    pub(super) fn reset(&self) {
        self.asked.store(u32::MAX, Ordering::Release);
        self.noted.set(NotedSeen::NOTHING);
    }

    /// Returns what is noted of the last poll.
    #[inline]
    pub(super) fn noted(&self) -> &Noted {
        &self.noted
    }

    /// Notes that the task is asked, after `polls` polls, to be polled for its stack.
    pub(super) fn ask(&self, polls: u32) {
        self.asked.store(polls, Ordering::Release);
    }

    /// Returns whether the task was asked and not polled since.
    pub(super) fn was_asked(&self, polls: u32) -> bool {
        self.asked.load(Ordering::Acquire) == polls
    }

    /// Returns whether the last poll has left no stack.
    pub(super) fn is_empty(&self) -> bool {
        self.noted.get().stacks() == 0
    }

    /// Adds the caller's stack, at which a leaf clones the waker. `is_handed` says that the waker is itself a clone;
    /// `declared_reason` is the number of the reason that the program declares, or 0. Called by the thread that polls the task.
    /// Returns whether this stack is the first one of the poll.
    pub(super) fn add_here(&self, is_handed: bool, declared_reason: u8) -> bool {
        let Some(stack) = here() else { return false };
        stack.record.is_handed.store(is_handed, Ordering::Relaxed);
        stack.record.declared_reason.store(declared_reason, Ordering::Relaxed);
        let noted = self.noted.get();
        let count = noted.stacks();
        let is_this =
            |noted: &NotedStack<Beside>| noted.get().is_some_and(|noted| core::ptr::eq(noted, stack));
        // Removes the same stack of a leaf that is polled again in the same poll, or the oldest one if there is no
        // room.
        let gone = self.stacks[..count].iter().position(is_this).or((count == MAX_BRANCHES).then_some(0));
        let last = match gone {
            Some(gone) => {
                for at in gone + 1..count {
                    self.stacks[at - 1].set(self.stacks[at].get());
                }
                count - 1
            }
            None => count,
        };
        self.stacks[last].set(Some(stack));
        self.noted.set_stacks(last as u8 + 1, labels::current_id());
        self.left().first().is_some_and(|first| core::ptr::eq(first, stack))
    }

    /// Links the last stack to the first: the task waits where it waited before this poll, so all stacks are awaited at
    /// once.
    pub(super) fn note_as_one(&self) {
        let left = self.left();
        if let Some(last) = left.iter().last() {
            last.record.first.set(left.first());
        }
    }

    /// Returns whether the last poll has left this stack.
    pub(super) fn has(&self, stack: &TaskStack) -> bool {
        self.left().iter().any(|left| core::ptr::eq(left, stack))
    }

    /// Returns the stacks in the order in which they are shown.
    pub(super) fn get(&self) -> Awaits {
        let mut awaits = self.left();
        awaits.order();
        awaits
    }

    /// Returns the stacks in the order in which they were left.
    pub(super) fn left(&self) -> Awaits {
        let count = self.noted.get().stacks().min(MAX_BRANCHES);
        let mut awaits = Awaits::default();
        for (stack, noted) in awaits.stacks.iter_mut().zip(&self.stacks[..count]) {
            *stack = noted.get();
        }
        awaits
    }
}

/// The stacks that a poll has left; unused entries at the end are `None`. A fixed array, not allocated: a snapshot
/// reads one for each task.
#[derive(Default)]
pub(crate) struct Awaits {
    stacks: [Option<&'static TaskStack>; MAX_BRANCHES],
    is_last_first: bool,
}

impl Awaits {
    fn iter(&self) -> impl Iterator<Item = &'static TaskStack> {
        self.stacks.iter().map_while(|stack| *stack)
    }

    /// Returns the stacks, then `None`.
    pub(super) fn all(&self) -> [Option<&'static TaskStack>; MAX_BRANCHES] {
        self.stacks
    }

    /// Returns, from stacks in the order in which they were left, the one shown first if all are awaited at once.
    fn first(&self) -> Option<&'static TaskStack> {
        let is_handed = |stack: &&TaskStack| stack.record.is_handed.load(Ordering::Relaxed);
        self.iter().find(is_handed).or_else(|| self.iter().next())
    }

    /// Returns whether the stack that is shown first is the one that was left last.
    pub(super) fn is_last_first(&self) -> bool {
        self.is_last_first
    }

    /// Reorders the stacks from the order in which they were left to the order in which they are shown.
    fn order(&mut self) {
        let count = self.iter().count();
        let Some(first) = self.iter().last().map(|last| last.record.first.get()) else { return };
        let is_first = |stack: &TaskStack| first.is_some_and(|first| core::ptr::eq(stack, first));
        let at = self.iter().position(is_first);
        self.is_last_first = at.is_none_or(|at| at == count - 1);
        match at {
            Some(at) => self.stacks[..=at].rotate_right(1),
            None => self.stacks[..count].reverse(),
        }
    }

    /// Returns the stack that is shown first.
    pub(crate) fn main(&self) -> Option<&'static TaskStack> {
        self.stacks[0]
    }

    /// Returns the other stacks. Allocates if there are any.
    pub(crate) fn others(&self) -> Vec<Stack<'static>> {
        let others = || self.stacks[1..].iter().flatten();
        // A growing vector would allocate room for four at once.
        let mut all = Vec::with_capacity(others().count());
        all.extend(others().map(|stack| stack.captured()));
        all
    }
}
