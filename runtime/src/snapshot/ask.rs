//! Questions that the coordinator of a snapshot sends to threads by signal, and their answers.
//!
//! Problem: a thread may answer late, or never. When the coordinator has given up on a thread, the thread's handler
//! must not write to memory that serves another snapshot by then. Scheme: a fixed number of places for questions, each
//! with a word; the side that changes the word owns the next step:
//!
//! ```text
//!              put                    claimed by the handler            done
//!      free ──────────► asked ──────────────────────────► answering ──────────► answered, or again
//!       ▲                 │                                                        │
//!       └── withdrawn ────┴───────────────── read by the coordinator ──────────────┘
//! ```
//!
//! The word holds the state and the question's number. No two questions have the same number, and it is sent with the
//! signal: a handler that comes too late finds another number. (Where the kernel has no room for what is sent with a signal,
//! the handler finds the question by its thread.) The coordinator waits for threads that are answering:
//! they need some microseconds.

use crate::primitive::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::goroutine::Goroutine;

/// Questions that may be open at one time.
pub(super) const PLACES: usize = if cfg!(loom) { 1 } else { 64 };

const ASKED: u64 = 0;
const ANSWERING: u64 = 1;
const ANSWERED: u64 = 2;
const AGAIN: u64 = 3;

fn word(number: u64, state: u64) -> u64 {
    number << 2 | state
}

/// A question to a thread.
#[derive(Clone, Copy)]
pub(super) struct Question {
    /// The kernel's number of the thread.
    pub(super) thread: u32,
    /// The number of the snapshot that the stack is for.
    pub(super) snapshot: u64,
    /// The thread's goroutine and its id, if it had one at the cut.
    pub(super) goroutine: Option<(&'static Goroutine, u64)>,
    /// Whether the thread waited in the kernel.
    pub(super) is_in_kernel: bool,
}

/// The state of a question, as the coordinator reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The thread has not begun to answer.
    Asked,
    /// The thread is answering.
    Answering,
    /// The thread has recorded its stack, or had nothing to record.
    Answered,
    /// The thread could not answer at the moment.
    Again,
}

struct RequestSlot {
    word: AtomicU64,
    thread: AtomicU32,
    snapshot: AtomicU64,
    goroutine: AtomicPtr<Goroutine>,
    id: AtomicU64,
    is_in_kernel: AtomicU64,
}

impl RequestSlot {
    const_fn! {
        const fn free() -> Self {
            Self {
                word: AtomicU64::new(0),
                thread: AtomicU32::new(0),
                snapshot: AtomicU64::new(0),
                goroutine: AtomicPtr::new(core::ptr::null_mut()),
                id: AtomicU64::new(0),
                is_in_kernel: AtomicU64::new(0),
            }
        }
    }
}

/// The places of all questions.
pub(super) struct Questions {
    places: [RequestSlot; PLACES],
    /// The number of questions so far. Only the coordinator uses it.
    last: AtomicU64,
}

impl Questions {
    const_fn! {
        pub(super) const fn new() -> Self {
            Self { places: array_of![RequestSlot::free(); PLACES], last: AtomicU64::new(0) }
        }
    }

    fn place(&self, number: u64) -> &RequestSlot {
        &self.places[number as usize % PLACES]
    }

    /// Puts a question in place `at`, which is free, and returns its number, never 0. Called by the coordinator.
    pub(super) fn put(&self, at: usize, question: Question) -> u64 {
        let round = self.last.load(Ordering::Relaxed) + 1;
        self.last.store(round, Ordering::Relaxed);
        let number = round * PLACES as u64 + at as u64;
        let place = self.place(number);
        let (goroutine, id) = match question.goroutine {
            Some((goroutine, id)) => ((&raw const *goroutine).cast_mut(), id),
            None => (core::ptr::null_mut(), 0),
        };
        place.thread.store(question.thread, Ordering::Relaxed);
        place.snapshot.store(question.snapshot, Ordering::Relaxed);
        place.goroutine.store(goroutine, Ordering::Relaxed);
        place.id.store(id, Ordering::Relaxed);
        place.is_in_kernel.store(question.is_in_kernel.into(), Ordering::Relaxed);
        // Release: the handler that claims the question reads its fields.
        place.word.store(word(number, ASKED), Ordering::Release);
        number
    }

    /// Returns the number of a question that this thread has not begun to answer.
    pub(super) fn to(&self, thread: u32) -> Option<u64> {
        self.places.iter().find_map(|place| {
            // Acquire: the thread is that of this question, as long as the word stays, which `answer` finds out.
            let word = place.word.load(Ordering::Acquire);
            (word & 3 == ASKED && word != 0 && place.thread.load(Ordering::Relaxed) == thread)
                .then_some(word >> 2)
        })
    }

    /// Runs `answer` for question `number`, in the handler of the signal that carried the number. `answer` returns
    /// whether it succeeded. Not called if the question was withdrawn.
    pub(super) fn answer(&self, number: u64, answer: impl FnOnce(Question) -> bool) {
        let place = self.place(number);
        let (asked, answering) = (word(number, ASKED), word(number, ANSWERING));
        if place.word.compare_exchange(asked, answering, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        // SAFETY: the pointer is null, or was made from a reference to a slot, which is never freed.
        let goroutine = unsafe { place.goroutine.load(Ordering::Relaxed).as_ref() };
        let could = answer(Question {
            thread: place.thread.load(Ordering::Relaxed),
            snapshot: place.snapshot.load(Ordering::Relaxed),
            goroutine: goroutine.map(|goroutine| (goroutine, place.id.load(Ordering::Relaxed))),
            is_in_kernel: place.is_in_kernel.load(Ordering::Relaxed) != 0,
        });
        // Release: the coordinator sees what was recorded.
        place.word.store(word(number, if could { ANSWERED } else { AGAIN }), Ordering::Release);
    }

    /// Returns the state of question `number`. Called by the coordinator.
    pub(super) fn look(&self, number: u64) -> Answer {
        match self.place(number).word.load(Ordering::Acquire) & 3 {
            ASKED => Answer::Asked,
            ANSWERING => Answer::Answering,
            ANSWERED => Answer::Answered,
            _ => Answer::Again,
        }
    }

    /// Withdraws a question. Returns `false` if the thread has begun to answer it. Called by the coordinator.
    pub(super) fn withdraw(&self, number: u64) -> bool {
        let withdrawn = word(number, AGAIN);
        let word = &self.place(number).word;
        word.compare_exchange(self::word(number, ASKED), withdrawn, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    struct World {
        questions: Questions,
        record: UnsafeCell<u64>,
    }

    // SAFETY: loom checks every access to the cell.
    unsafe impl Sync for World {}
    // SAFETY: loom checks every access to the cell.
    unsafe impl Send for World {}

    /// A handler writes only while its question is open, and reads the question with its own number.
    #[test]
    fn loom_a_late_answer_touches_nothing() {
        loom::model(|| {
            let world = Arc::new(World { questions: Questions::new(), record: UnsafeCell::new(0) });
            let question =
                |snapshot| Question { thread: 1, snapshot, goroutine: None, is_in_kernel: snapshot == 2 };
            let ask = |snapshot| {
                let number = world.questions.put(0, question(snapshot));
                let world = world.clone();
                let handler = loom::thread::spawn(move || {
                    world.questions.answer(number, |question| {
                        assert_eq!(question.is_in_kernel, question.snapshot == 2);
                        world.record.with_mut(|record| unsafe { *record = question.snapshot });
                        true
                    });
                });
                (number, handler)
            };
            let (number, first) = ask(1);
            if !world.questions.withdraw(number) {
                while world.questions.look(number) != Answer::Answered {
                    loom::thread::yield_now();
                }
            }
            world.record.with_mut(|record| unsafe { *record = 0 });
            let (number, second) = ask(2);
            while world.questions.look(number) != Answer::Answered {
                loom::thread::yield_now();
            }
            assert_eq!(world.record.with(|record| unsafe { *record }), 2);
            first.join().unwrap();
            second.join().unwrap();
        });
    }
}
