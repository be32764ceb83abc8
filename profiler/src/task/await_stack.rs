//! Where a task awaits: the stacks at which leaf futures cloned its waker in the last poll.
//!
//! A task that waits has no stack of its own: its poll has returned. But when a leaf future suspends, it clones the waker, deep
//! inside the poll, and the stack there is the chain of async functions that await each other, down to the leaf. Each such
//! stack is kept once, and the task has a pointer to it.
//!
//! # Locks
//!
//! None: see [`crate::stack::table`].

use core::sync::atomic::{AtomicU32, Ordering};

use super::noted::{Noted, NotedSeen};
use crate::counters::COUNTERS;
use crate::labels::{self, LabelSetId};
use crate::sampling::Hook;
use crate::stack::kept::{Frames, KeptStack, NotedStack};
use crate::stack::table::Table;
use crate::stack::{MAX_STACK, Stack, capture, with_room};

/// Distinct stacks that are kept.
const MAX_STACKS: usize = 1 << 16;

/// Stacks of a task that are kept: of so many branches of a `select!` or `join!`.
pub const MAX_BRANCHES: usize = 6;

#[cfg(not(loom))]
static STACKS: Table<Frames, ()> = Table::new(MAX_STACKS);
#[cfg(loom)]
static STACKS: std::sync::LazyLock<Table<Frames, ()>> = std::sync::LazyLock::new(|| Table::new(MAX_STACKS));

pub(super) fn open() {
    STACKS.open();
}

/// The caller's stack. `None`, counted, where there is no room for it.
#[inline(never)]
pub(super) fn here() -> Option<&'static KeptStack> {
    // Leaves `errno` as it was.
    let _hook = Hook::enter();
    with_room(intern_here).flatten()
}

#[inline(never)]
fn intern_here() -> Option<&'static KeptStack> {
    let mut frames = [0; MAX_STACK];
    let depth = capture(&mut frames);
    let stack = STACKS.intern(Frames, &frames[..depth]).ok();
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
    stacks: [NotedStack; MAX_BRANCHES],
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

    /// A leaf clones the waker here. By the thread that polls the task.
    pub(super) fn add_here(&self) {
        let Some(stack) = here() else { return };
        let noted = self.noted.get();
        let count = noted.stacks();
        let is_this = |noted: &NotedStack| noted.get().is_some_and(|noted| core::ptr::eq(noted, stack));
        // A leaf that is polled again in the same poll; or the oldest, if there is no room.
        let gone = self.stacks[..count].iter().position(is_this).or((count == MAX_BRANCHES).then_some(0));
        let last = match gone {
            Some(gone) => {
                for at in gone + 1..count {
                    self.stacks[at - 1].note(self.stacks[at].get());
                }
                count - 1
            }
            None => count,
        };
        self.stacks[last].note(Some(stack));
        self.noted.set_stacks(last as u8 + 1, labels::current_id());
    }

    /// The labels under which the last one was left, if there is one.
    pub(super) fn labels(&self) -> Option<LabelSetId> {
        let noted = self.noted.get();
        (noted.stacks() != 0).then(|| noted.labels())
    }

    /// The last one.
    pub(super) fn last(&self) -> Option<&'static KeptStack> {
        let count = self.noted.get().stacks().min(MAX_BRANCHES);
        self.stacks.get(count.checked_sub(1)?)?.get()
    }

    /// Those there are, the last one first: what a future was polled for last is what it waits for, where an earlier leaf of the
    /// same poll may be over.
    pub(super) fn get(&self) -> Awaits {
        let count = self.noted.get().stacks().min(MAX_BRANCHES);
        let mut awaits = Awaits::default();
        for (stack, noted) in awaits.0.iter_mut().zip(self.stacks[..count].iter().rev()) {
            *stack = noted.get();
        }
        awaits
    }
}

/// The stacks that a poll has left, those there are first. Without memory of the program's allocator: a snapshot reads one for
/// each task.
#[derive(Default)]
pub(super) struct Awaits([Option<&'static KeptStack>; MAX_BRANCHES]);

impl Awaits {
    /// The last one that was left.
    pub(super) fn last(&self) -> Option<Stack<'static>> {
        Some(self.0[0]?.captured())
    }

    /// The others. It allocates if there are any.
    pub(super) fn others(&self) -> Vec<Stack<'static>> {
        let others = || self.0[1..].iter().flatten();
        // A vector that grows takes room for four at once.
        let mut all = Vec::with_capacity(others().count());
        all.extend(others().map(|stack| stack.captured()));
        all
    }
}
