//! Changes of async tasks.
//!
//! They work as those of other goroutines, with two differences. A task that is new to the trace, with a word of
//! generation 0, reports its state itself ([`Task::untraced_state`]); the thread that first changes its word declares
//! it in that state. And a wake during a poll is only noted in the word: when that poll ends, the task can run.
//!
//! | change | made by | record |
//! |---|---|---|
//! | is created | the creator | `Create` |
//! | is polled | the thread that polls | `Poll`: runnable (or waiting, where no hook of ours saw the wake) → running |
//! | waits | that thread | `Await` |
//! | was woken while polled | that thread, when the poll ends | `Reschedule` |
//! | is ready, or dropped | that thread | `Ready` |
//! | is woken | the waker | `Unblock` |

use rtprof_runtime::clock;
use rtprof_runtime::labels::LabelSetId;

use rtprof_runtime::goroutine::state::{State, StateWord};

use crate::declared::{Declared as _, LOST_GENERATION};
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::task::{KeptStack, MAX_BRANCHES, Task};

use super::LaneWriter;
use crate::record::{DeclaredReasons, RecordKind, StackId, StringId};
use crate::tables;

/// Returns a task's state: from its word, or from the task itself if the trace does not know it.
#[inline]
fn known(task: &Task, word: StateWord) -> StateWord {
    if word.generation() == 0 { word.in_state(task.untraced_state()) } else { word }
}

/// Notes a wake of a task that is running.
#[cold]
fn note_wake(task: &Task) {
    loop {
        let word = task.traced();
        let is_news = word.state() == State::Running && !word.is_notified();
        if !is_news || task.change_traced(word, word.notified()) {
            return;
        }
    }
}

impl LaneWriter<'_> {
    /// Ensures that the task which the current thread polls is declared and running. (Its poll may have begun before
    /// the trace.)
    #[inline]
    pub(crate) fn settle_task(&mut self, task: &Task) {
        let word = task.traced();
        if word.generation() != self.generation || word.state() != State::Running {
            self.settle_task_slow(task);
        }
    }

    #[cold]
    fn settle_task_slow(&mut self, task: &Task) {
        loop {
            let word = task.traced();
            if self.follow(word) {
                continue;
            }
            // For a task that is new to the trace, the poll begins here as far as the trace can tell.
            let is_declared = word.generation() == self.generation || self.generation == 0;
            match word.state() {
                State::Dead => return,
                State::Running if word.generation() != 0 => {
                    if is_declared || self.declare_task_as(task, word) {
                        return;
                    }
                }
                _ => return self.begin_poll(task),
            }
        }
    }

    /// Begins a poll of a task by the current thread.
    #[inline]
    pub(crate) fn begin_poll(&mut self, task: &Task) {
        loop {
            let word = task.traced();
            if self.follow(word) {
                continue;
            }
            let tick = clock::ticks();
            let mut before = known(task, word);
            if before.state() == State::Running {
                if word.generation() != 0 {
                    // An earlier poll whose end was not recorded.
                    let _ = task.change_traced(word, word.next(State::Runnable, word.lost()));
                    continue;
                }
                // The poll began before the trace.
                before = before.in_state(State::Runnable);
            }
            if before.state() == State::Dead {
                return;
            }
            let id = task.id();
            if self.change_task(task, id, (word, before), State::Running, tick) {
                let number = before.next(State::Running, 0).number();
                match task.labels() {
                    LabelSetId::NONE => self.write(RecordKind::Poll, tick, [id, number]),
                    labels => self.write(RecordKind::PollLabelled, tick, [id, number, labels.bits().into()]),
                }
                // The task was woken already, during a poll that began before the trace.
                if word.generation() == 0 && word.is_notified() {
                    note_wake(task);
                }
                return;
            }
        }
    }

    /// Ends the poll of a settled task: it waits, or can run if it was woken during the poll.
    #[inline]
    pub(crate) fn end_poll(&mut self, task: &Task) {
        let (reason, left) = (task.told_reason(), task.await_stacks());
        let several = left[1].is_some();
        let mut stacks = [0; MAX_BRANCHES];
        for (stack, left) in stacks.iter_mut().zip(left.iter().flatten()) {
            *stack = self.kept_stack(*left).into();
        }
        let waits = State::Waiting(reason);
        let to = |word: StateWord| if word.is_notified() { State::Runnable } else { waits };
        let Some((to, number, tick)) = self.leave_poll(task, to) else { return };
        let id = task.id();
        let [first, second, third, fourth, fifth] = stacks;
        let reason = DeclaredReasons::of(left).beside(reason);
        match to {
            State::Runnable => self.write(RecordKind::Reschedule, tick, [id, number, first]),
            _ if several => {
                let arguments = [id, number, reason, first, second, third, fourth, fifth];
                self.write(RecordKind::AwaitSeveral, tick, arguments);
            }
            _ => self.write(RecordKind::Await, tick, [id, number, reason, first]),
        }
    }

    /// Ends the poll of a settled task by a panic: the task can be dropped.
    #[cold]
    pub(crate) fn end_panicked_poll(&mut self, task: &Task) {
        if let Some((_, number, tick)) = self.leave_poll(task, |_| State::Runnable) {
            self.write(RecordKind::Reschedule, tick, [task.id(), number, 0]);
        }
    }

    /// Ends a settled task whose poll is in progress.
    #[inline]
    pub(crate) fn end_task(&mut self, task: &Task) {
        if let Some((_, number, tick)) = self.leave_poll(task, |_| State::Dead) {
            self.write(RecordKind::Ready, tick, [task.id(), number]);
        }
    }

    /// Changes the polled task to the state that `to` returns for its word. Returns the state, the number of the
    /// change, and the tick; `None` if the task is over already.
    #[inline]
    fn leave_poll(&mut self, task: &Task, to: impl Fn(StateWord) -> State) -> Option<(State, u64, u64)> {
        loop {
            let word = task.traced();
            if self.follow(word) {
                continue;
            }
            if word.state() == State::Dead {
                return None;
            }
            let (to, tick) = (to(word), clock::ticks());
            if self.change_task(task, task.id(), (word, word), to, tick) {
                return Some((to, word.next(to, 0).number(), tick));
            }
        }
    }

    /// Records that the current thread is about to wake a task. `here` finds the thread's stack.
    pub(crate) fn wake_task(&mut self, task: &Task, here: impl Fn(&mut Self) -> StackId) {
        let mut stack = None;
        loop {
            let word = task.traced();
            match known(task, word).state() {
                // The poll will end as runnable.
                State::Running => {
                    if word.is_notified() || task.change_traced(word, word.notified()) {
                        return;
                    }
                }
                State::Waiting(_) => {
                    let Some(stack) = stack else {
                        stack = Some(here(self));
                        continue;
                    };
                    if self.wake_waiting(task, word, stack) {
                        return;
                    }
                }
                _ => return,
            }
        }
    }

    /// `false` if another thread has changed the word, or the caller must read it again.
    #[inline]
    fn wake_waiting(&mut self, task: &Task, word: StateWord, stack: StackId) -> bool {
        if self.follow(word) {
            return false;
        }
        let tick = clock::ticks();
        // Read once, because the task may end and free its slot at any time.
        let id = task.id();
        if id == 0 {
            return true;
        }
        let before = known(task, word);
        let waits = matches!(before.state(), State::Waiting(_));
        if !waits || !self.change_task(task, id, (word, before), State::Runnable, tick) {
            return false;
        }
        let number = before.next(State::Runnable, 0).number();
        self.write(RecordKind::Unblock, tick, [id, number, stack.into()]);
        true
    }

    /// Records that the current thread has created a task, which has not changed since.
    pub(crate) fn create_task(&mut self, task: &Task) {
        let word = task.traced();
        if word.generation() != 0 || self.generation == 0 {
            return;
        }
        let name = task.with_name(|name| self.title(name, task.start()));
        let stack = match task.created_by() {
            Some(stack) => self.kept_stack(stack),
            None => self.stack(),
        };
        let tick = self.now();
        // The pass that declares all tasks may come first.
        if task.change_traced(word, StateWord::new(State::Runnable, self.generation)) {
            self.write(RecordKind::CreateAsync, tick, [task.id(), name.into(), stack.into()]);
        }
    }

    /// Declares a task, unless it is declared in this generation. A task that is new to the trace and is being polled
    /// declares itself.
    pub(crate) fn declare_task(&mut self, task: &Task) {
        loop {
            let word = task.traced();
            if task.id() == 0 || self.generation == 0 {
                return;
            }
            if self.follow(word) {
                continue;
            }
            let before = known(task, word);
            let is_unknown = word.generation() == 0 && before.state() == State::Running;
            if word.generation() == self.generation || before.state() == State::Dead || is_unknown {
                return;
            }
            if self.declare_task_as(task, before) {
                return;
            }
        }
    }

    /// Declares a task as `before`. `false` if another thread has changed its word.
    fn declare_task_as(&mut self, task: &Task, before: StateWord) -> bool {
        let word = task.traced();
        if known(task, word) != before {
            return false;
        }
        let id = task.id();
        if id == 0 {
            // The task is over.
            return true;
        }
        let tick = clock::ticks();
        let mut declared = before.declared(self.generation);
        if word.is_notified() {
            declared = declared.notified();
        }
        // Read before the change: if the change succeeds, the slot was not reused for another task in between.
        let origin = self.origin(task);
        let is_changed = task.change_traced(word, declared);
        if is_changed {
            self.status(id, before, tick, None, origin);
        }
        is_changed
    }

    /// Changes the state of a task from a word that says, or is taken to say, `before`, and declares the task if it is
    /// not declared yet. `false` if another thread has changed the word.
    #[inline]
    fn change_task(
        &mut self,
        task: &Task,
        id: u64,
        (word, before): (StateWord, StateWord),
        to: State,
        tick: u64,
    ) -> bool {
        let generation = if self.generation == 0 { word.lost() } else { self.generation };
        let changed = task.change_traced(word, before.next(to, generation));
        if changed && word.generation() != self.generation {
            self.declare_changed(task, id, before, tick);
        }
        changed
    }

    /// Declares a task after a change. The slot still belongs to the task, because the caller polls it or has a waker
    /// of it.
    #[cold]
    fn declare_changed(&mut self, task: &Task, id: u64, before: StateWord, tick: u64) {
        let origin = self.origin(task);
        // The records of the poll name the thread.
        self.status(id, before, tick, None, origin);
    }

    /// Returns the title of a task, and the stack that created it.
    fn origin(&mut self, task: &Task) -> (StringId, StackId) {
        if self.buffer.is_none() {
            return (0, 0);
        }
        let name = task.with_name(|name| self.title(name, task.start()));
        (name, task.created_by().map_or(0, |stack| self.kept_stack(stack)))
    }

    /// Returns the id of a task's stack; 0, counted as lost, if it cannot be kept.
    #[inline]
    fn kept_stack(&mut self, stack: KeptStack) -> StackId {
        self.find(|losses| &losses.stacks, |cache| tables::kept_stack(stack, cache))
    }
}

/// Changes a task's word, as `to` returns, where the change cannot be recorded.
pub(crate) fn change_unrecorded(task: &Task, to: impl Fn(StateWord) -> Option<StateWord>) {
    loop {
        let word = task.traced();
        if word.generation() == 0 {
            return;
        }
        let Some(next) = to(word) else { return };
        if task.change_traced(word, next) {
            return;
        }
    }
}

/// Returns the word after an unrecorded wake; `None` if it stays the same.
pub(crate) fn woken_unrecorded(word: StateWord) -> Option<StateWord> {
    match word.state() {
        State::Running if !word.is_notified() => Some(word.notified()),
        State::Waiting(_) => Some(word.next(State::Runnable, LOST_GENERATION)),
        _ => None,
    }
}

/// Returns the word after an unrecorded end; `None` if it stays the same.
pub(crate) fn ended_unrecorded(word: StateWord) -> Option<StateWord> {
    (word.state() != State::Dead).then(|| word.next(State::Dead, LOST_GENERATION))
}

/// Returns the word after an unrecorded poll that has panicked; `None` if it stays the same.
pub(crate) fn panicked_unrecorded(word: StateWord) -> Option<StateWord> {
    (word.state() == State::Running).then(|| word.next(State::Runnable, LOST_GENERATION))
}

/// Returns the word after an unrecorded poll; `None` if it stays the same.
pub(crate) fn poll_ended_unrecorded(word: StateWord) -> Option<StateWord> {
    let waits = State::Waiting(WaitReason::Await);
    let to = if word.is_notified() { State::Runnable } else { waits };
    (word.state() == State::Running).then(|| word.next(to, LOST_GENERATION))
}
