//! The end of a trace.

use super::changes::Schedule;
use super::goroutines::Phase;
use super::procs::Wire;
use super::reason::Reason;

impl<W: Wire> Schedule<W> {
    /// Ends the trace in a way that every reader accepts: no goroutine runs, and nothing is open but system calls,
    /// tasks and regions.
    pub(crate) fn finish(&mut self, tick: u64) {
        let tick = self.in_file(tick);
        self.finish_stop(tick);
        self.begin_open_calls();
        self.finish_collection(tick);
        for index in self.goroutines.indices() {
            if self.goroutines[index].phase == Phase::Running {
                self.end_sweep(self.goroutines[index].proc, tick);
                self.end_assist(index, tick);
                self.pause_for(index, tick, Reason::Yield, 0);
            }
        }
        for proc in self.procs.indices() {
            self.stop_proc(proc, tick);
        }
        self.procs.wire.finish();
    }
}
