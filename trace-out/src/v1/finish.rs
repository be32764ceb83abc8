//! The end of a trace.

use rtprof_runtime::state::State;

use crate::order::SHARED;

use super::event::EventType;
use super::events::Events;
use super::goroutines::Phase;
use super::procs::OUTSIDE;

impl Events {
    /// Ends the trace in a way that every reader accepts: no goroutine runs, and nothing is open but system calls,
    /// tasks and regions.
    pub(super) fn finish(&mut self, tick: u64) {
        let tick = tick >> self.shift;
        if let Some(index) = self.stop_of
            && self.goroutines[index].phase != Phase::Running
        {
            // Only a running goroutine can restart the world.
            self.bring(index, State::Runnable, SHARED, None, tick);
            let (proc, stands_in) = self.idle_proc(None, State::Runnable, tick);
            self.run(index, proc, tick);
            self.end_stop(tick);
            self.pause(index, tick, EventType::GoSched, 0, Phase::Runnable);
            self.stop_proc(proc, tick);
            self.settle(index, State::Runnable, proc, stands_in, tick);
        }
        self.end_stop(tick);
        self.begin_open_calls();
        self.end_collection(OUTSIDE, tick);
        for index in self.goroutines.indices() {
            if self.goroutines[index].phase == Phase::Running {
                self.end_sweep(self.goroutines[index].proc, tick);
                self.end_assist(index, tick);
                self.pause(index, tick, EventType::GoSched, 0, Phase::Runnable);
            }
        }
        for proc in self.procs.indices() {
            self.stop_proc(proc, tick);
        }
        self.procs.finish();
    }
}
