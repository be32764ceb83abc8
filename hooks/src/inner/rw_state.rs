//! The word of the reader-writer lock, and the rules of who may have it.
//!
//! ```text
//!   readers … │ WRITER │ UPGRADABLE │ DRAINING │ PARKED        from the highest bit to the lowest
//! ```
//!
//! - A writer first sets `WRITER`, which keeps new readers out, so that it cannot starve, then waits for the
//!   readers that are in to leave (*drains* them).
//! - An upgradable reader counts as a reader and sets `UPGRADABLE`, which keeps writers and other upgradable readers
//!   out.
//!
//! The states and their order are parking_lot's.

use crate::inner::queue::WaiterKind;
use crate::inner::wait::WaitReason;

/// Threads that want the lock are in the queue, or about to be. Cleared only with the queue locked.
pub(super) const PARKED: usize = 1;
/// The writer is in the queue, or about to be, until the last reader leaves.
pub(super) const DRAINING: usize = 2;
/// An upgradable reader has the lock.
pub(super) const UPGRADABLE: usize = 4;
/// A writer has the lock, or waits for readers to leave.
pub(super) const WRITER: usize = 8;
/// One reader.
pub(super) const READER: usize = 16;
/// All readers.
pub(super) const READERS: usize = !(READER - 1);

/// The kind of the waiter that drains; the kinds of the others are [`Want`]s.
pub(super) const DRAINS: WaiterKind = 4;

/// How a thread wants the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// As a reader.
    Read = 0,
    /// As a reader that may hold the lock already, and so does not wait for a waiting writer.
    ReadAgain = 1,
    /// As the upgradable reader.
    Upgradable = 2,
    /// As the writer.
    Write = 3,
}

impl Want {
    /// What the thread adds to the state.
    pub(super) const fn adds(self) -> usize {
        match self {
            Self::Read | Self::ReadAgain => READER,
            Self::Upgradable => READER | UPGRADABLE,
            Self::Write => WRITER,
        }
    }

    /// The state after the thread has taken the lock.
    pub(super) fn added_to(self, state: usize) -> usize {
        // A program that leaks guards can overflow it, with 32-bit words even soon.
        state.checked_add(self.adds()).expect("too many readers of one RwLock")
    }

    /// The inverse of `as WaiterKind`. `None` for [`DRAINS`].
    pub(super) fn of_kind(kind: WaiterKind) -> Option<Self> {
        [Self::Read, Self::ReadAgain, Self::Upgradable, Self::Write].get(kind).copied()
    }

    /// Whether the thread has to wait.
    pub(super) fn is_kept_out(self, state: usize) -> bool {
        match self {
            Self::Read => state & WRITER != 0,
            Self::ReadAgain => state & WRITER != 0 && state & READERS == 0,
            Self::Upgradable | Self::Write => state & (WRITER | UPGRADABLE) != 0,
        }
    }

    /// The reason of its wait.
    pub(super) fn reason(self) -> WaitReason {
        match self {
            Self::Read | Self::ReadAgain | Self::Upgradable => WaitReason::RwLockRead,
            Self::Write => WaitReason::RwLockWrite,
        }
    }
}
