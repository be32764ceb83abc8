//! What others read of a task, while it may be polled, end, and be followed by another one in its slot.

use core::sync::atomic::Ordering;

use super::{Doing, Task, identified};
use crate::goroutine::Start;
use crate::labels::LabelSetId;
use crate::stack::Stack;
use crate::task::await_stack::Awaits;

/// Tries of a reader under whom tasks are polled.
const TRIES: usize = 8;

/// What is known of a task as of one moment.
pub(in crate::task) struct Seen {
    pub(in crate::task) id: u64,
    pub(in crate::task) doing: Doing,
    pub(in crate::task) since: u64,
    pub(in crate::task) labels: LabelSetId,
    pub(in crate::task) awaits: Awaits,
    /// The labels under which it awaits, if it is known where.
    pub(in crate::task) await_labels: Option<LabelSetId>,
    pub(in crate::task) name: String,
    pub(in crate::task) start: Option<Start>,
    pub(in crate::task) creator: u64,
    pub(in crate::task) created_by: Option<Stack<'static>>,
}

impl Task {
    /// Whether a task of this process is in the slot.
    pub(in crate::task) fn is_in(&self, forks: u32) -> bool {
        let id = self.id.load(Ordering::Acquire);
        id != 0 && id == identified(id, forks)
    }

    /// The task with this number, of one piece, if it is still in this slot and in this process.
    pub(in crate::task) fn read(&self, number: u64, forks: u32) -> Option<Seen> {
        let id = identified(number, forks);
        for attempt in 1..=TRIES {
            if self.id.load(Ordering::Acquire) != id {
                return None;
            }
            let doing = self.doing();
            let mut seen = Seen {
                id: number,
                doing,
                since: self.since.load(Ordering::Acquire),
                labels: LabelSetId::from_bits(self.labels.load(Ordering::Acquire)),
                awaits: self.awaits.get(),
                await_labels: self.awaits.labels(),
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
