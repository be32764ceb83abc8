//! What a goroutine does now: one word that every change replaces, and since when it waits.
//!
//! Problem: a goroutine changes its state itself when it blocks, others change it when they wake it, and a
//! trace that begins at that moment must say truly what it was, and then miss none of its changes; but
//! nobody may stop, and a change is only allowed a few instructions.
//! Scheme: a change is one compare-and-swap on a word that holds the state, the number of the change, and the
//! generation of the trace in which the goroutine was declared:
//!
//! ```text
//!   63        44 43                    8 7      0
//!   ┌───────────┬───────────────────────┬────────┐
//!   │ generation│  number of the change │ state  │
//!   └───────────┴───────────────────────┴────────┘
//! ```
//!
//! Who changes the word from another generation to the present one is the only one to do so, knows the state
//! as it was when the generation began, and declares it. The words are kept up without a trace too, with generation 0; a
//! change that a trace has no room for leaves [`LOST_GENERATION`], so that the next one declares the goroutine anew.
//!
//! A reader that finds the same number before and after it has read the time has read the time of that wait.

use crate::primitive::{AtomicU64, Ordering};
use crate::wait_reason::WaitReason;

/// Tries of a reader that changes keep happening under.
const TRIES: usize = 8;

const STATE_BITS: u32 = 8;
const NUMBER_BITS: u32 = 36;
const GENERATION_BITS: u32 = 20;

/// Stands for the generation of a goroutine that was declared and has changed since in ways that are in no record.
pub const LOST_GENERATION: u32 = (1 << GENERATION_BITS) - 1;

/// Generations are numbered from 1 to this, and then from 1 again.
pub const MAX_GENERATION: u32 = LOST_GENERATION - 1;

/// In place of the number of [`State::Running`]: see [`Word::notified`].
const NOTIFIED: u8 = 0x80;
const RUNNABLE: u8 = 0xff;
const SYSCALL: u8 = 0xfe;
const DEAD: u8 = 0xfd;

/// What a goroutine does. Go: `_Grunning` and the like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It runs.
    Running,
    /// It waits.
    Waiting(WaitReason),
    /// It is in a system call that it has told of.
    Syscall,
    /// It could run.
    Runnable,
    /// It has ended, or is none.
    Dead,
}

impl State {
    /// A number that stands for it.
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

    /// The state with this number.
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
pub struct Word(u64);

impl Word {
    /// The state of a goroutine that nothing is recorded of, after no change.
    pub fn new(state: State, generation: u32) -> Self {
        Self(u64::from(state.number()) | u64::from(generation) << (STATE_BITS + NUMBER_BITS))
    }

    /// What it does.
    #[inline]
    pub fn state(self) -> State {
        let number = if self.is_notified() { 0 } else { self.0 as u8 };
        State::from_number(number).unwrap_or(State::Dead)
    }

    /// A task that runs was woken meanwhile: it can run again as soon as its poll is over. That is no change of its state.
    #[inline]
    #[must_use]
    pub fn notified(self) -> Self {
        Self(self.0 & !0xff | u64::from(NOTIFIED))
    }

    /// Whether it was woken while it runs.
    #[inline]
    pub fn is_notified(self) -> bool {
        self.0 as u8 == NOTIFIED
    }

    /// Of a goroutine that nothing is recorded of: as none that was in its slot before, so that who has read the word of one does
    /// not change it for the next one.
    pub(crate) fn unknown(id: u64) -> Self {
        Self(Self::new(State::Running, 0).0 | (id & ((1 << NUMBER_BITS) - 1)) << STATE_BITS)
    }

    /// In another state, as of the same change.
    #[inline]
    #[must_use]
    pub fn in_state(self, state: State) -> Self {
        Self(self.0 & !0xff | u64::from(state.number()))
    }

    /// How many changes led here: the number of the last one. Wraps at 2^36.
    #[inline]
    pub fn number(self) -> u64 {
        self.0 >> STATE_BITS & ((1 << NUMBER_BITS) - 1)
    }

    /// The generation of the trace that it was declared in; 0 for none.
    #[inline]
    pub fn generation(self) -> u32 {
        (self.0 >> (STATE_BITS + NUMBER_BITS)) as u32
    }

    /// After the next change.
    #[inline]
    #[must_use]
    pub fn next(self, state: State, generation: u32) -> Self {
        let number = (self.number() + 1) & ((1 << NUMBER_BITS) - 1);
        Self(Self::new(state, generation).0 | number << STATE_BITS)
    }

    /// The generation after a change that is not recorded although a trace goes on.
    #[inline]
    pub fn lost(self) -> u32 {
        if self.generation() == 0 { 0 } else { LOST_GENERATION }
    }

    /// Declared in `generation`.
    #[inline]
    #[must_use]
    pub fn declared(self, generation: u32) -> Self {
        Self(self.0 << GENERATION_BITS >> GENERATION_BITS | Self::new(State::Running, generation).0)
    }
}

impl core::fmt::Debug for Word {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?} since change {} in generation {}", self.state(), self.number(), self.generation())
    }
}

/// The word, which any thread may change.
#[derive(Default)]
pub(crate) struct WordCell(AtomicU64);

impl WordCell {
    #[inline]
    pub(crate) fn read(&self) -> Word {
        Word(self.0.load(Ordering::Acquire))
    }

    /// Changes it from what it was read as; if it is not that any more, says what it is.
    #[inline]
    pub(crate) fn change(&self, from: Word, to: Word) -> Result<(), Word> {
        self.0.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire).map(drop).map_err(Word)
    }

    /// A new goroutine begins, in a slot that is the caller's alone.
    pub(crate) fn reset(&self, word: Word) {
        self.0.store(word.0, Ordering::Release);
    }
}

/// The word, and the time that belongs to it.
#[derive(Default)]
pub(crate) struct Now {
    word: WordCell,
    since: AtomicU64,
}

impl Now {
    #[inline]
    pub(crate) fn read(&self) -> Word {
        self.word.read()
    }

    /// As [`WordCell::change`].
    #[inline]
    pub(crate) fn change(&self, from: Word, to: Word) -> Result<(), Word> {
        self.word.change(from, to)
    }

    /// As [`WordCell::reset`].
    pub(crate) fn reset(&self, word: Word) {
        self.word.reset(word);
    }

    /// To be called by the goroutine itself before it changes to a wait that began at `since`.
    #[inline]
    pub(crate) fn note_since(&self, since: u64) {
        // Release: who reads this time and then looks again sees that the wait before is over.
        self.since.store(since, Ordering::Release);
    }

    /// When the last wait began.
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
    /// Waits from now on.
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
        let mut word = Word::new(State::Runnable, MAX_GENERATION);
        assert_eq!((word.state(), word.number(), word.generation()), (State::Runnable, 0, MAX_GENERATION));
        word.0 |= ((1 << NUMBER_BITS) - 1) << STATE_BITS;
        assert_eq!((word.state(), word.generation()), (State::Runnable, MAX_GENERATION));
        let declared = word.declared(7);
        assert_eq!((declared.state(), declared.number()), (State::Runnable, (1 << NUMBER_BITS) - 1));
        assert_eq!(declared.generation(), 7);
        let next = word.next(State::Waiting(WaitReason::Net), 1);
        assert_eq!(next.state(), State::Waiting(WaitReason::Net));
        assert_eq!((next.number(), next.generation()), (0, 1), "numbers wrap");
        let woken = Word::new(State::Running, 3).next(State::Running, 3).notified();
        assert!(woken.is_notified() && !woken.in_state(State::Running).is_notified());
        assert_eq!((woken.state(), woken.number(), woken.generation()), (State::Running, 1, 3));
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

    /// A reader sees one of the waits whole, or none.
    #[test]
    fn loom_a_wait_is_read_whole() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let now = Arc::new(Now::default());
            // The reader is the spawned one: loom compares a store with the last access only, which for
            // this writer is its own load, and would never run a reader of the main thread in between.
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

    /// A goroutine blocks while a trace declares it: one of the two declares it, with the state before.
    #[test]
    fn loom_one_declares() {
        loom::model(|| {
            let now = Arc::new(Now::default());
            let sweeper = {
                let now = now.clone();
                loom::thread::spawn(move || {
                    let word = now.read();
                    word.generation() != 1 && now.change(word, word.declared(1)).is_ok()
                })
            };
            let mut word = now.read();
            let declared = loop {
                match now.change(word, word.next(State::Runnable, 1)) {
                    Ok(()) => break word.generation() != 1,
                    Err(seen) => word = seen,
                }
            };
            assert_ne!(sweeper.join().unwrap(), declared, "one declares it");
            let end = now.read();
            assert_eq!((end.state(), end.number(), end.generation()), (State::Runnable, 1, 1));
        });
    }
}
