//! Reads of a task by other threads, while it may be polled, end, and be followed by another task in its slot.

use core::sync::atomic::Ordering;

use super::{Doing, NUMBER, Task, identified};
use crate::clock;
use crate::goroutine::start::Start;
use crate::labels::LabelSetId;
use crate::stack::Stack;
use crate::task::await_stack::Awaits;
use crate::task::noted::{Flag, NotedSeen};

/// Tries of a reader while the task keeps being polled.
const TRIES: usize = 8;

/// A task, as read at one moment.
pub(crate) struct Seen {
    pub(crate) id: u64,
    pub(crate) doing: Doing,
    pub(crate) since: u64,
    /// The notes about the last poll.
    pub(in crate::task) noted: NotedSeen,
    pub(crate) labels: LabelSetId,
    pub(crate) awaits: Awaits,
    /// The labels under which it left the stack that is shown first, if there is one.
    pub(crate) await_labels: Option<LabelSetId>,
    pub(crate) name: String,
    pub(crate) start: Option<Start>,
    pub(crate) creator: u64,
    pub(crate) created_by: Option<Stack<'static>>,
}

impl Seen {
    /// Returns whether there may be a waker by which to wake it.
    pub(crate) fn has_waker(&self) -> bool {
        self.doing.has_waker() || self.noted.has(Flag::IsForeign)
    }

    /// Returns whether at the tick `now` it has waited for `limit` ticks, and no waker is left to wake it.
    pub(crate) fn is_leaked(&self, limit: u64, now: u64) -> bool {
        let waits = self.doing.waits() && !self.noted.has(Flag::HasPanicked);
        waits && !self.has_waker() && clock::since(self.since, now) >= limit
    }
}

impl Task {
    /// Returns whether the slot has a task of this process.
    pub(crate) fn is_in(&self, forks: u32) -> bool {
        let id = self.id.load(Ordering::Acquire);
        id != 0 && id == identified(id, forks)
    }

    /// Returns its labels, apart from those of its await stacks; while it is polled, the current ones.
    pub fn labels(&self) -> LabelSetId {
        LabelSetId::from_bits(self.labels.load(Ordering::Acquire).into())
    }

    /// Returns the labels under which the stack that is shown first was left, if there is one.
    pub(super) fn await_labels(&self, awaits: &Awaits) -> Option<LabelSetId> {
        let first = || LabelSetId::from_bits(self.first_labels.load(Ordering::Acquire).into());
        let last = || self.awaits.noted().get().labels();
        awaits.main().map(|_| if awaits.is_last_first() { last() } else { first() })
    }

    /// Returns whether it waits, and none of our wakers is left. A cheap filter for a search among many tasks.
    pub(crate) fn waits_without_waker(&self) -> bool {
        let doing = self.doing();
        doing.waits() && !doing.has_waker()
    }

    /// Returns a consistent record of task `number`, if it is still in this slot and in this process.
    pub(crate) fn read(&self, number: u64, forks: u32) -> Option<Seen> {
        let id = identified(number, forks);
        if number == 0 {
            return None;
        }
        for attempt in 1..=TRIES {
            if self.id.load(Ordering::Acquire) != id {
                return None;
            }
            let doing = self.doing();
            let awaits = self.awaits.get();
            let mut seen = Seen {
                id: number,
                doing,
                noted: self.awaits.noted().get(),
                since: self.since.load(Ordering::Acquire),
                labels: self.labels(),
                await_labels: self.await_labels(&awaits),
                awaits,
                name: self.name.with(str::to_owned),
                start: self.start.get(),
                creator: self.creator.load(Ordering::Acquire) & NUMBER,
                created_by: self.created_by.get().map(|stack| stack.captured()),
            };
            if self.id.load(Ordering::Relaxed) != id {
                continue;
            }
            if self.doing() == doing {
                return Some(seen);
            }
            if attempt == TRIES {
                // The task is polled all the time: where it awaits is not known for any one moment.
                seen.awaits = Awaits::default();
                seen.await_labels = None;
                return Some(seen);
            }
        }
        None
    }
}
