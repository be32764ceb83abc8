//! The end of a trace.

use rtprof_runtime::state::State;

use crate::order::SHARED;

use super::event::EventType;
use super::events::Events;
use super::goroutines::Phase;
use super::procs::OUTSIDE;

impl Events {
    /// Brings the trace to an end that every reader can bear: nothing runs, and nothing is open but system calls,
    /// tasks and regions.
    pub(super) fn finish(&mut self, tick: u64) {
        let tick = tick >> self.shift;
        if let Some(place) = self.stop_of
            && self.goroutines[place].phase != Phase::Running
        {
            // Only a goroutine that runs can let the world go on.
            self.bring(place, State::Runnable, SHARED, None, tick);
            let (proc, stands_in) = self.idle_proc(None, State::Runnable, tick);
            self.run(place, proc, tick);
            self.end_stop(tick);
            self.pause(place, tick, EventType::GoSched, 0, Phase::Runnable);
            self.stop_proc(proc, tick);
            self.settle(place, State::Runnable, proc, stands_in, tick);
        }
        self.end_stop(tick);
        self.begin_open_calls();
        self.end_collection(OUTSIDE, tick);
        for place in self.goroutines.places() {
            if self.goroutines[place].phase == Phase::Running {
                self.end_sweep(self.goroutines[place].proc, tick);
                self.end_assist(place, tick);
                self.pause(place, tick, EventType::GoSched, 0, Phase::Runnable);
            }
        }
        for proc in self.procs.places() {
            self.stop_proc(proc, tick);
        }
        self.procs.finish();
    }
}
