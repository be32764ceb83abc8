//! Notes about a task's last poll, in one word, so that the next poll needs a single load to learn whether there are
//! any.
//!
//! ```text
//!   31            16 15     13 12      6 5      0
//!   ┌───────────────┬─────────┬─────────┬────────┐
//!   │ labels of the │ declared│ flags   │ stacks │
//!   │ last stack    │ reason  │         │        │
//!   └───────────────┴─────────┴─────────┴────────┘
//! ```

use core::sync::atomic::{AtomicU32, Ordering};

use crate::goroutine::wait_reason::WaitReason;
use crate::labels::LabelSetId;

/// Reasons that a program may declare, by their numbers from 1.
const DECLARABLE: [WaitReason; 7] = [
    WaitReason::Sync,
    WaitReason::CondWait,
    WaitReason::ChanSend,
    WaitReason::ChanReceive,
    WaitReason::Select,
    WaitReason::Net,
    WaitReason::Sleep,
];
const REASON_SHIFT: u32 = 13;
const REASON_MASK: u32 = 0b111 << REASON_SHIFT;

/// The word. Written by the thread that polls the task; a flag that another thread adds during the poll is not lost.
#[derive(Default)]
pub(super) struct Noted(AtomicU32);

/// The word, as of one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NotedSeen(u32);

/// Facts about a poll.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Flag {
    /// The block profile leaves out the wait after this poll.
    IsLeftOut = 1 << 6,
    /// The task notes where its waker is cloned in this poll.
    NotesStacks = 1 << 7,
    /// The poll began without a wake: as far as is known, the task still waits.
    WaitsOn = 1 << 8,
    /// The task was woken before the poll was over.
    WokenInside = 1 << 9,
    /// The poll ended by a panic.
    HasPanicked = 1 << 10,
    /// The clones of the waker in this poll carry the other of the two alternating vtables.
    OtherSide = 1 << 11,
    /// This poll or an earlier one handed out a waker that is not ours, so wakes of the task are not seen. Kept until
    /// the task ends, as that waker may be used at any time.
    IsForeign = 1 << 12,
}

impl Noted {
    #[inline]
    pub(super) fn get(&self) -> NotedSeen {
        NotedSeen(self.0.load(Ordering::Acquire))
    }

    /// Sets the word. Must not be called between the moment a poll hands out its waker and the end of the poll.
    #[inline]
    pub(super) fn set(&self, noted: NotedSeen) {
        self.0.store(noted.0, Ordering::Release);
    }

    pub(super) fn add(&self, flag: Flag) {
        self.0.fetch_or(flag as u32, Ordering::AcqRel);
    }

    /// Notes the reason that the program declares for the poll. Two different reasons become `Select`.
    pub(super) fn declare(&self, reason: WaitReason) {
        let declared = match self.get().declared_reason() {
            Some(before) if before != reason => WaitReason::Select,
            _ => reason,
        };
        let number = DECLARABLE.iter().position(|&one| one == declared).map_or(0, |at| at as u32 + 1);
        let tell = |noted| Some(noted & !REASON_MASK | number << REASON_SHIFT);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, tell);
    }

    /// Sets the number of stacks, and the labels of the last one.
    pub(super) fn set_stacks(&self, stacks: u8, labels: LabelSetId) {
        const FLAGS: u32 = 0xffc0;
        let stacks = labels.bits() << 16 | u32::from(stacks);
        let _ =
            self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |noted| Some(stacks | noted & FLAGS));
    }
}

impl NotedSeen {
    pub(super) const NOTHING: Self = Self(0);

    /// Returns whether the last poll has left nothing.
    #[inline]
    pub(super) fn is_nothing(self) -> bool {
        self.with(Flag::IsForeign, false) == Self::NOTHING
    }

    /// Returns whether the block profile leaves out the wait after the last poll, and the poll has left nothing else.
    #[inline]
    pub(super) fn is_left_out(self) -> bool {
        self.with(Flag::OtherSide, false) == Self::NOTHING.with(Flag::IsLeftOut, true)
    }

    #[inline]
    pub(super) fn has(self, flag: Flag) -> bool {
        self.0 & flag as u32 != 0
    }

    #[inline]
    pub(super) fn with(self, flag: Flag, is_set: bool) -> Self {
        if is_set { Self(self.0 | flag as u32) } else { Self(self.0 & !(flag as u32)) }
    }

    /// Returns the wait reason that the program declares.
    #[inline]
    pub(super) fn declared_reason(self) -> Option<WaitReason> {
        DECLARABLE.get(((self.0 & REASON_MASK) >> REASON_SHIFT).checked_sub(1)? as usize).copied()
    }

    /// Returns the number of stacks.
    pub(super) fn stacks(self) -> usize {
        (self.0 & 0x3f) as usize
    }

    /// Returns the labels under which the last stack was left.
    pub(super) fn labels(self) -> LabelSetId {
        LabelSetId::from_bits(self.0 >> 16)
    }
}
