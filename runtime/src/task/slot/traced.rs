//! What the state observer (the tracer) stores in and reads from a task.
//!
//! Without an observer a task keeps no state word: its state follows from its polls and its waker. The first event of
//! the task that an observer records, or the observer's sweep at its start, claims the task: it changes the mark of
//! [`Task::traced`] from 0, and takes the state from [`Task::untraced_state`]. From then on every change is a
//! compare-and-swap on the word, as for every goroutine ([`crate::goroutine::state`]).

use super::Task;
use crate::goroutine::start::Start;
use crate::goroutine::state::{State, StateWord};
use crate::goroutine::wait_reason::WaitReason;
use crate::stack::Stack;
use crate::task::TASKS;
use crate::task::await_stack::{MAX_BRANCHES, TaskStack};

/// A stored stack of tasks. Never freed.
#[derive(Clone, Copy)]
pub struct KeptStack(&'static TaskStack);

impl KeptStack {
    /// Returns a number that no other stored stack has.
    #[inline]
    pub fn number(self) -> usize {
        (&raw const *self.0).addr()
    }

    /// Returns the wait reason that the program declares there.
    #[inline]
    pub fn declared_reason(self) -> Option<WaitReason> {
        self.0.record.declared_reason()
    }

    /// Returns its return addresses, leaf first.
    pub fn frames(self) -> Stack<'static> {
        self.0.captured()
    }
}

impl core::fmt::Debug for KeptStack {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:x?}", self.0.stack())
    }
}

/// Releases the claim on every task, before a new observer starts. The caller makes sure that no other thread claims a
/// task at the same time.
pub fn clear_marks() {
    for task in TASKS.iter() {
        let mut word = task.traced.read();
        // A task that has begun in the slot since then is not claimed.
        while word.mark() != 0 {
            match task.traced.change(word, word.with_mark(0).in_state(State::Running)) {
                Ok(()) => break,
                Err(seen) => word = seen,
            }
        }
    }
}

impl Task {
    /// Makes a task that was not polled yet, for models.
    #[cfg(loom)]
    pub fn of_model(id: u64) -> Self {
        let task = Self::default();
        task.id.store(id, core::sync::atomic::Ordering::Relaxed);
        task
    }

    /// Returns the state word of a claimed task. While its mark is 0 the state has no meaning.
    #[inline]
    pub fn traced(&self) -> StateWord {
        self.traced.read()
    }

    /// Changes the word from `from`, a result of [`Task::traced`]. Returns `false` if the word has changed since.
    #[inline]
    pub fn change_traced(&self, from: StateWord, to: StateWord) -> bool {
        self.traced.change(from, to).is_ok()
    }

    /// Returns whether the task is claimed, and will run, or run again. One more wake is then no event.
    #[inline]
    pub fn is_woken_already(&self) -> bool {
        let word = self.traced();
        word.mark() != 0 && (word.state() == State::Runnable || word.is_notified())
    }

    /// Returns the state of a task that is not claimed.
    pub fn untraced_state(&self) -> State {
        let doing = self.doing();
        if doing.is_inside() {
            State::Running
        } else if doing.waits() {
            State::Waiting(WaitReason::Await)
        } else {
            State::Runnable
        }
    }

    /// Returns what it runs and where it was started.
    pub fn start(&self) -> Option<Start> {
        self.start.get()
    }

    /// Returns the stack that has created it, where that is known.
    pub fn created_by(&self) -> Option<KeptStack> {
        self.created_by.get().map(KeptStack)
    }

    /// Returns the stacks that the ending poll has left, in their order: where the task may await. Called by the thread
    /// that polls.
    #[inline]
    pub fn await_stacks(&self) -> [Option<KeptStack>; MAX_BRANCHES] {
        if self.awaits.is_empty() {
            return [None; MAX_BRANCHES];
        }
        self.awaits.left().all().map(|stack| stack.map(KeptStack))
    }

    /// Returns the wait reason that the program declares for the poll, if the poll has left no stack that would carry
    /// it. Called by the thread that polls.
    #[inline]
    pub fn told_reason(&self) -> WaitReason {
        let noted = self.awaits.noted().get();
        match noted.declared_reason() {
            Some(reason) if noted.stacks() == 0 => reason,
            _ => WaitReason::Await,
        }
    }

    /// Notes the wait reason that the program declares for the current poll. Called by the thread that polls.
    pub fn tell_reason(&self, reason: WaitReason) {
        self.awaits.noted().declare(reason);
    }
}
