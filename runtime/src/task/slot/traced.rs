//! A task in an execution trace.
//!
//! While nothing is recorded the task keeps up no state for traces: its polls and its wakers say what it does. The first event of it
//! in a trace, or the sweep at the trace's start, claims the task: changes [`Task::traced`] from generation 0, and declares it in the
//! state that [`Task::untraced_state`] finds. From then on every change is a compare-and-swap on the word, as of any goroutine
//! ([`crate::goroutine::Word`]).

use super::Task;
use crate::stack::Stack;
use crate::start::Start;
use crate::state::{State, Word};
use crate::task::TASKS;
use crate::task::await_stack::{MAX_BRANCHES, TaskStack};
use crate::wait_reason::WaitReason;

/// A stack that is kept for tasks. Never freed.
#[derive(Clone, Copy)]
pub struct KeptStack(&'static TaskStack);

impl KeptStack {
    /// A number that no other one has.
    #[inline]
    pub fn number(self) -> usize {
        (&raw const *self.0).addr()
    }

    /// What the program says that a task waits for there.
    #[inline]
    pub fn told(self) -> Option<WaitReason> {
        self.0.record.told()
    }

    /// Its return addresses, leaf first.
    pub fn frames(self) -> Stack<'static> {
        self.0.captured()
    }
}

impl core::fmt::Debug for KeptStack {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:x?}", self.0.stack())
    }
}

/// A new trace begins, which knows no task. Not while an event of another trace may go on.
pub fn forget_traces() {
    for task in TASKS.iter() {
        let mut word = task.traced.read();
        // Another task that has begun in the slot meanwhile is none that a trace knows.
        while word.generation() != 0 {
            match task.traced.change(word, word.declared(0).in_state(State::Running)) {
                Ok(()) => break,
                Err(seen) => word = seen,
            }
        }
    }
}

impl Task {
    /// One that was not polled yet, for models.
    #[cfg(loom)]
    pub fn of_model(id: u64) -> Self {
        let task = Self::default();
        task.id.store(id, core::sync::atomic::Ordering::Relaxed);
        task
    }

    /// What it does as far as the present trace knows. Of generation 0 the state says nothing.
    #[inline]
    pub fn traced(&self) -> Word {
        self.traced.read()
    }

    /// Changes what [`Task::traced`] returned. `false` if it is not that any more.
    #[inline]
    pub fn change_traced(&self, from: Word, to: Word) -> bool {
        self.traced.change(from, to).is_ok()
    }

    /// Whether the trace knows that it will run, or run again: to be woken once more is no event.
    #[inline]
    pub fn is_woken_already(&self) -> bool {
        let word = self.traced();
        word.generation() != 0 && (word.state() == State::Runnable || word.is_notified())
    }

    /// What it does, while the trace does not know.
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

    /// What it runs and where it was started.
    pub fn start(&self) -> Option<Start> {
        self.start.get()
    }

    /// The stack that has created it, where that is known.
    pub fn created_by(&self) -> Option<KeptStack> {
        self.created_by.get().map(KeptStack)
    }

    /// The stacks that the poll which is about to end has left, in their order: where it may await. By the thread that polls.
    #[inline]
    pub fn await_stacks(&self) -> [Option<KeptStack>; MAX_BRANCHES] {
        if self.awaits.is_empty() {
            return [None; MAX_BRANCHES];
        }
        self.awaits.left().all().map(|stack| stack.map(KeptStack))
    }

    /// What the program says that the poll waits for, which has left no stack that would say it. By the thread that polls.
    #[inline]
    pub fn told_reason(&self) -> WaitReason {
        let noted = self.awaits.noted().get();
        match noted.told() {
            Some(reason) if noted.stacks() == 0 => reason,
            _ => WaitReason::Await,
        }
    }

    /// The program says what the poll that goes on waits for. By the thread that polls.
    pub fn tell_reason(&self, reason: WaitReason) {
        self.awaits.noted().tell(reason);
    }
}
