//! A random program, recorded as the tracer would record it, for tests: threads that are created, wait, wake each
//! other, end or vanish, while records are lost and clocks differ.

mod calls;
mod run;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_tracer::record::RecordKind;

use super::recorded::RecordedLane;
use tasks::Task;

/// The mishaps that may happen.
#[derive(Clone, Copy)]
pub(crate) struct Mishaps {
    /// How many of 1000 steps begin a loss of a lane's records.
    pub(crate) loss: u64,
    /// How many of 1000 ends of threads are not recorded.
    pub(crate) vanish: u64,
    /// The largest difference between the threads' clocks, in ticks.
    pub(crate) skew: u64,
    /// The number of tasks, which threads poll.
    pub(crate) tasks: u64,
    /// The most ticks between two actions.
    pub(crate) pace: u64,
    /// Whether there are calls that are in progress when a generation ends.
    pub(crate) calls: bool,
}

impl Mishaps {
    /// Whether all formats show the same. A call whose record is lost is in those alone that showed it before.
    pub(crate) fn leave_formats_equal(self) -> bool {
        self.loss == 0 || !self.calls
    }
}

/// One thread and its goroutine, in the true state.
struct Thread {
    state: State,
    number: u64,
    /// The generation in which it was declared, 0 after changes that were lost.
    declared: u32,
    skew: u64,
    regions: Vec<(u64, u64)>,
    /// The tasks that it polls, each inside the poll of the previous one.
    polling: Vec<u64>,
    has_polled: bool,
    call: Option<Call>,
}

/// A call in progress, which is recorded when it is over.
#[derive(Clone, Copy)]
struct Call {
    state: State,
    begin: u64,
    is_told: bool,
}

impl Thread {
    /// Returns the state in which a trace that ends now shows the thread.
    fn shown(&self) -> State {
        self.call.filter(|call| call.is_told).map_or(self.state, |call| call.state)
    }

    fn can_act(&self) -> bool {
        self.state == State::Running && self.call.is_none()
    }
}

/// A lane that is being written.
struct Writing {
    lane: RecordedLane,
    tick: u64,
    is_begun: bool,
    /// Remaining steps for which all records are lost.
    losing: u64,
    has_lost: bool,
}

pub(crate) struct Simulation {
    random: u64,
    mishaps: Mishaps,
    threads: BTreeMap<u64, Thread>,
    tasks: BTreeMap<u64, Task>,
    lanes: BTreeMap<u64, Writing>,
    next_thread: u64,
    next_task: u64,
    collections: u64,
    collector: Option<u64>,
    pub(crate) now: u64,
    generation: u32,
    /// The number of written records of each kind.
    pub(crate) written: BTreeMap<u8, usize>,
    /// The number of calls that were waits.
    pub(crate) waits_in_calls: usize,
    pub(crate) lost: usize,
}

const REASONS: [WaitReason; 6] = [
    WaitReason::MutexLock,
    WaitReason::CondWait,
    WaitReason::ChanReceive,
    WaitReason::Select,
    WaitReason::Net,
    WaitReason::Sleep,
];

impl Simulation {
    /// A program of some threads that have run for a while.
    pub(crate) fn new(seed: u64, threads: u64, now: u64, mishaps: Mishaps) -> Self {
        let mut simulation = Self {
            random: seed,
            mishaps,
            threads: BTreeMap::new(),
            tasks: BTreeMap::new(),
            lanes: BTreeMap::new(),
            next_thread: threads + 1,
            next_task: 1,
            collections: 0,
            collector: None,
            now,
            generation: 0,
            written: BTreeMap::new(),
            waits_in_calls: 0,
            lost: 0,
        };
        for id in 1..=threads {
            let state = match simulation.chance(4) {
                0 => State::Waiting(WaitReason::Join),
                1 => State::Syscall,
                2 => State::Runnable,
                _ => State::Running,
            };
            let number = simulation.chance(1000);
            let thread = simulation.thread(state, number);
            simulation.threads.insert(id, thread);
        }
        simulation.add_tasks(mishaps.tasks);
        simulation
    }

    fn thread(&mut self, state: State, number: u64) -> Thread {
        let skew = self.chance(self.mishaps.skew + 1);
        Thread {
            state,
            number,
            declared: 0,
            skew,
            regions: Vec::new(),
            polling: Vec::new(),
            has_polled: false,
            call: None,
        }
    }

    fn chance(&mut self, of: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % of
    }

    /// Returns the true state of every goroutine that is not suspended. A thread that polls is suspended, and one that
    /// has polled may be.
    pub(crate) fn states(&self) -> impl Iterator<Item = (u64, State)> + '_ {
        let is_shown = |thread: &Thread| {
            thread.polling.is_empty() && !(thread.has_polled && thread.state == State::Running)
        };
        let threads = self.threads.iter().filter(move |(_, thread)| is_shown(thread));
        threads.map(|(&id, thread)| (id, thread.shown())).chain(self.task_states())
    }

    /// Stops all mishaps from now on.
    pub(crate) fn calm(&mut self) {
        self.mishaps.loss = 0;
        self.mishaps.vanish = 0;
        self.lanes.values_mut().for_each(|lane| lane.losing = 0);
    }

    /// Returns one generation of about `steps` records, lanes in random order.
    pub(crate) fn generation(&mut self, steps: usize) -> Vec<RecordedLane> {
        self.generation += 1;
        for _ in 0..steps {
            self.now += 1 + self.chance(self.mishaps.pace);
            if self.chance(1000) < self.mishaps.loss {
                let lane = self.any_thread().unwrap_or(0);
                let lane = if self.chance(4) == 0 { 0 } else { lane };
                let losing = 1 + self.chance(40);
                self.lane(lane).losing = losing;
            }
            match self.chance(20) {
                0 => self.sweep_one(),
                _ => self.step(),
            }
        }
        // The cut declares all goroutines that were not declared until now.
        let ids: Vec<u64> = self.threads.keys().copied().collect();
        for id in ids {
            self.declare(id, 0);
        }
        self.declare_tasks();
        self.tell_calls();
        let mut lanes: Vec<RecordedLane> = Vec::new();
        let ended: Vec<u64> =
            self.lanes.keys().copied().filter(|&id| id != 0 && !self.threads.contains_key(&id)).collect();
        for (id, writing) in &mut self.lanes {
            let mut lane = std::mem::replace(&mut writing.lane, RecordedLane::new(*id));
            writing.is_begun = false;
            if ended.contains(id) {
                lane.over();
            }
            lanes.push(lane);
        }
        for id in ended {
            self.lanes.remove(&id);
        }
        for at in (1..lanes.len()).rev() {
            let other = self.chance(at as u64 + 1) as usize;
            lanes.swap(at, other);
        }
        lanes
    }

    fn any_thread(&mut self) -> Option<u64> {
        let at = self.chance(self.threads.len().max(1) as u64) as usize;
        self.threads.keys().nth(at).copied()
    }

    fn lane(&mut self, id: u64) -> &mut Writing {
        self.lanes.entry(id).or_insert_with(|| Writing {
            lane: RecordedLane::new(id),
            tick: 0,
            is_begun: false,
            losing: 0,
            has_lost: false,
        })
    }

    /// Writes a record, or loses it; returns whether it was written.
    fn record(&mut self, lane: u64, write: impl FnOnce(&mut RecordedLane, u64)) -> bool {
        let skew = self.threads.get(&lane).map_or(0, |thread| thread.skew);
        let goroutine = self.polled(lane).or_else(|| {
            self.threads.get(&lane).filter(|thread| thread.state == State::Running).map(|_| lane)
        });
        let goroutine = goroutine.unwrap_or(0);
        let now = self.now + skew;
        let begins = self.chance(50) == 0;
        let writing = self.lane(lane);
        writing.tick = writing.tick.max(now);
        if writing.losing > 0 {
            writing.losing -= 1;
            writing.has_lost = true;
            self.lost += 1;
            return false;
        }
        if !writing.is_begun || begins || writing.has_lost {
            writing.lane.buffer(writing.tick, goroutine, writing.has_lost);
            writing.is_begun = true;
            writing.has_lost = false;
        }
        write(&mut writing.lane, writing.tick);
        true
    }

    fn put<const N: usize>(&mut self, lane: u64, kind: RecordKind, arguments: [u64; N]) -> bool {
        let is_written = self.record(lane, |lane, tick| {
            lane.put(tick, kind, arguments);
        });
        if is_written {
            *self.written.entry(kind as u8).or_default() += 1;
        }
        is_written
    }

    /// Declares a goroutine on a lane, unless it is declared already.
    fn declare(&mut self, id: u64, lane: u64) {
        let thread = &self.threads[&id];
        if thread.declared == self.generation {
            return;
        }
        let is_after_loss = thread.declared == 0 && self.generation > 1;
        let state = thread.state.number().into();
        let arguments = [id, thread.number, state, id, 100 + id, id % 4, 1, is_after_loss.into()];
        if self.put(lane, RecordKind::Status, arguments) {
            self.threads.get_mut(&id).unwrap().declared = self.generation;
        }
    }

    fn sweep_one(&mut self) {
        if let Some(id) = self.any_thread() {
            self.declare(id, 0);
            let bytes = self.chance(1 << 30);
            self.put(0, RecordKind::HeapAlloc, [bytes]);
        }
    }

    /// Changes the state of `id`, and records that on `lane` with a record that carries the change's number.
    fn change<const N: usize>(
        &mut self,
        id: u64,
        lane: u64,
        to: State,
        kind: RecordKind,
        arguments: impl FnOnce(u64) -> [u64; N],
    ) {
        self.declare(id, lane);
        let thread = self.threads.get_mut(&id).unwrap();
        thread.number += 1;
        let arguments = arguments(thread.number);
        let was_declared = thread.declared == self.generation;
        // The state changes even if the record is lost; the record comes before the change.
        let is_written = was_declared && self.put(lane, kind, arguments);
        let thread = self.threads.get_mut(&id).unwrap();
        thread.state = to;
        if !is_written {
            thread.declared = 0;
            self.lane(lane).has_lost = true;
        }
    }

    /// Makes one random step of a thread.
    fn step(&mut self) {
        let Some(id) = self.any_thread() else { return };
        let thread = &self.threads[&id];
        match thread.state {
            State::Running if thread.call.is_some() => self.go_on_in_call(id),
            State::Running => self.run(id),
            State::Runnable => self.change(id, id, State::Running, RecordKind::Start, |number| [id, number]),
            State::Syscall => self.change(id, id, State::Running, RecordKind::SyscallEnd, |_| []),
            State::Waiting(_) => match self.chance(3) {
                0 => self.change(id, id, State::Running, RecordKind::Wake, |_| []),
                1 => self.change(id, 0, State::Runnable, RecordKind::Unblock, |number| [id, number, 0]),
                _ => {
                    let running = self.threads.iter().find(|(_, thread)| thread.can_act()).map(|(&id, _)| id);
                    if let Some(waker) = running {
                        self.declare(waker, waker);
                        self.change(id, waker, State::Runnable, RecordKind::Unblock, |number| {
                            [id, number, 1]
                        });
                    }
                }
            },
            State::Dead => {}
        }
    }

    fn create(&mut self, creator: u64) {
        let id = self.next_thread;
        if !self.put(creator, RecordKind::Create, [id, id % 4, 1]) && self.chance(2) == 0 {
            return;
        }
        self.next_thread += 1;
        let mut thread = self.thread(State::Runnable, 0);
        // Unless the record was lost.
        thread.declared = if self.lane(creator).has_lost { 0 } else { self.generation };
        if self.chance(10) == 0 && thread.declared != 0 {
            self.put(creator, RecordKind::CreateFailed, [id]);
            return;
        }
        self.threads.insert(id, thread);
    }

    fn end(&mut self, id: u64) {
        let vanishes = self.chance(1000) < self.mishaps.vanish;
        if !vanishes {
            self.change(id, id, State::Dead, RecordKind::End, |_| []);
        }
        self.lane(id);
        self.threads.remove(&id);
        if vanishes && self.chance(2) == 0 && !self.lanes[&id].is_begun {
            // Not even the end of its thread is recorded.
            self.lanes.remove(&id);
        }
    }
}
