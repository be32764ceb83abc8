//! Samples of the processor.

use rtprof_tracer::generation::Tables;
use rtprof_tracer::record::StackId;

use super::events::Events;
use super::goroutines::NONE;

impl Events {
    /// A goroutine, or a thread that has none, was found with this stack when so many periods were over: as many samples of one
    /// moment, so that their number is the processor time. They are of the P of its thread, whatever the goroutine does as far
    /// as the trace has come: a thread may use time that is about to wait, and samples may be told late.
    pub(super) fn samples(
        &mut self,
        (lane, place): (u32, u32),
        tick: u64,
        (stack, count): (StackId, u64),
        tables: &dyn Tables,
    ) {
        let proc = self.proc_of(lane, tick);
        let (tick, goroutine, stack) = if place == NONE {
            (tick, 0, self.names.unnamed_stack(stack, tables))
        } else {
            let goroutine = &self.goroutines[place];
            // Go 1.21 refuses a goroutine that was sampled before it was created. Of two events of one tick it takes
            // either first, so the sample has to be later.
            (tick.max(goroutine.created + 1), goroutine.id, self.names.stack(stack, goroutine.name, tables))
        };
        for _ in 0..count {
            self.procs.put_sample(tick, proc, goroutine, stack);
        }
    }
}
