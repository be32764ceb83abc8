//! The word of the reader-writer lock, and who may get in.
//!
//! ```text
//!   readers … │ WRITER │ UPGRADABLE │ DRAINING │ PARKED        from the highest bit to the lowest
//! ```
//!
//! - A writer first sets `WRITER`, which keeps new readers out, so that it cannot starve, then waits for the
//!   readers that are in to leave (*drains* them).
//! - An upgradable reader counts as a reader and sets `UPGRADABLE`, which keeps writers and its like out.
//!
//! The states and their order are parking_lot's.

use crate::queue::WaiterKind;
use crate::wait::WaitReason;

/// Threads that want in are in the queue, or about to be. Cleared only with the queue locked.
pub(super) const PARKED: usize = 1;
/// The writer is in the queue, or about to be, until the last reader leaves.
pub(super) const DRAINING: usize = 2;
/// An upgradable reader is in.
pub(super) const UPGRADABLE: usize = 4;
/// A writer is in, or waits for readers to leave.
pub(super) const WRITER: usize = 8;
/// One reader.
pub(super) const READER: usize = 16;
/// All readers.
pub(super) const READERS: usize = !(READER - 1);

/// The kind of waiter that drains; those of the others are [`Want`]s.
pub(super) const DRAINS: WaiterKind = 4;

/// How a thread wants in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// As a reader.
    Read = 0,
    /// As a reader that may hold the lock already: past a writer that waits.
    ReadAgain = 1,
    /// As the upgradable reader.
    Upgradable = 2,
    /// As the writer.
    Write = 3,
}

impl Want {
    /// What is added to the state.
    pub(super) const fn adds(self) -> usize {
        match self {
            Self::Read | Self::ReadAgain => READER,
            Self::Upgradable => READER | UPGRADABLE,
            Self::Write => WRITER,
        }
    }

    /// The state with the thread in.
    pub(super) fn added_to(self, state: usize) -> usize {
        // A program that leaks guards can get here, with 32-bit words even soon.
        state.checked_add(self.adds()).expect("too many readers of one RwLock")
    }

    /// `None` for [`DRAINS`].
    pub(super) fn of_kind(kind: WaiterKind) -> Option<Self> {
        [Self::Read, Self::ReadAgain, Self::Upgradable, Self::Write].get(kind).copied()
    }

    /// Whether it has to wait outside.
    pub(super) fn is_kept_out(self, state: usize) -> bool {
        match self {
            Self::Read => state & WRITER != 0,
            Self::ReadAgain => state & WRITER != 0 && state & READERS == 0,
            Self::Upgradable | Self::Write => state & (WRITER | UPGRADABLE) != 0,
        }
    }

    /// What it waits for, then.
    pub(super) fn reason(self) -> WaitReason {
        match self {
            Self::Read | Self::ReadAgain | Self::Upgradable => WaitReason::RwLockRead,
            Self::Write => WaitReason::RwLockWrite,
        }
    }
}
