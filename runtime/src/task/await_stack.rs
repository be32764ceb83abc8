//! Where a task awaits: the stacks at which leaf futures cloned its waker in the last poll.
//!
//! A task that waits has no stack of its own: its poll has returned. But when a leaf future suspends, it clones the waker, deep
//! inside the poll, and the stack there is the chain of async functions that await each other, down to the leaf. Each such
//! stack is kept once, and the task has a pointer to it.
//!
//! # Which one comes first
//!
//! Problem: a poll may leave several stacks. `select!`, `join!` and `timeout` poll one future after the other and await all of them:
//! the first says most, as the last one of a `timeout` is its timer. But an async function that has got on in the middle of the poll
//! leaves the stack of an await that is over: then only the last one is true.
//!
//! Scheme: a poll before which nothing has woken the task finds it where it was, so all stacks that it leaves are awaited at once.
//! The last one notes the first one then ([`Beside`]). Where both are found in a task later, the first one is shown; without such a
//! note, the last one. What polls a future with its own clone of the waker leaves a stack too, where it clones it; a stack that was
//! left by a clone of a clone goes before those. (`select!` begins with any of its branches, each at several places of the compiled
//! code: of its tasks some show this branch first and some another.)
//!
//! # Locks
//!
//! None: see [`crate::stack::table`].

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use super::noted::{Noted, NotedSeen};
use crate::counters::COUNTERS;
use crate::hook::Hook;
use crate::labels;
use crate::stack::kept::{Frames, NotedStack};
use crate::stack::scratch::with_frames;
use crate::stack::table::{Entry, Table};
use crate::stack::{Stack, capture, with_room};
use crate::wait_reason::WaitReason;

/// Distinct stacks that are kept.
const MAX_STACKS: usize = 1 << 16;

/// Stacks of a task that are kept: of so many branches of a `select!` or `join!`.
pub const MAX_BRANCHES: usize = 5;

lazy_under_loom! {
    static STACKS: Table<Frames, Beside> = Table::new(MAX_STACKS);
}

/// What is noted beside a stack.
#[derive(Default)]
pub(crate) struct Beside {
    /// The stack that was left first by a poll that has left this one last, and found the task waiting where it waited before.
    first: NotedStack<Self>,
    /// It was left by one that was handed a clone of the waker, by what polls it.
    is_handed: AtomicBool,
    /// The number of the reason that the program tells there; 0 for none.
    told: AtomicU8,
}

impl Beside {
    /// The reason that the program tells.
    #[inline]
    pub(super) fn told(&self) -> Option<WaitReason> {
        WaitReason::from_number(self.told.load(Ordering::Relaxed))
    }
}

/// A stack of a task.
pub(crate) type TaskStack = Entry<Frames, Beside>;

pub(super) fn open() {
    STACKS.open();
}

/// The caller's stack. `None`, counted, where there is no room for it.
#[inline(never)]
pub(super) fn here() -> Option<&'static TaskStack> {
    // Leaves `errno` as it was.
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
        COUNTERS.task_stacks_over_limit.add();
    }
    stack
}

/// The stacks that the last poll has left: the last ones, each once, in the order in which they were left. Written by the thread
/// that polls; read by others, who compare the number of polls before and after.
#[derive(Default)]
pub(super) struct AwaitStacks {
    /// The number of polls there had been when the task was last asked to be polled for its stack.
    asked: AtomicU32,
    noted: Noted,
    stacks: [NotedStack<Beside>; MAX_BRANCHES],
}

impl AwaitStacks {
    /// A task begins.
    pub(super) fn reset(&self) {
        self.asked.store(u32::MAX, Ordering::Release);
        self.noted.set(NotedSeen::NOTHING);
    }

    /// What is noted of the last poll.
    #[inline]
    pub(super) fn noted(&self) -> &Noted {
        &self.noted
    }

    /// The task is to be polled for its stack, after so many polls.
    pub(super) fn ask(&self, polls: u32) {
        self.asked.store(polls, Ordering::Release);
    }

    /// Whether it was, and not polled since.
    pub(super) fn was_asked(&self, polls: u32) -> bool {
        self.asked.load(Ordering::Acquire) == polls
    }

    /// Whether the last poll has left none.
    pub(super) fn is_empty(&self) -> bool {
        self.noted.get().stacks() == 0
    }

    /// A leaf clones the waker here, which `is_handed` says is a clone itself; `told` is the number of the reason that the program
    /// tells, or 0. By the thread that polls the task.
    /// Returns whether it is the first one of this poll.
    pub(super) fn add_here(&self, is_handed: bool, told: u8) -> bool {
        let Some(stack) = here() else { return false };
        stack.record.is_handed.store(is_handed, Ordering::Relaxed);
        stack.record.told.store(told, Ordering::Relaxed);
        let noted = self.noted.get();
        let count = noted.stacks();
        let is_this =
            |noted: &NotedStack<Beside>| noted.get().is_some_and(|noted| core::ptr::eq(noted, stack));
        // A leaf that is polled again in the same poll; or the oldest, if there is no room.
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

    /// The task waits where it waited before this poll: all that the poll has left is awaited at once.
    pub(super) fn note_as_one(&self) {
        let left = self.left();
        if let Some(last) = left.iter().last() {
            last.record.first.set(left.first());
        }
    }

    /// Whether the last poll has left this one.
    pub(super) fn has(&self, stack: &TaskStack) -> bool {
        self.left().iter().any(|left| core::ptr::eq(left, stack))
    }

    /// Those there are, in the order in which they are shown.
    pub(super) fn get(&self) -> Awaits {
        let mut awaits = self.left();
        awaits.order();
        awaits
    }

    /// Those there are, in the order in which they were left.
    pub(super) fn left(&self) -> Awaits {
        let count = self.noted.get().stacks().min(MAX_BRANCHES);
        let mut awaits = Awaits::default();
        for (stack, noted) in awaits.stacks.iter_mut().zip(&self.stacks[..count]) {
            *stack = noted.get();
        }
        awaits
    }
}

/// The stacks that a poll has left, those there are first. Without memory of the program's allocator: a snapshot reads one for
/// each task.
#[derive(Default)]
pub(crate) struct Awaits {
    stacks: [Option<&'static TaskStack>; MAX_BRANCHES],
    is_last_first: bool,
}

impl Awaits {
    fn iter(&self) -> impl Iterator<Item = &'static TaskStack> {
        self.stacks.iter().map_while(|stack| *stack)
    }

    /// Those there are, then none.
    pub(super) fn all(&self) -> [Option<&'static TaskStack>; MAX_BRANCHES] {
        self.stacks
    }

    /// In the order in which they were left: the one that is shown first, if all are awaited at once.
    fn first(&self) -> Option<&'static TaskStack> {
        let is_handed = |stack: &&TaskStack| stack.record.is_handed.load(Ordering::Relaxed);
        self.iter().find(is_handed).or_else(|| self.iter().next())
    }

    /// Whether the one that is shown first is the one that was left last.
    pub(super) fn is_last_first(&self) -> bool {
        self.is_last_first
    }

    /// From the order in which they were left to that in which they are shown.
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

    /// The one that is shown first.
    pub(crate) fn main(&self) -> Option<&'static TaskStack> {
        self.stacks[0]
    }

    /// The others. It allocates if there are any.
    pub(crate) fn others(&self) -> Vec<Stack<'static>> {
        let others = || self.stacks[1..].iter().flatten();
        // A vector that grows takes room for four at once.
        let mut all = Vec::with_capacity(others().count());
        all.extend(others().map(|stack| stack.captured()));
        all
    }
}
