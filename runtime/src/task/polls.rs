//! The number of polls of a task, and whether it is being polled.

use crate::primitive::{AtomicU32, Ordering};

/// The word. Written by the thread that polls the task, with plain stores: a locked instruction at both ends of a poll
/// would cost some nanoseconds more.
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

/// The word, as of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PollsSeen(u32);

/// Returns the number of polls before the poll with number `polls`.
pub(super) fn before(polls: u32) -> u32 {
    polls.wrapping_sub(1) % (u32::MAX / POLL + 1)
}

impl PollsSeen {
    /// Returns the number of polls that have begun. Wraps at 2^31.
    #[inline]
    pub(super) fn count(self) -> u32 {
        self.0 / POLL
    }

    /// Returns whether a poll is in progress.
    #[inline]
    pub(super) fn is_inside(self) -> bool {
        self.0 & INSIDE != 0
    }
}

impl Polls {
    /// Sets the word for a new task, which was not polled yet.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }

    #[inline]
    pub(super) fn get(&self) -> PollsSeen {
        PollsSeen(self.0.load(Ordering::Acquire))
    }

    /// Begins a poll. Called by the owner of the future. Returns the previous word.
    #[inline]
    pub(super) fn enter(&self) -> PollsSeen {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_add(POLL) | INSIDE, Ordering::Release);
        PollsSeen(before)
    }

    /// Begins the drop of the future, which does not count as a poll.
    pub(super) fn enter_end(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) | INSIDE, Ordering::Release);
    }

    /// Ends the poll or the drop.
    #[inline]
    pub(super) fn leave(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) & !INSIDE, Ordering::Release);
    }
}
