//! Signals to threads that run, or wait for something that rtprof does not see: they record their own stacks.
//!
//! Problem: a thousand threads woken at once keep the processors from the program for tens of milliseconds. A thread
//! that does not answer, because it waits for a disk or is stopped, must not delay the others, nor delay the snapshot
//! for ever. And a signal that a thread blocks stays pending, where the program's own `sigwait` may find it.
//!
//! Scheme: /proc is read first for what the thread does, and whether it blocks the signal. Only a few threads are asked
//! at a time. A thread that has not answered after [`SLOW`] no longer counts among these, but its answer is awaited:
//! for [`STUCK`] if /proc says that it is stopped or in an uninterruptible wait, else for [`PATIENCE`].
//!
//! A thread may block signals only briefly, as the C library does while a thread begins, ends, or makes a process: it
//! is checked again for as long as it runs, up to [`STUCK`].

use std::time::{Duration, Instant};

use super::ask::{Answer, PLACES, Question, Questions};
use super::recording::Seen;
use super::signal::{Delivery, Signal};
use super::visit::{RECORDING, visit};
use crate::goroutine::{
    CURRENT_ID, ENTERING, Goroutine, LEFT, Visit, current_slot, give_way, own, stranger_id,
};
use crate::process::proc::{NoStatus, Status};
use crate::stack::marker::{self, Marker};
use crate::stack::{Interrupted, MAX_STACK};

/// Threads that are woken at one time.
const AT_ONCE: usize = 4;
const SLOW: Duration = Duration::from_millis(2);
const STUCK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(2);
/// After this time no more threads are asked.
const LONGEST: Duration = Duration::from_secs(10);
/// Interval at which a thread is looked up in /proc while its answer is awaited.
const LOOK: Duration = Duration::from_millis(1);
/// Maximum number of questions to a thread that finds no spare stack, or calls `sigwait` itself.
const TRIES: u32 = 100;

lazy_under_loom! {
    static QUESTIONS: Questions = Questions::new();
}

/// A thread to be asked.
pub(super) struct Thread {
    /// The kernel's id of the thread.
    pub(super) id: u32,
    /// Its goroutine and the goroutine's id, if it had one at the cut.
    pub(super) goroutine: Option<(&'static Goroutine, u64)>,
    /// The last status read from /proc.
    pub(super) status: Status,
    pub(super) outcome: Outcome,
}

/// The outcome for a thread.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    /// The thread is recorded, or there was nothing to record.
    Settled,
    /// The thread ended.
    Gone,
    /// The thread's stack is not available, for the reason in the marker.
    Silent(Marker),
}

/// A thread whose answer is awaited.
struct Awaited {
    /// Its index in the list of threads.
    thread: usize,
    since: Instant,
    looked: Instant,
    tries: u32,
    /// The number of the question, or `None` while the thread cannot be asked.
    question: Option<u64>,
    /// The kernel had no room for one more pending signal.
    is_queue_full: bool,
}

/// The result of a check on an awaited thread.
enum Check {
    Wait,
    Done(Outcome),
}

impl Thread {
    pub(super) fn new(id: u32, goroutine: Option<(&'static Goroutine, u64)>) -> Self {
        Self { id, goroutine, status: Status::default(), outcome: Outcome::Settled }
    }
}

/// The coordinator's state while it asks.
struct Asking<'a> {
    snapshot: u64,
    signal: Signal,
    threads: &'a mut [Thread],
    started: Instant,
    /// The kernel refuses to send signals.
    is_refused: bool,
}

/// Asks all these threads, for snapshot `snapshot`, and returns when each has its outcome. Allocates nothing.
pub(super) fn ask(snapshot: u64, signal: Signal, threads: &mut [Thread], places: &mut Places) {
    Asking { snapshot, signal, threads, started: Instant::now(), is_refused: false }.run(places);
}

/// The awaited thread of each question place.
pub(super) struct Places([Option<Awaited>; PLACES]);

impl Places {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self([const { None }; PLACES]))
    }
}

impl Asking<'_> {
    fn run(mut self, Places(places): &mut Places) {
        let mut next = 0;
        let mut tries = 0;
        loop {
            let now = Instant::now();
            let mut has_changed = false;
            let mut quick = 0;
            for (at, place) in places.iter_mut().enumerate() {
                let Some(awaited) = place else { continue };
                match self.look(at, awaited, now) {
                    Check::Wait => quick += usize::from(now - awaited.since < SLOW),
                    Check::Done(outcome) => {
                        self.threads[awaited.thread].outcome = outcome;
                        *place = None;
                        has_changed = true;
                    }
                }
            }
            for (at, place) in places.iter_mut().enumerate() {
                if quick >= AT_ONCE || next == self.threads.len() {
                    break;
                }
                if place.is_some() {
                    continue;
                }
                let mut awaited = Awaited {
                    thread: next,
                    since: now,
                    looked: now,
                    tries: 0,
                    question: None,
                    is_queue_full: false,
                };
                match self.begin(at, &mut awaited) {
                    Check::Wait => {
                        quick += 1;
                        *place = Some(awaited);
                    }
                    Check::Done(outcome) => self.threads[next].outcome = outcome,
                }
                next += 1;
                has_changed = true;
            }
            if next == self.threads.len() && places.iter().all(Option::is_none) {
                return;
            }
            tries = if has_changed { 0 } else { tries };
            give_way(&mut tries);
        }
    }

    fn is_late(&self) -> bool {
        self.started.elapsed() > LONGEST
    }

    /// Reads a thread's status from /proc. Returns its outcome if there is none.
    fn read_status(&mut self, awaited: &Awaited) -> Result<Status, Outcome> {
        let thread = &mut self.threads[awaited.thread];
        match Status::of(thread.id) {
            Ok(status) => {
                thread.status = status;
                Ok(status)
            }
            Err(NoStatus::Gone) => Err(Outcome::Gone),
            Err(NoStatus::Unreadable) => Err(Outcome::Silent(marker::proc_cannot_be_read)),
        }
    }

    /// Reads a thread's status, and asks the thread if it can be asked.
    fn begin(&mut self, at: usize, awaited: &mut Awaited) -> Check {
        if self.is_late() {
            return Check::Done(Outcome::Silent(marker::thread_does_not_answer));
        }
        let status = match self.read_status(awaited) {
            Ok(status) => status,
            Err(outcome) => return Check::Done(outcome),
        };
        if self.is_refused {
            return Check::Done(Outcome::Silent(marker::kernel_refuses_signals));
        }
        if self.signal.is_in(status.blocked | status.pending) {
            return Check::Wait;
        }
        self.send(at, awaited)
    }

    fn send(&mut self, at: usize, awaited: &mut Awaited) -> Check {
        let thread = &self.threads[awaited.thread];
        let is_in_kernel = matches!(thread.status.state, b'S' | b'D');
        let question = QUESTIONS.put(
            at,
            Question {
                thread: thread.id,
                snapshot: self.snapshot,
                goroutine: thread.goroutine,
                is_in_kernel,
            },
        );
        // A question whose signal was not sent stays unanswered.
        match self.signal.send(thread.id, question) {
            Delivery::Sent => {
                awaited.question = Some(question);
                Check::Wait
            }
            Delivery::Full => {
                awaited.question = None;
                awaited.is_queue_full = true;
                Check::Wait
            }
            Delivery::Gone => Check::Done(Outcome::Gone),
            Delivery::Refused => {
                self.is_refused = true;
                Check::Done(Outcome::Silent(marker::kernel_refuses_signals))
            }
        }
    }

    /// Checks whether an awaited thread has answered, or will not answer any more.
    fn look(&mut self, at: usize, awaited: &mut Awaited, now: Instant) -> Check {
        let answer = awaited.question.map(|question| QUESTIONS.look(question));
        match answer {
            Some(Answer::Answered) => return Check::Done(Outcome::Settled),
            Some(Answer::Answering) => return Check::Wait,
            _ if now - awaited.looked < LOOK => return Check::Wait,
            _ => awaited.looked = now,
        }
        match (awaited.question, answer) {
            (Some(_), Some(Answer::Again)) => self.ask_again(at, awaited, marker::stack_not_captured),
            (Some(question), _) => self.look_at_asked(at, awaited, question, now),
            (None, _) => self.look_at_blocking(at, awaited, now),
        }
    }

    fn ask_again(&mut self, at: usize, awaited: &mut Awaited, or_else: Marker) -> Check {
        awaited.tries += 1;
        if awaited.tries > TRIES {
            return Check::Done(Outcome::Silent(or_else));
        }
        self.send(at, awaited)
    }

    /// Checks a thread that was sent the signal and has not answered.
    fn look_at_asked(&mut self, at: usize, awaited: &mut Awaited, question: u64, now: Instant) -> Check {
        let is_late = self.is_late();
        let status = match self.read_status(awaited) {
            Ok(status) => status,
            // If the thread has begun to answer by now, it finishes soon.
            Err(outcome) if QUESTIONS.withdraw(question) => return Check::Done(outcome),
            Err(_) => return Check::Wait,
        };
        let [is_blocked, is_pending] = [status.blocked, status.pending].map(|set| self.signal.is_in(set));
        if !self.signal.is_ours() && QUESTIONS.withdraw(question) {
            // The program has installed its handler, which is not to get more signals of ours.
            return Check::Done(Outcome::Silent(marker::no_signal_is_free));
        }
        if !is_blocked && !is_pending {
            // In our handler the signal is blocked. So the program has taken it by `sigwait`, while it was not blocked
            // between two looks.
            return match QUESTIONS.withdraw(question) {
                true => self.ask_again(at, awaited, marker::thread_blocks_signals),
                false => Check::Wait,
            };
        }
        let (patience, why) = match status.state {
            _ if is_blocked && is_pending => (STUCK, marker::thread_blocks_signals as Marker),
            b'R' | b'S' => (PATIENCE, marker::thread_does_not_answer as Marker),
            _ => (STUCK, marker::thread_does_not_answer as Marker),
        };
        if now - awaited.since < patience && !is_late || !QUESTIONS.withdraw(question) {
            return Check::Wait;
        }
        Check::Done(Outcome::Silent(why))
    }

    /// Checks a thread that could not be sent the signal: it blocks the signal, or has an earlier one pending, or too
    /// many are pending.
    fn look_at_blocking(&mut self, at: usize, awaited: &mut Awaited, now: Instant) -> Check {
        let thread = &self.threads[awaited.thread];
        // The thread may wait in our hooks by now.
        if let Some((goroutine, id)) = thread.goroutine
            && visit(self.snapshot, goroutine, id) != Visit::Runs
        {
            return Check::Done(Outcome::Settled);
        }
        let status = match self.read_status(awaited) {
            Ok(status) => status,
            Err(outcome) => return Check::Done(outcome),
        };
        let has_time = now - awaited.since < STUCK;
        let [is_blocked, is_pending] = [status.blocked, status.pending].map(|set| self.signal.is_in(set));
        if !is_blocked && !is_pending && (has_time || !awaited.is_queue_full) {
            return self.send(at, awaited);
        }
        if has_time && (status.state == b'R' || !is_blocked && !is_pending) {
            return Check::Wait;
        }
        Check::Done(Outcome::Silent(match is_blocked {
            true => marker::thread_blocks_signals,
            // Pending since an earlier snapshot.
            false if is_pending => marker::thread_does_not_answer,
            false => marker::signal_queue_is_full,
        }))
    }
}

/// Answers question `number` for the current thread. Called in the signal handler, which may have interrupted anything,
/// also our hooks.
pub(super) fn answer(number: u64, interrupted: Interrupted) {
    QUESTIONS.answer(number, |question| {
        // The thread is getting a goroutine, which is not visible here yet.
        if current_slot() == ENTERING {
            return false;
        }
        let done = interrupted.with_stack(|stack| match question.goroutine {
            Some((goroutine, id)) => record(question, goroutine, id, stack),
            None => record_stranger(question, stack),
        });
        done.is_some()
    });
}

/// Returns the number of a question to this thread that it has not begun to answer.
pub(super) fn question_to(thread: u32) -> Option<u64> {
    QUESTIONS.to(thread)
}

fn record(question: Question, goroutine: &'static Goroutine, id: u64, stack: &[usize]) {
    // The goroutine may have ended, and its thread may be about to end.
    if !own().is_some_and(|own| core::ptr::eq(own, goroutine) && own.id() == id) {
        return;
    }
    let seen = match question.is_in_kernel {
        _ if goroutine.parked().is_waiting() => Seen::Waiting,
        true => Seen::InKernel,
        false => Seen::Running,
    };
    goroutine.progress().settle(question.snapshot, || {
        RECORDING.add(goroutine, id, seen, |frames| copy(stack, frames));
    });
}

/// Records a thread that had no goroutine at the cut, as far as the coordinator has seen.
fn record_stranger(question: Question, stack: &[usize]) {
    let seen = if question.is_in_kernel { Seen::InKernel } else { Seen::Running };
    match own() {
        // Born after the cut, or just before: in the second case it may record itself when it runs again.
        Some(own) => own.progress().settle_stranger(question.snapshot, || {
            RECORDING.add(own, own.id(), seen, |frames| copy(stack, frames));
        }),
        // The goroutine has ended, and the thread is about to end, unless it waits in a destructor.
        None if (CURRENT_ID.get() != 0 || current_slot() == LEFT) && !question.is_in_kernel => {}
        None => RECORDING.add_stranger(stranger_id(), seen, |frames| copy(stack, frames)),
    }
}

fn copy(stack: &[usize], frames: &mut [usize; MAX_STACK]) -> usize {
    frames[..stack.len()].copy_from_slice(stack);
    stack.len()
}
