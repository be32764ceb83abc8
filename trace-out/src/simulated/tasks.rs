//! Tasks of a random program, which its threads poll.

use rtprof_runtime::goroutine::state::State;
use rtprof_tracer::record::RecordKind;

use super::{REASONS, Simulation};

/// A task, in its true state.
pub(super) struct Task {
    state: State,
    number: u64,
    /// As in threads.
    declared: u32,
    is_polled: bool,
    pub(super) regions: Vec<(u64, u64)>,
}

impl Simulation {
    /// Adds tasks that have existed for a while.
    pub(super) fn add_tasks(&mut self, count: u64) {
        for _ in 0..count {
            let state = if self.chance(2) == 0 { State::Runnable } else { State::Waiting(REASONS[0]) };
            let number = self.chance(1000);
            self.add_task(state, number, 0);
        }
    }

    /// Returns the regions of the goroutine that runs on a thread.
    pub(super) fn regions(&mut self, thread: u64) -> &mut Vec<(u64, u64)> {
        match self.polled(thread) {
            Some(task) => &mut self.tasks.get_mut(&task).unwrap().regions,
            None => &mut self.threads.get_mut(&thread).unwrap().regions,
        }
    }

    fn add_task(&mut self, state: State, number: u64, declared: u32) {
        let id = self.next_thread;
        self.next_thread += 1;
        self.tasks.insert(id, Task { state, number, declared, is_polled: false, regions: Vec::new() });
    }

    /// Returns the innermost task that a thread polls.
    pub(super) fn polled(&self, thread: u64) -> Option<u64> {
        self.threads.get(&thread)?.polling.last().copied()
    }

    /// Returns the true states of the tasks that no thread polls, and of the innermost task of each polling thread,
    /// which has the thread's state. (If the beginning of a poll may have been lost, the polling thread is known only
    /// when the poll ends.)
    pub(super) fn task_states(&self) -> impl Iterator<Item = (u64, State)> + '_ {
        let idle = self.tasks.iter().filter(|(_, task)| !task.is_polled).map(|(&id, task)| (id, task.state));
        let innermost = |thread: &super::Thread| Some((*thread.polling.last()?, thread.shown()));
        let polled = self.threads.values().filter(|_| self.lost == 0).filter_map(innermost);
        idle.chain(polled)
    }

    pub(super) fn declare_tasks(&mut self) {
        let ids: Vec<u64> = self.tasks.keys().copied().collect();
        ids.into_iter().for_each(|id| self.declare_task(id, 0));
    }

    pub(super) fn declare_task(&mut self, id: u64, lane: u64) {
        let task = &self.tasks[&id];
        if task.declared == self.generation {
            return;
        }
        let is_after_loss = task.declared == 0 && self.generation > 1;
        let state = task.state.number().into();
        let arguments = [id, task.number, state, 0, 0, id % 4, 1, u64::from(is_after_loss) | 2];
        if self.put(lane, RecordKind::Status, arguments) {
            self.tasks.get_mut(&id).unwrap().declared = self.generation;
        }
    }

    fn change_task<const N: usize>(
        &mut self,
        id: u64,
        lane: u64,
        to: State,
        kind: RecordKind,
        arguments: impl FnOnce(u64) -> [u64; N],
    ) {
        self.declare_task(id, lane);
        let task = self.tasks.get_mut(&id).unwrap();
        task.number += 1;
        let arguments = arguments(task.number);
        let was_declared = task.declared == self.generation;
        let is_written = was_declared && self.put(lane, kind, arguments);
        let task = self.tasks.get_mut(&id).unwrap();
        task.state = to;
        if !is_written {
            task.declared = 0;
            self.lane(lane).has_lost = true;
        }
    }

    /// Makes a random action of a running thread with tasks. `false` if it does something else.
    pub(super) fn run_tasks(&mut self, thread: u64) -> bool {
        if self.tasks.is_empty() {
            return false;
        }
        let at = self.chance(self.tasks.len() as u64) as usize;
        let (&other, task) = self.tasks.iter().nth(at).unwrap();
        let (is_polled, state) = (task.is_polled, task.state);
        match (self.chance(8), self.polled(thread)) {
            (0 | 1, Some(polled)) => self.end_poll(thread, polled),
            (0..3, _) if !is_polled && self.threads[&thread].polling.len() < 3 => self.poll(thread, other),
            (3, _) if matches!(state, State::Waiting(_)) => {
                let lane = if self.chance(5) == 0 { 0 } else { thread };
                self.change_task(other, lane, State::Runnable, RecordKind::Unblock, |number| {
                    [other, number, 1]
                });
            }
            (4, _) if self.chance(3) == 0 => {
                let id = self.next_thread;
                if self.put(thread, RecordKind::CreateAsync, [id, id % 4, 1]) {
                    self.add_task(State::Runnable, 0, self.generation);
                }
            }
            _ => return false,
        }
        true
    }

    fn poll(&mut self, thread: u64, task: u64) {
        self.change_task(task, thread, State::Running, RecordKind::Poll, |number| [task, number]);
        self.tasks.get_mut(&task).unwrap().is_polled = true;
        let poller = self.threads.get_mut(&thread).unwrap();
        poller.polling.push(task);
        poller.has_polled = true;
    }

    fn end_poll(&mut self, thread: u64, task: u64) {
        let reason = REASONS[self.chance(6) as usize];
        match self.chance(8) {
            0 if self.tasks.len() > 4 => {
                self.change_task(task, thread, State::Dead, RecordKind::Ready, |number| [task, number]);
                self.tasks.remove(&task);
            }
            1 => self.change_task(task, thread, State::Runnable, RecordKind::Reschedule, |number| {
                [task, number, 1]
            }),
            2 => {
                let arguments = |number| [task, number, reason as u64, 1, 1, 0, 0, 0];
                self.change_task(task, thread, State::Waiting(reason), RecordKind::AwaitSeveral, arguments);
            }
            _ => {
                let arguments = |number| [task, number, reason as u64, 1];
                self.change_task(task, thread, State::Waiting(reason), RecordKind::Await, arguments);
            }
        }
        if let Some(task) = self.tasks.get_mut(&task) {
            task.is_polled = false;
        }
        self.threads.get_mut(&thread).unwrap().polling.pop();
    }
}
