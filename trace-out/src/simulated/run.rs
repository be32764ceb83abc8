//! Actions of a running thread.

use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_tracer::record::RecordKind;

use super::{REASONS, Simulation};

impl Simulation {
    /// Makes a random action of a running thread.
    pub(super) fn run(&mut self, id: u64) {
        self.declare(id, id);
        if let Some(polled) = self.polled(id) {
            self.declare_task(polled, id);
        }
        if self.run_tasks(id) {
            return;
        }
        let (task, name) = (self.chance(3), 4 + self.chance(2));
        match self.chance(17) {
            0..=3 => {
                let reason = REASONS[self.chance(6) as usize];
                self.change(id, id, State::Waiting(reason), RecordKind::Block, |_| [reason as u64, 1]);
            }
            4 => self.change(id, id, State::Runnable, RecordKind::Yield, |_| [1]),
            5 => self.change(id, id, State::Syscall, RecordKind::SyscallBegin, |_| [1]),
            6 => self.create(id),
            7 if self.threads.len() > 3 && id != 1 && self.polled(id).is_none() => self.end(id),
            8 => {
                self.put(id, RecordKind::RegionBegin, [task, name, 1]);
                self.regions(id).push((task, name));
            }
            9 | 10 => {
                if let Some((task, name)) = self.regions(id).pop() {
                    self.put(id, RecordKind::RegionEnd, [task, name]);
                }
            }
            11 => {
                let task = self.next_task;
                self.next_task += 1;
                self.put(id, RecordKind::TaskCreate, [task, 0, 4, 1]);
                self.put(id, RecordKind::TaskEnd, [task, 1]);
            }
            12 => {
                self.record(id, |lane, tick| {
                    lane.log(tick, task, 6, "note");
                });
            }
            13 => self.collect(id),
            14 => {
                self.put(id, RecordKind::SweepStart, [1]);
                if self.chance(2) == 0 {
                    self.put(id, RecordKind::SweepDone, [1, 2]);
                }
                self.put(id, RecordKind::AssistStart, [1]);
                self.put(id, RecordKind::AssistDone, []);
            }
            15 if self.mishaps.calls && self.chance(2) == 0 => self.begin_call(id),
            15 => {
                // Some seem longer than the thread has run.
                let state = [State::Syscall, State::Waiting(WaitReason::Net)][self.chance(2) as usize];
                let arguments = [state.number().into(), 1, self.chance(5000)];
                let is_written = self.put(id, RecordKind::Call, arguments);
                self.waits_in_calls += usize::from(is_written && state != State::Syscall);
            }
            _ => {
                let bytes = self.chance(1 << 30);
                self.put(id, RecordKind::HeapAlloc, [bytes]);
            }
        }
    }

    fn collect(&mut self, id: u64) {
        match self.collector {
            None => {
                let number = self.collections;
                self.put(id, RecordKind::GcStart, [number, 1]);
                self.put(id, RecordKind::StwStart, [number, number % 2, 1]);
                self.now += 1 + self.mishaps.skew;
                self.put(id, RecordKind::StwDone, [number]);
                self.collector = Some(id);
            }
            // The collection ends on any thread.
            Some(_) => {
                self.put(id, RecordKind::GcDone, [self.collections]);
                self.collections += 1;
                self.collector = None;
            }
        }
    }
}
