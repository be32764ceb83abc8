//! How often a task was polled, and whether it is polled now.

use crate::primitive::{AtomicU32, Ordering};

/// Written by the thread that polls the task, with plain stores: a locked instruction at both ends of a poll would cost some
/// nanoseconds more.
///
/// ```text
///   31              1 0
///   ┌────────────────┬────────┐
///   │ polls begun    │ INSIDE │
///   └────────────────┴────────┘
/// ```
#[derive(Default)]
pub(super) struct Polls(AtomicU32);

const INSIDE: u32 = 1;
const POLL: u32 = 2;

/// Of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PollsSeen(u32);

/// The number of polls before this one.
pub(super) fn before(polls: u32) -> u32 {
    polls.wrapping_sub(1) % (u32::MAX / POLL + 1)
}

impl PollsSeen {
    /// The number of polls that have begun. Wraps at 2^31.
    #[inline]
    pub(super) fn count(self) -> u32 {
        self.0 / POLL
    }

    /// A poll goes on.
    #[inline]
    pub(super) fn is_inside(self) -> bool {
        self.0 & INSIDE != 0
    }
}

impl Polls {
    /// A task begins that was not polled yet.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }

    #[inline]
    pub(super) fn get(&self) -> PollsSeen {
        PollsSeen(self.0.load(Ordering::Acquire))
    }

    /// A poll begins, by the owner of the future. Returns what was before.
    #[inline]
    pub(super) fn enter(&self) -> PollsSeen {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_add(POLL) | INSIDE, Ordering::Release);
        PollsSeen(before)
    }

    /// The future is dropped, which is no poll.
    pub(super) fn enter_end(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) | INSIDE, Ordering::Release);
    }

    /// It is over.
    #[inline]
    pub(super) fn leave(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) & !INSIDE, Ordering::Release);
    }
}
