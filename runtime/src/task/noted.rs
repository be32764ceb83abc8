//! What is noted of a task's last poll, in one word, so that a poll finds out with one look whether there is anything.
//!
//! ```text
//!   31            16 15     13 12      8 7      0
//!   ┌───────────────┬─────────┬─────────┬────────┐
//!   │ labels of the │ told    │ flags   │ stacks │
//!   │ last stack    │ reason  │         │        │
//!   └───────────────┴─────────┴─────────┴────────┘
//! ```

use core::sync::atomic::{AtomicU32, Ordering};

use crate::labels::LabelSetId;
use crate::wait_reason::WaitReason;

/// Reasons that a program may tell, by their numbers from 1.
const TOLD: [WaitReason; 7] = [
    WaitReason::Sync,
    WaitReason::CondWait,
    WaitReason::ChanSend,
    WaitReason::ChanReceive,
    WaitReason::Select,
    WaitReason::Net,
    WaitReason::Sleep,
];
const TOLD_SHIFT: u32 = 13;
const TOLD_MASK: u32 = 0b111 << TOLD_SHIFT;

/// Written by the thread that polls the task; what another one adds during the poll is not lost.
#[derive(Default)]
pub(super) struct Noted(AtomicU32);

/// As of one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NotedSeen(u32);

/// What is true of a poll.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Flag {
    /// It began without a wake: as far as is known the task waits on.
    WaitsOn = 1 << 8,
    /// The task was woken before the poll was over.
    WokenInside = 1 << 9,
    /// It ended by a panic.
    HasPanicked = 1 << 10,
    /// Its clones of the waker are of the other side.
    OtherSide = 1 << 11,
    /// A waker was handed out, in this poll or an earlier one, that is not ours: who wakes the task is not seen. Kept until the task
    /// ends, as that waker may be used at any time.
    IsForeign = 1 << 12,
}

impl Noted {
    #[inline]
    pub(super) fn get(&self) -> NotedSeen {
        NotedSeen(self.0.load(Ordering::Acquire))
    }

    /// Not after a poll has handed out its waker, and before it is over.
    #[inline]
    pub(super) fn set(&self, noted: NotedSeen) {
        self.0.store(noted.0, Ordering::Release);
    }

    pub(super) fn add(&self, flag: Flag) {
        self.0.fetch_or(flag as u32, Ordering::AcqRel);
    }

    /// The program says what the poll waits for: with two reasons, for one of several things.
    pub(super) fn tell(&self, reason: WaitReason) {
        let told = match self.get().told() {
            Some(before) if before != reason => WaitReason::Select,
            _ => reason,
        };
        let number = TOLD.iter().position(|&one| one == told).map_or(0, |at| at as u32 + 1);
        let tell = |noted| Some(noted & !TOLD_MASK | number << TOLD_SHIFT);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, tell);
    }

    /// So many stacks, the last one under these labels.
    pub(super) fn set_stacks(&self, stacks: u8, labels: LabelSetId) {
        const FLAGS: u32 = 0xff00;
        let stacks = labels.bits() << 16 | u32::from(stacks);
        let _ =
            self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |noted| Some(stacks | noted & FLAGS));
    }
}

impl NotedSeen {
    pub(super) const NOTHING: Self = Self(0);

    /// Whether the last poll has left nothing.
    #[inline]
    pub(super) fn is_nothing(self) -> bool {
        self.with(Flag::IsForeign, false) == Self::NOTHING
    }

    #[inline]
    pub(super) fn has(self, flag: Flag) -> bool {
        self.0 & flag as u32 != 0
    }

    #[inline]
    pub(super) fn with(self, flag: Flag, is_set: bool) -> Self {
        if is_set { Self(self.0 | flag as u32) } else { Self(self.0 & !(flag as u32)) }
    }

    /// What the program says that it waits for.
    #[inline]
    pub(super) fn told(self) -> Option<WaitReason> {
        TOLD.get(((self.0 & TOLD_MASK) >> TOLD_SHIFT).checked_sub(1)? as usize).copied()
    }

    /// How many stacks there are.
    pub(super) fn stacks(self) -> usize {
        (self.0 as u8).into()
    }

    /// The labels under which the last one was left.
    pub(super) fn labels(self) -> LabelSetId {
        LabelSetId::from_bits(self.0 >> 16)
    }
}
