//! The executor's waker of a task, shared by all wakers that the task hands out, and the task's last wake.
//!
//! Problem: a leaf future keeps a clone of the waker that it was polled with, and drops or wakes it from any thread at
//! any time. Our waker must lead to the executor's waker without an allocation for each clone. And an executor may free
//! a task when its last waker is gone: if the task always kept one, it would keep itself alive for ever.
//!
//! Scheme: as long as clones of our waker exist, one waker of the executor is stored here. One word holds the number of
//! clones, whether the executor's waker is stored, and when the task was woken:
//!
//! ```text
//!   63                32 31           26 25   24 23             0
//!   ┌────────────────────┬──────────────┬───────┬────────────────┐
//!   │ woken after so     │              │ LIVE, │ clones         │
//!   │ many polls         │              │ HELD  │                │
//!   └────────────────────┴──────────────┴───────┴────────────────┘
//! ```
//!
//! | flag | is set while | set by | cleared by |
//! |---|---|---|---|
//! | `LIVE` | the future is alive | [`begin`](SharedWaker::begin) | [`end`](SharedWaker::end) |
//! | `HELD` | the executor's waker is stored and has clones | the first clone | the release of the last clone |
//!
//! While no waker is stored, only the owner of the future changes the word, with plain stores; while one is, every
//! change is a compare-and-swap. So a poll whose leaf clones the waker for the first time, and the end of a future,
//! cost no locked instruction.
//!
//! A task is woken, and not polled since, if its number of polls is still the number after which it was woken. So the
//! thread that polls it changes nothing here; and a wake that coincides with the beginning of a poll may be counted to
//! the previous poll.
//!
//! The thread that polls stores the waker, while none is stored. The waker does not change as long as there are clones,
//! so the holder of a clone may read it. A thread that takes the waker out copies it first, while the last clone is
//! still counted, and owns the copy if its change of the word succeeds: no thread waits for another. The waker of a
//! poll is not a clone: it leads to the waker that the executor has passed for the poll.
//!
//! # Locks
//!
//! None.

use core::mem::MaybeUninit;

use crate::primitive::{AtomicU64, Ordering, UnsafeCell};

const CLONES: u64 = (1 << 24) - 1;
/// The number of clones beyond which the waker is not shared any more: half of what the field holds. The
/// other half is room for the threads that count a clone without this check.
const MANY: u64 = CLONES / 2;
const HELD: u64 = 1 << 24;
const LIVE: u64 = 1 << 25;
const WOKEN: u32 = 32;
/// A number of polls that no task has, as polls are counted modulo 2^31.
const NEVER: u64 = (u32::MAX as u64) << WOKEN;

/// The word and the stored waker; see the module documentation. `W` is the executor's waker.
pub(super) struct SharedWaker<W> {
    word: AtomicU64,
    waker: UnsafeCell<MaybeUninit<W>>,
}

// SAFETY: any thread may use and drop the waker, which is `Send + Sync`; the word serialises its writes.
unsafe impl<W: Send + Sync> Sync for SharedWaker<W> {}

/// The word, as of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WakerSeen(u64);

impl WakerSeen {
    /// Returns the number of polls after which the task was woken last.
    #[inline]
    pub(super) fn woken_after(self) -> u32 {
        (self.0 >> WOKEN) as u32
    }

    /// Returns whether a waker of the executor is stored: then the task may be woken by [`SharedWaker::acquire`].
    #[inline]
    pub(super) fn has_waker(self) -> bool {
        self.0 & HELD != 0
    }
}

/// The result of a request for one more clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// The clone is counted.
    Counted,
    /// No waker of the executor is stored yet.
    Empty,
    /// There are too many clones.
    Full,
}

/// What remains to be done after the release of a clone or the end of the future.
#[must_use = "the executor's waker is dropped, and the slot given back"]
pub(super) struct Released<W> {
    /// The executor's waker, to be dropped: this may run code of the executor.
    pub(super) waker: Option<W>,
    /// Whether this was the last reference to the slot.
    pub(super) is_last: bool,
}

impl<W> Released<W> {
    const NOTHING: Self = Self { waker: None, is_last: false };
}

impl<W> Default for SharedWaker<W> {
    fn default() -> Self {
        Self { word: AtomicU64::new(0), waker: UnsafeCell::new(MaybeUninit::uninit()) }
    }
}

impl<W> SharedWaker<W> {
    /// Begins a future, in a slot that the caller owns.
    pub(super) fn begin(&self) {
        self.word.store(LIVE | NEVER, Ordering::Release);
    }

    #[inline]
    pub(super) fn get(&self) -> WakerSeen {
        WakerSeen(self.word.load(Ordering::Acquire))
    }

    /// Counts one more clone. Called by the holder of another clone, or during a poll.
    #[inline]
    pub(super) fn share(&self) -> Share {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word & HELD == 0 {
                return Share::Empty;
            }
            if word & CLONES >= MANY {
                return Share::Full;
            }
            match self.change(word, word + 1) {
                Ok(()) => return Share::Counted,
                Err(seen) => word = seen,
            }
        }
    }

    /// Stores a waker, after [`Share::Empty`], and counts the first clone.
    ///
    /// # Safety
    /// Called by the thread that polls the task, during the poll.
    pub(super) unsafe fn put(&self, waker: W) {
        // SAFETY: only the polling thread stores a waker, and no thread reads while none is stored.
        self.waker.with_mut(|place| unsafe { place.write(MaybeUninit::new(waker)) });
        // While no waker is stored, only this thread changes the word.
        let word = self.word.load(Ordering::Relaxed);
        self.word.store((word + 1) | HELD, Ordering::Release);
    }

    /// Counts one more clone, for a caller that may hold none and releases it soon. Returns `false` if no waker is
    /// stored.
    #[inline]
    pub(super) fn hold(&self) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        // Also beyond `MANY`: the remaining range is larger than the number of threads.
        while word & HELD != 0 {
            match self.change(word, word + 1) {
                Ok(()) => return true,
                Err(seen) => word = seen,
            }
        }
        false
    }

    /// Counts one more clone, for a caller that holds none, of a task that is alive and can be woken. Returns whether
    /// it did.
    pub(super) fn acquire(&self) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        while word & (LIVE | HELD) == LIVE | HELD && word & CLONES < MANY {
            match self.change(word, word + 1) {
                Ok(()) => return true,
                Err(seen) => word = seen,
            }
        }
        false
    }

    /// Runs `f` with the executor's waker.
    ///
    /// # Safety
    /// The caller holds a clone.
    #[inline]
    pub(super) unsafe fn with<R>(&self, f: impl FnOnce(&W) -> R) -> R {
        // Acquire: the waker that was stored before the first clone is visible.
        self.word.load(Ordering::Acquire);
        // SAFETY: the caller holds a clone, so the waker is stored and does not change.
        self.waker.with(|waker| f(unsafe { (*waker).assume_init_ref() }))
    }

    /// Notes that the task is woken, after `polls` polls. `is_own` returns whether the current thread polls the task. A
    /// thread that does not, and uses the waker of a poll while there is no clone, notes nothing.
    #[inline]
    pub(super) fn note_wake(&self, polls: impl Fn() -> u32, is_own: impl FnOnce() -> bool) {
        let mut word = self.word.load(Ordering::Acquire);
        let mut after = polls();
        while word & (HELD | LIVE) == HELD | LIVE && WakerSeen(word).woken_after() != after {
            match self.change(word, woken(word, after)) {
                Ok(()) => {
                    // A poll may have begun in between.
                    let now = polls();
                    if now == after {
                        return;
                    }
                    after = now;
                    word = self.word.load(Ordering::Acquire);
                }
                Err(seen) => word = seen,
            }
        }
        if word & HELD == 0 && is_own() {
            self.word.store(woken(word, after), Ordering::Release);
        }
    }

    /// Releases a clone.
    #[inline]
    pub(super) fn release(&self) -> Released<W> {
        self.release_as(|word| word - 1)
    }

    /// Releases a clone that wakes the task, after `polls` polls, if it is the last one: then the executor's waker is
    /// returned, to be consumed. Returns `None`, and releases nothing, if other clones need the waker.
    #[inline]
    pub(super) fn release_to_wake(&self, polls: u32) -> Option<Released<W>> {
        let mut word = self.word.load(Ordering::Acquire);
        while word & CLONES == 1 {
            let next = if word & LIVE == 0 { 0 } else { woken(word - 1, polls) & !HELD };
            match self.take_out(word, next) {
                Ok(released) => return Some(released),
                Err(seen) => word = seen,
            }
        }
        None
    }

    /// Changes the word, and takes the waker out if no clone is left.
    #[inline]
    fn release_as(&self, change: impl Fn(u64) -> u64) -> Released<W> {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let next = change(word);
            let result = match next & CLONES {
                0 if next & LIVE == 0 => self.take_out(word, 0),
                0 if next & HELD != 0 => self.take_out(word, next & !HELD),
                _ => self.change(word, next).map(|()| Released::NOTHING),
            };
            match result {
                Ok(released) => return released,
                Err(seen) => word = seen,
            }
        }
    }

    /// Changes `word`, in which at most the last clone is counted, to `next`, and takes the waker out.
    #[inline]
    fn take_out(&self, word: u64, next: u64) -> Result<Released<W>, u64> {
        // SAFETY: the waker is stored, and does not change until the word does, as the caller holds the last clone. The
        // copy is used only if the change succeeds; then this is the only copy in use.
        let copy = (word & HELD != 0).then(|| unsafe { self.waker.with(|waker| waker.read()) });
        self.change(word, next)?;
        // SAFETY: `HELD` in the previous word says that the waker is initialised.
        let waker = copy.map(|copy| unsafe { copy.assume_init() });
        Ok(Released { waker, is_last: next == 0 })
    }

    /// Ends the future.
    pub(super) fn end(&self) -> Released<W> {
        if self.word.load(Ordering::Acquire) & HELD == 0 {
            self.word.store(0, Ordering::Release);
            return Released { waker: None, is_last: true };
        }
        self.release_as(|word| word & !LIVE)
    }

    #[inline]
    fn change(&self, from: u64, to: u64) -> Result<(), u64> {
        self.word.compare_exchange_weak(from, to, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
}

/// Returns the word of a task that is woken after `polls` polls.
#[inline]
fn woken(word: u64, polls: u32) -> u64 {
    word & u64::from(u32::MAX) | u64::from(polls) << WOKEN
}

#[cfg(test)]
#[path = "shared_waker_tests.rs"]
mod tests;
