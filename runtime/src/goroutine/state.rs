//! The state of a goroutine: one atomic word that every change replaces, and the tick at which it began to wait.
//!
//! Problem: a goroutine changes its state itself when it blocks, and other threads change it when they wake the
//! goroutine. An observer that starts in between (the tracer) must learn the true state and then miss no change. No
//! thread may stop for that, and a change may take only a few instructions.
//!
//! Scheme: a change is one compare-and-swap on a word that holds the state, the number of the change, and a mark that
//! belongs to the observer:
//!
//! ```text
//!   63        44 43                    8 7      0
//!   ┌───────────┬───────────────────────┬────────┐
//!   │   mark    │  number of the change │ state  │
//!   └───────────┴───────────────────────┴────────┘
//! ```
//!
//! Exactly one thread succeeds in changing the mark, and it knows the state at that moment. So an observer that
//! replaces the mark of each goroutine once sees each of them once. Without an observer every mark is 0. The tracer's
//! use of the mark is described in its module `declared`.
//!
//! A reader that finds the same number before and after it has read the tick has read the tick of that wait.

use crate::goroutine::wait_reason::WaitReason;
use crate::primitive::{AtomicU64, Ordering};

/// Tries of a reader while the state keeps changing.
const TRIES: usize = 8;

const STATE_BITS: u32 = 8;
const NUMBER_BITS: u32 = 36;
const MARK_BITS: u32 = 20;

/// The largest mark.
pub const MAX_MARK: u32 = (1 << MARK_BITS) - 1;

/// In place of the number of [`State::Running`]: see [`StateWord::notified`].
const NOTIFIED: u8 = 0x80;
const RUNNABLE: u8 = 0xff;
const SYSCALL: u8 = 0xfe;
const DEAD: u8 = 0xfd;

/// The state of a goroutine. Go: `_Grunning` and the like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It runs.
    Running,
    /// It waits.
    Waiting(WaitReason),
    /// It is in a system call that it has announced.
    Syscall,
    /// It is ready to run.
    Runnable,
    /// It has ended, or the slot is free.
    Dead,
}

impl State {
    /// Returns the number of the state.
    #[inline]
    pub fn number(self) -> u8 {
        match self {
            Self::Running => 0,
            Self::Waiting(reason) => reason as u8,
            Self::Syscall => SYSCALL,
            Self::Runnable => RUNNABLE,
            Self::Dead => DEAD,
        }
    }

    /// Returns the state with this number.
    #[inline]
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Running),
            SYSCALL => Some(Self::Syscall),
            RUNNABLE => Some(Self::Runnable),
            DEAD => Some(Self::Dead),
            reason => WaitReason::from_number(reason).map(Self::Waiting),
        }
    }
}

/// A goroutine's state as of one of its changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StateWord(u64);

impl StateWord {
    /// Makes the word of a state before the first change. `mark` is at most [`MAX_MARK`].
    pub fn new(state: State, mark: u32) -> Self {
        Self(u64::from(state.number()) | u64::from(mark) << (STATE_BITS + NUMBER_BITS))
    }

    /// Returns the state.
    #[inline]
    pub fn state(self) -> State {
        let number = if self.is_notified() { 0 } else { self.0 as u8 };
        State::from_number(number).unwrap_or(State::Dead)
    }

    /// Returns the word of a running task that was woken during its poll: it can run again as soon as its poll is over.
    /// This is not a change of its state.
    #[inline]
    #[must_use]
    pub fn notified(self) -> Self {
        Self(self.0 & !0xff | u64::from(NOTIFIED))
    }

    /// Returns whether it was woken while it runs.
    #[inline]
    pub fn is_notified(self) -> bool {
        self.0 as u8 == NOTIFIED
    }

    /// Makes the word of a new goroutine that has no mark. The word differs from those of earlier goroutines in the
    /// slot, so that a thread that has read one of those cannot change this one.
    pub(crate) fn unknown(id: u64) -> Self {
        Self(Self::new(State::Running, 0).0 | (id & ((1 << NUMBER_BITS) - 1)) << STATE_BITS)
    }

    /// Returns the word with another state, and the same number of changes.
    #[inline]
    #[must_use]
    pub fn in_state(self, state: State) -> Self {
        Self(self.0 & !0xff | u64::from(state.number()))
    }

    /// Returns the number of changes so far. Wraps at 2^36.
    #[inline]
    pub fn number(self) -> u64 {
        self.0 >> STATE_BITS & ((1 << NUMBER_BITS) - 1)
    }

    /// Returns the observer's mark, 0 to [`MAX_MARK`]. 0 without an observer.
    #[inline]
    pub fn mark(self) -> u32 {
        (self.0 >> (STATE_BITS + NUMBER_BITS)) as u32
    }

    /// Returns the word after the next change.
    #[inline]
    #[must_use]
    pub fn next(self, state: State, mark: u32) -> Self {
        let number = (self.number() + 1) & ((1 << NUMBER_BITS) - 1);
        Self(Self::new(state, mark).0 | number << STATE_BITS)
    }

    /// Returns the word with the same state and number of changes, and another mark.
    #[inline]
    #[must_use]
    pub fn with_mark(self, mark: u32) -> Self {
        Self(self.0 << MARK_BITS >> MARK_BITS | Self::new(State::Running, mark).0)
    }
}

impl core::fmt::Debug for StateWord {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?} since change {}, mark {}", self.state(), self.number(), self.mark())
    }
}

/// A cell with the word, which any thread may change.
#[derive(Default)]
pub(crate) struct WordCell(AtomicU64);

impl WordCell {
    #[inline]
    pub(crate) fn read(&self) -> StateWord {
        StateWord(self.0.load(Ordering::Acquire))
    }

    /// Changes the word from `from`. If the word is another one now, returns that.
    #[inline]
    pub(crate) fn change(&self, from: StateWord, to: StateWord) -> Result<(), StateWord> {
        self.0
            .compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(StateWord)
    }

    /// Sets the word of a new goroutine, in a slot that the caller owns.
    pub(crate) fn reset(&self, word: StateWord) {
        self.0.store(word.0, Ordering::Release);
    }
}

/// The word, and the tick at which the wait began.
#[derive(Default)]
pub(crate) struct Now {
    word: WordCell,
    since: AtomicU64,
}

impl Now {
    #[inline]
    pub(crate) fn read(&self) -> StateWord {
        self.word.read()
    }

    /// Changes the word, as [`WordCell::change`] does.
    #[inline]
    pub(crate) fn change(&self, from: StateWord, to: StateWord) -> Result<(), StateWord> {
        self.word.change(from, to)
    }

    /// Sets the word, as [`WordCell::reset`] does.
    pub(crate) fn reset(&self, word: StateWord) {
        self.word.reset(word);
    }

    /// Notes the beginning of a wait. Called by the goroutine itself before it changes to the waiting state.
    #[inline]
    pub(crate) fn note_since(&self, since: u64) {
        // Release: a reader that reads this tick and then the word again sees that the previous wait is over.
        self.since.store(since, Ordering::Release);
    }

    /// Returns the tick at which the last wait began.
    pub(crate) fn since(&self) -> u64 {
        self.since.load(Ordering::Acquire)
    }

    pub(crate) fn waiting(&self) -> Option<(WaitReason, u64)> {
        for _ in 0..TRIES {
            let word = self.read();
            let State::Waiting(reason) = word.state() else { return None };
            let since = self.since.load(Ordering::Acquire);
            if self.word.0.load(Ordering::Relaxed) == word.0 {
                return Some((reason, since));
            }
        }
        None
    }
}

#[cfg(test)]
impl Now {
    /// Begins a wait.
    fn begin(&self, reason: WaitReason, since: u64) {
        self.note_since(since);
        self.turn(State::Waiting(reason));
    }

    fn turn(&self, state: State) {
        let word = self.read();
        self.change(word, word.next(state, 0)).unwrap();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_what_began_last_until_it_ends() {
        let now = Now::default();
        assert_eq!((now.waiting(), now.read().state()), (None, State::Running));
        now.begin(WaitReason::MutexLock, u64::MAX);
        assert_eq!(now.waiting(), Some((WaitReason::MutexLock, u64::MAX)));
        now.begin(WaitReason::Sleep, 0);
        assert_eq!(now.waiting(), Some((WaitReason::Sleep, 0)));
        now.turn(State::Runnable);
        now.turn(State::Running);
        assert_eq!((now.waiting(), now.read().number()), (None, 4));
    }

    #[test]
    fn the_parts_of_a_word_do_not_touch() {
        let mut word = StateWord::new(State::Runnable, MAX_MARK);
        assert_eq!((word.state(), word.number(), word.mark()), (State::Runnable, 0, MAX_MARK));
        word.0 |= ((1 << NUMBER_BITS) - 1) << STATE_BITS;
        assert_eq!((word.state(), word.mark()), (State::Runnable, MAX_MARK));
        let marked = word.with_mark(7);
        assert_eq!((marked.state(), marked.number()), (State::Runnable, (1 << NUMBER_BITS) - 1));
        assert_eq!(marked.mark(), 7);
        let next = word.next(State::Waiting(WaitReason::Net), 1);
        assert_eq!(next.state(), State::Waiting(WaitReason::Net));
        assert_eq!((next.number(), next.mark()), (0, 1), "numbers wrap");
        let woken = StateWord::new(State::Running, 3).next(State::Running, 3).notified();
        assert!(woken.is_notified() && !woken.in_state(State::Running).is_notified());
        assert_eq!((woken.state(), woken.number(), woken.mark()), (State::Running, 1, 3));
        assert!(!woken.next(State::Running, 3).is_notified());
        for number in 0..=u8::MAX {
            assert!(number != NOTIFIED || State::from_number(number).is_none());
            assert!(State::from_number(number).is_none_or(|state| state.number() == number));
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// A reader sees one consistent wait, or none.
    #[test]
    fn loom_a_wait_is_read_whole() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let now = Arc::new(Now::default());
            // The reader is the spawned thread: loom compares a store with the last access only, which for this writer
            // is its own load, and would never run a reader of the main thread in between.
            let reader = {
                let now = now.clone();
                loom::thread::spawn(move || match now.waiting() {
                    None | Some((WaitReason::Join, 1 | 3) | (WaitReason::Park, 2)) => {}
                    mixed => panic!("{mixed:?} was no wait"),
                })
            };
            for (reason, since) in [(WaitReason::Join, 1), (WaitReason::Park, 2), (WaitReason::Join, 3)] {
                now.begin(reason, since);
                now.turn(State::Running);
            }
            reader.join().unwrap();
            assert_eq!(now.waiting(), None);
        });
    }

    /// A goroutine blocks while an observer marks it: exactly one of the two changes the mark, and knows the previous
    /// state.
    #[test]
    fn loom_one_changes_the_mark() {
        loom::model(|| {
            let now = Arc::new(Now::default());
            let observer = {
                let now = now.clone();
                loom::thread::spawn(move || {
                    let word = now.read();
                    word.mark() != 1 && now.change(word, word.with_mark(1)).is_ok()
                })
            };
            let mut word = now.read();
            let marks = loop {
                match now.change(word, word.next(State::Runnable, 1)) {
                    Ok(()) => break word.mark() != 1,
                    Err(seen) => word = seen,
                }
            };
            assert_ne!(observer.join().unwrap(), marks, "exactly one changes the mark");
            let end = now.read();
            assert_eq!((end.state(), end.number(), end.mark()), (State::Runnable, 1, 1));
        });
    }
}
