//! Changes of async tasks.
//!
//! As of other goroutines, with two differences. A task that the trace does not know yet, whose word is of generation 0, says by
//! itself what it does ([`Task::untraced_state`]); who changes its word first declares it so. And a wake that meets a poll is only
//! noted in the word: the poll then ends as one after which the task can run.
//!
//! | it | by | |
//! |---|---|---|
//! | is created | the creator | `Create` |
//! | is polled | the thread that polls | `Poll`: runnable, or waiting where nothing of ours has woken it, → running |
//! | waits | that thread | `Await` |
//! | was woken while polled | that thread, when the poll ends | `Reschedule` |
//! | is ready, or dropped | that thread | `Ready` |
//! | is woken | the waker | `Unblock` |

use rtprof_runtime::clock;
use rtprof_runtime::labels::LabelSetId;
use rtprof_runtime::primitive::Ordering;
use rtprof_runtime::state::{State, StateWord};

use crate::declared::{Declared as _, LOST_GENERATION};
use rtprof_runtime::task::{KeptStack, MAX_BRANCHES, Task};
use rtprof_runtime::wait_reason::WaitReason;

use super::LaneWriter;
use crate::record::{RecordKind, StackId, StringId, Told};
use crate::tables;

/// What the word of a task says, or else the task itself.
#[inline]
fn known(task: &Task, word: StateWord) -> StateWord {
    if word.generation() == 0 { word.in_state(task.untraced_state()) } else { word }
}

/// Notes that a task which runs was woken meanwhile.
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
    /// Sees to it that the task which the current thread polls is declared and runs. (Its poll may have begun before the trace.)
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
            // Of one that is not known a poll begins here, as far as the trace can tell.
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

    /// A poll of a task begins, by the current thread.
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
                    // A poll whose end is in no record.
                    let _ = task.change_traced(word, word.next(State::Runnable, word.lost()));
                    continue;
                }
                // It has begun before the trace.
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
                // In a poll that has begun before the trace it was woken already.
                if word.generation() == 0 && word.is_notified() {
                    note_wake(task);
                }
                return;
            }
        }
    }

    /// The poll of a task ends, which was settled: it waits, or can run if it was woken meanwhile.
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
        let reason = Told::of(left).beside(reason);
        match to {
            State::Runnable => self.write(RecordKind::Reschedule, tick, [id, number, first]),
            _ if several => {
                let arguments = [id, number, reason, first, second, third, fourth, fifth];
                self.write(RecordKind::AwaitSeveral, tick, arguments);
            }
            _ => self.write(RecordKind::Await, tick, [id, number, reason, first]),
        }
    }

    /// The poll of a task, which was settled, ends by a panic: it can be dropped.
    #[cold]
    pub(crate) fn end_panicked_poll(&mut self, task: &Task) {
        if let Some((_, number, tick)) = self.leave_poll(task, |_| State::Runnable) {
            self.write(RecordKind::Reschedule, tick, [task.id(), number, 0]);
        }
    }

    /// A task whose poll goes on, and which was settled, is over.
    #[inline]
    pub(crate) fn end_task(&mut self, task: &Task) {
        if let Some((_, number, tick)) = self.leave_poll(task, |_| State::Dead) {
            self.write(RecordKind::Ready, tick, [task.id(), number]);
        }
    }

    /// The task that was polled does something else from now on, as `to` says of its word. Returns what, the number of the change,
    /// and the tick; `None` if it is over already.
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

    /// A task is about to be woken by the current thread, whose stack `here` finds.
    pub(crate) fn wake_task(&mut self, task: &Task, here: impl Fn(&mut Self) -> StackId) {
        let mut stack = None;
        loop {
            let word = task.traced();
            match known(task, word).state() {
                // The poll ends differently.
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

    /// `false` if the word was changed by somebody else, or is to be read again.
    #[inline]
    fn wake_waiting(&mut self, task: &Task, word: StateWord, stack: StackId) -> bool {
        if self.follow(word) {
            return false;
        }
        let tick = clock::ticks();
        // Once: its future may go at any time.
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

    /// A task was created by the current thread, and nothing has happened to it.
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
        // The sweep that declares all may come first.
        if task.change_traced(word, StateWord::new(State::Runnable, self.generation)) {
            self.write(RecordKind::Create, tick, [task.id(), name.into(), stack.into()]);
        }
    }

    /// Declares a task, unless somebody has in this generation. One that the trace does not know and that is polled now declares
    /// itself.
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

    /// Declares a task of which this is known. `false` if it was changed by somebody else.
    fn declare_task_as(&mut self, task: &Task, before: StateWord) -> bool {
        let word = task.traced();
        if known(task, word) != before {
            return false;
        }
        let id = task.id();
        if id == 0 {
            // Its future is gone.
            return true;
        }
        let tick = clock::ticks();
        let mut declared = before.declared(self.generation);
        if word.is_notified() {
            declared = declared.notified();
        }
        // Before the change: if that succeeds, no other task has begun in the slot meanwhile.
        let origin = self.origin(task);
        let is_changed = task.change_traced(word, declared);
        if is_changed {
            self.status(id, before, tick, (0, 0), origin);
        }
        is_changed
    }

    /// Changes the state of a task from a word that says, or is taken to say, `before`, and declares it if nobody has. `false` if
    /// it was changed by somebody else.
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

    /// The slot is this task's still: the caller polls it, or has a waker of it.
    #[cold]
    fn declare_changed(&mut self, task: &Task, id: u64, before: StateWord, tick: u64) {
        let origin = self.origin(task);
        // Which thread polls it is told by the records of the poll.
        self.status(id, before, tick, (0, 0), origin);
    }

    /// The title of a task, and the stack that has created it.
    fn origin(&mut self, task: &Task) -> (StringId, StackId) {
        if self.buffer.is_none() {
            return (0, 0);
        }
        let name = task.with_name(|name| self.title(name, task.start()));
        (name, task.created_by().map_or(0, |stack| self.kept_stack(stack)))
    }

    /// The number of a stack of a task; 0, counted, if it cannot be kept.
    #[inline]
    fn kept_stack(&mut self, stack: KeptStack) -> StackId {
        if self.buffer.is_none() {
            return 0;
        }
        // SAFETY: the lane is this writer's.
        let number = self.lane.cache.with_mut(|cache| unsafe { tables::kept_stack(stack, &mut *cache) });
        number.unwrap_or_else(|| {
            self.recorder.losses.stacks.fetch_add(1, Ordering::Relaxed);
            0
        })
    }
}

/// Changes what the trace knows of a task where nothing can be recorded of it: it was woken, or is over.
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

/// After being woken.
pub(crate) fn woken_unrecorded(word: StateWord) -> Option<StateWord> {
    match word.state() {
        State::Running if !word.is_notified() => Some(word.notified()),
        State::Waiting(_) => Some(word.next(State::Runnable, LOST_GENERATION)),
        _ => None,
    }
}

/// After its end.
pub(crate) fn ended_unrecorded(word: StateWord) -> Option<StateWord> {
    (word.state() != State::Dead).then(|| word.next(State::Dead, LOST_GENERATION))
}

/// After a poll that has panicked.
pub(crate) fn panicked_unrecorded(word: StateWord) -> Option<StateWord> {
    (word.state() == State::Running).then(|| word.next(State::Runnable, LOST_GENERATION))
}

/// After a poll.
pub(crate) fn poll_ended_unrecorded(word: StateWord) -> Option<StateWord> {
    let waits = State::Waiting(WaitReason::Await);
    let to = if word.is_notified() { State::Runnable } else { waits };
    (word.state() == State::Running).then(|| word.next(to, LOST_GENERATION))
}
