//! The executor's waker of a task, shared by all wakers that the task hands out, and what the task does now.
//!
//! Problem: a leaf future keeps a clone of the waker that it was polled with, and drops or wakes it from any thread at any time.
//! Our waker must lead to the executor's without an allocation for each clone. And an executor may free a task when its last
//! waker is gone: if the task kept one itself, it would keep itself alive for ever.
//!
//! Scheme: as long as there are clones of our waker, one waker of the executor's lies here. One word says how many clones there
//! are, whether the waker is here, and when the task was woken:
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
//! | `HELD` | a waker of the executor's is here, and a clone of ours anywhere | the first clone | who gives up the last clone |
//!
//! While the waker is not here, only the owner of the future changes the word, with plain stores; while it is, all do by
//! compare-and-swap. So a poll whose leaf clones the waker for the first time, and the end of a future, cost no locked instruction.
//!
//! A task is woken, and not polled since, if the number of its polls is still the one after which it was woken. So the thread that
//! polls it changes nothing here; and a wake that meets the beginning of a poll may be counted to the poll before.
//!
//! The waker is put here by the thread that polls, while there is none. It stays as it is as long as there are clones, so whoever
//! has a clone may read it. Who takes it out copies it first, while the last clone is still counted, and owns the copy if the
//! change of the word succeeds: nobody waits for anybody. The waker of a poll is no clone: it leads to the waker that the
//! executor has given for the poll.
//!
//! # Locks
//!
//! None.

use core::mem::MaybeUninit;

use crate::primitive::{AtomicU64, Ordering, UnsafeCell};

const CLONES: u64 = (1 << 24) - 1;
/// Clones of a waker beyond which it is not shared any more. Far from [`CLONES`], as threads count first and look then.
const MANY: u64 = CLONES / 2;
const HELD: u64 = 1 << 24;
const LIVE: u64 = 1 << 25;
const WOKEN: u32 = 32;
/// After no number of polls, of which there are 2^31.
const NEVER: u64 = (u32::MAX as u64) << WOKEN;

/// See the module's documentation. `W` is the executor's waker.
pub(super) struct SharedWaker<W> {
    word: AtomicU64,
    waker: UnsafeCell<MaybeUninit<W>>,
}

// SAFETY: the waker is used and dropped by any thread, under the rules of the word.
unsafe impl<W: Send + Sync> Sync for SharedWaker<W> {}

/// The word, as of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WakerSeen(u64);

impl WakerSeen {
    /// After how many polls it was woken last.
    #[inline]
    pub(super) fn woken_after(self) -> u32 {
        (self.0 >> WOKEN) as u32
    }

    /// A waker of the executor's is here: one may be woken by [`SharedWaker::acquire`].
    #[inline]
    pub(super) fn has_waker(self) -> bool {
        self.0 & HELD != 0
    }
}

/// What came of a request for one more clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// It is counted.
    Counted,
    /// There is no waker of the executor's here yet.
    Empty,
    /// There are too many clones.
    Full,
}

/// What is left to do for whoever has given up a clone or the future.
#[must_use = "the executor's waker is dropped, and the slot given back"]
pub(super) struct Released<W> {
    /// To be dropped: it may run code of the executor's.
    pub(super) waker: Option<W>,
    /// Nobody else refers to the slot any more.
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
    /// The future begins, in a slot that is the caller's alone.
    pub(super) fn begin(&self) {
        self.word.store(LIVE | NEVER, Ordering::Release);
    }

    #[inline]
    pub(super) fn get(&self) -> WakerSeen {
        WakerSeen(self.word.load(Ordering::Acquire))
    }

    /// Counts one more clone, for the holder of another, or during a poll.
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

    /// Puts a waker here, which was [`Share::Empty`], and counts the first clone.
    ///
    /// # Safety
    /// By the thread that polls the task, during the poll.
    pub(super) unsafe fn put(&self, waker: W) {
        // SAFETY: nobody else puts one, and nobody reads while there is none.
        self.waker.with_mut(|place| unsafe { place.write(MaybeUninit::new(waker)) });
        // Nobody else changes the word.
        let word = self.word.load(Ordering::Relaxed);
        self.word.store((word + 1) | HELD, Ordering::Release);
    }

    /// Counts one more clone, for one who may hold none, and gives it up again soon. `false` if the waker is not here.
    #[inline]
    pub(super) fn hold(&self) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        // Also beyond `MANY`: threads are fewer than the rest.
        while word & HELD != 0 {
            match self.change(word, word + 1) {
                Ok(()) => return true,
                Err(seen) => word = seen,
            }
        }
        false
    }

    /// Counts one more clone, for one who holds none: of a task that is alive and can be woken.
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
        // Acquire: what was put here before there was a clone is read.
        self.word.load(Ordering::Acquire);
        // SAFETY: it is here, and stays as it is, as long as there is a clone.
        self.waker.with(|waker| f(unsafe { (*waker).assume_init_ref() }))
    }

    /// Notes that the task is woken, after so many polls. `is_own` says that the current thread polls the task: one that does not, and
    /// uses the waker of a poll while there is no clone, notes nothing.
    #[inline]
    pub(super) fn note_wake(&self, polls: impl Fn() -> u32, is_own: impl FnOnce() -> bool) {
        let mut word = self.word.load(Ordering::Acquire);
        let mut after = polls();
        while word & (HELD | LIVE) == HELD | LIVE && WakerSeen(word).woken_after() != after {
            match self.change(word, woken(word, after)) {
                Ok(()) => {
                    // A poll may have begun meanwhile.
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

    /// Gives up a clone.
    #[inline]
    pub(super) fn release(&self) -> Released<W> {
        self.release_as(|word| word - 1)
    }

    /// Gives up a clone that wakes the task, after so many polls, if it is the last one: then the executor's waker is returned, to be
    /// used up. `None`, and nothing is given up, if it stays here for others.
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

    /// Changes the word, in which the last clone is, to one without the waker.
    #[inline]
    fn take_out(&self, word: u64, next: u64) -> Result<Released<W>, u64> {
        // SAFETY: it is there, and stays as it is until the word is changed, as the caller has the last clone. The copy is used only
        // if the change succeeds: then no other one is.
        let copy = (word & HELD != 0).then(|| unsafe { self.waker.with(|waker| waker.read()) });
        self.change(word, next)?;
        // SAFETY: initialised, says the word before.
        let waker = copy.map(|copy| unsafe { copy.assume_init() });
        Ok(Released { waker, is_last: next == 0 })
    }

    /// The future is gone.
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

/// The word of a task that is woken after so many polls.
#[inline]
fn woken(word: u64, polls: u32) -> u64 {
    word & u64::from(u32::MAX) | u64::from(polls) << WOKEN
}

#[cfg(test)]
#[path = "shared_waker_tests.rs"]
mod tests;
