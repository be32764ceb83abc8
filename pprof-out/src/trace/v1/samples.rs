//! Samples of the processor.

use rtprof_tracer::generation::Tables;
use rtprof_tracer::record::StackId;

use super::events::Events;
use super::goroutines::Phase;
use super::procs::OUTSIDE;

impl Events {
    /// A goroutine was found running with this stack. If it does not run, as far as the trace has come, the sample is of
    /// no P.
    pub(super) fn sample(&mut self, place: u32, tick: u64, stack: StackId, tables: &dyn Tables) {
        let goroutine = &self.goroutines[place];
        let proc = if goroutine.phase == Phase::Running { goroutine.proc } else { OUTSIDE };
        let stack = self.names.stack(stack, goroutine.name, tables);
        self.procs.put_sample(tick.max(goroutine.tick), proc, goroutine.id, stack);
    }
}
