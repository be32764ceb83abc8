//! The executor's waker of a task, shared by all wakers that the task hands out, and what the task does now.
//!
//! Problem: a leaf future keeps a clone of the waker that it was polled with, and drops or wakes it from any thread at any time.
//! Our waker must lead to the executor's without an allocation for each clone. And an executor may free a task when its last
//! waker is gone: if the task kept one itself, it would keep itself alive for ever.
//!
//! Scheme: as long as there are clones of our waker, one waker of the executor's lies here. One word says how many clones there
//! are, whether the waker is here, and what the task does:
//!
//! ```text
//!   63          32 31                                        0
//!   ┌─────────────┬──────┬──────┬───────┬──────┬──────────────┐
//!   │ polls begun │ LIVE │ HELD │ INSIDE│ WOKEN│    clones    │
//!   └─────────────┴──────┴──────┴───────┴──────┴──────────────┘
//! ```
//!
//! | flag | is set while | set by | cleared by |
//! |---|---|---|---|
//! | `LIVE` | the future is alive | [`begin`](SharedWaker::begin) | [`end`](SharedWaker::end) |
//! | `INSIDE` | a poll goes on | [`enter`](SharedWaker::enter) | [`leave`](SharedWaker::leave) |
//! | `WOKEN` | it was woken and not polled since | who wakes it | `enter` |
//! | `HELD` | a waker of the executor's is here | the first clone in a poll | who gives up the last clone outside a poll, or `leave` |
//!
//! The waker is put here by the thread that polls, while there is none and no clone. It stays as it is as long as there are
//! clones or the poll goes on, so that whoever has a clone, and whoever uses the waker of the poll, may read it. Who takes it
//! out copies it first, and owns the copy if the change of the word succeeds: nobody waits for anybody.
//!
//! # Locks
//!
//! None.

use core::mem::MaybeUninit;

use crate::primitive::{AtomicU64, Ordering, UnsafeCell};

const CLONES: u64 = (1 << 24) - 1;
/// Clones of a waker beyond which it is not shared any more. Far from [`CLONES`], as threads count first and look then.
const MANY: u64 = CLONES / 2;
const WOKEN: u64 = 1 << 24;
const INSIDE: u64 = 1 << 25;
const HELD: u64 = 1 << 26;
const LIVE: u64 = 1 << 27;
const POLL: u64 = 1 << 32;

/// See the module's documentation. `W` is the executor's waker.
pub(super) struct SharedWaker<W> {
    word: AtomicU64,
    waker: UnsafeCell<MaybeUninit<W>>,
}

// SAFETY: the waker is used and dropped by any thread, under the rules of the word.
unsafe impl<W: Send + Sync> Sync for SharedWaker<W> {}

/// What a task does, as of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doing(u64);

impl Doing {
    /// The number of polls that have begun. Wraps at 2^32.
    pub(super) fn polls(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// It is polled.
    pub(super) fn is_inside(self) -> bool {
        self.0 & INSIDE != 0
    }

    /// It was woken, and is polled soon.
    pub(super) fn is_woken(self) -> bool {
        self.0 & WOKEN != 0
    }

    /// A waker of the executor's is here: one may be woken by [`SharedWaker::acquire`].
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

/// What is left to do for whoever has given up a clone, a poll or the future.
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
        self.word.store(LIVE, Ordering::Release);
    }

    /// What the task does.
    #[inline]
    pub(super) fn doing(&self) -> Doing {
        Doing(self.word.load(Ordering::Acquire))
    }

    /// Begins a poll, by the owner of the future. Returns what the task did before.
    #[inline]
    pub(super) fn enter(&self) -> Doing {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            match self.change(word, word.wrapping_add(POLL) & !WOKEN | INSIDE) {
                Ok(()) => return Doing(word),
                Err(seen) => word = seen,
            }
        }
    }

    /// Ends a poll after which the future waits.
    #[inline]
    pub(super) fn leave(&self) -> Released<W> {
        self.release_as(|word| word & !INSIDE)
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
        let mut word = self.word.load(Ordering::Relaxed);
        // Others may note meanwhile that they wake the task.
        while let Err(seen) = self.change(word, (word + 1) | HELD) {
            word = seen;
        }
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

    /// Runs `f` with the executor's waker, if there is one.
    ///
    /// # Safety
    /// The caller holds a clone, or uses the waker of a poll that goes on.
    #[inline]
    pub(super) unsafe fn with<R>(&self, f: impl FnOnce(&W) -> R) -> Option<R> {
        let is_held = self.word.load(Ordering::Acquire) & HELD != 0;
        // SAFETY: it is here, and stays as it is, as long as there is a clone or the poll goes on.
        is_held.then(|| self.waker.with(|waker| f(unsafe { &*waker.cast::<W>() })))
    }

    /// Notes that the task is woken.
    #[inline]
    pub(super) fn note_wake(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & (LIVE | WOKEN) == LIVE {
            match self.change(word, word | WOKEN) {
                Ok(()) => return,
                Err(seen) => word = seen,
            }
        }
    }

    /// Gives up a clone.
    #[inline]
    pub(super) fn release(&self) -> Released<W> {
        self.release_as(|word| word - 1)
    }

    /// Gives up a clone that wakes the task, if it is the last one and no poll goes on: then the executor's waker is returned, to
    /// be used up. `None`, and nothing is given up, if it stays here for others.
    #[inline]
    pub(super) fn release_to_wake(&self) -> Option<Released<W>> {
        let mut word = self.word.load(Ordering::Acquire);
        while word & (CLONES | INSIDE) == 1 {
            let woken = if word & LIVE == 0 { 0 } else { ((word - 1) | WOKEN) & !HELD };
            match self.take_out(word, woken) {
                Ok(released) => return Some(released),
                Err(seen) => word = seen,
            }
        }
        None
    }

    /// Changes the word, and takes the waker out if neither a clone nor a poll is left.
    #[inline]
    fn release_as(&self, change: impl Fn(u64) -> u64) -> Released<W> {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let next = change(word);
            let result = match next & (CLONES | INSIDE) {
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

    /// Changes the word, which no clone and no poll is left in, to one without the waker.
    #[inline]
    fn take_out(&self, word: u64, next: u64) -> Result<Released<W>, u64> {
        // SAFETY: it is there, and stays as it is until the word is changed: the caller has a clone, ends the poll or the future.
        // The copy is used only if the change succeeds: then no other one is.
        let copy = (word & HELD != 0).then(|| unsafe { self.waker.with(|waker| waker.read()) });
        self.change(word, next)?;
        // SAFETY: initialised, says the word before.
        let waker = copy.map(|copy| unsafe { copy.assume_init() });
        Ok(Released { waker, is_last: next == 0 })
    }

    /// The future is gone.
    pub(super) fn end(&self) -> Released<W> {
        self.release_as(|word| word & !(LIVE | INSIDE | WOKEN))
    }

    #[inline]
    fn change(&self, from: u64, to: u64) -> Result<(), u64> {
        self.word.compare_exchange_weak(from, to, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
}

#[cfg(test)]
#[path = "shared_waker_tests.rs"]
mod tests;
