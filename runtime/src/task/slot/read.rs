//! What others read of a task, while it may be polled, end, and be followed by another one in its slot.

use core::sync::atomic::Ordering;

use super::{Doing, Task, identified};
use crate::clock;
use crate::labels::LabelSetId;
use crate::stack::Stack;
use crate::start::Start;
use crate::task::await_stack::Awaits;
use crate::task::noted::{Flag, NotedSeen};

/// Tries of a reader under whom tasks are polled.
const TRIES: usize = 8;

/// What is known of a task as of one moment.
pub(crate) struct Seen {
    pub(crate) id: u64,
    pub(crate) doing: Doing,
    pub(crate) since: u64,
    /// What is noted of the last poll.
    pub(in crate::task) noted: NotedSeen,
    pub(crate) labels: LabelSetId,
    pub(crate) awaits: Awaits,
    /// The labels under which it awaits what is shown first, if it is known where.
    pub(crate) await_labels: Option<LabelSetId>,
    pub(crate) name: String,
    pub(crate) start: Option<Start>,
    pub(crate) creator: u64,
    pub(crate) created_by: Option<Stack<'static>>,
}

impl Seen {
    /// There may be a waker to wake it by.
    pub(crate) fn has_waker(&self) -> bool {
        self.doing.has_waker() || self.noted.has(Flag::IsForeign)
    }

    /// As of the tick `now`, it has waited for `limit` ticks, and no waker is left to wake it by.
    pub(crate) fn is_leaked(&self, limit: u64, now: u64) -> bool {
        let waits = self.doing.waits() && !self.noted.has(Flag::HasPanicked);
        waits && !self.has_waker() && clock::since(self.since, now) >= limit
    }
}

impl Task {
    /// Whether a task of this process is in the slot.
    pub(crate) fn is_in(&self, forks: u32) -> bool {
        let id = self.id.load(Ordering::Acquire);
        id != 0 && id == identified(id, forks)
    }

    /// Its labels, apart from those of what it awaits: while it is polled, those that are current.
    pub fn labels(&self) -> LabelSetId {
        LabelSetId::from_bits(self.labels.load(Ordering::Acquire).into())
    }

    /// The labels under which the stack was left that is shown first, if there is one.
    pub(super) fn await_labels(&self, awaits: &Awaits) -> Option<LabelSetId> {
        let first = || LabelSetId::from_bits(self.first_labels.load(Ordering::Acquire).into());
        let last = || self.awaits.noted().get().labels();
        awaits.main().map(|_| if awaits.is_last_first() { last() } else { first() })
    }

    /// Whether it waits, and none of our wakers is left. For those who look for such tasks among many.
    pub(crate) fn waits_without_waker(&self) -> bool {
        let doing = self.doing();
        doing.waits() && !doing.has_waker()
    }

    /// The task with this number, of one piece, if it is still in this slot and in this process.
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
                creator: self.creator.load(Ordering::Acquire),
                created_by: self.created_by.get().map(|stack| stack.captured()),
            };
            if self.id.load(Ordering::Relaxed) != id {
                continue;
            }
            if self.doing() == doing {
                return Some(seen);
            }
            if attempt == TRIES {
                // It is polled all the time: where it awaits is not known for any moment.
                seen.awaits = Awaits::default();
                seen.await_labels = None;
                return Some(seen);
            }
        }
        None
    }
}
