//! CPU samples.

use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::task::Task;

use crate::lane_writer::LaneWriter;
use crate::record::RecordKind;
use crate::recorder::in_haste;
use crate::thread::{in_own_lane, is_enabled, record_in_handler};

/// Records CPU samples of the current thread: `frames` are return addresses, leaf first, at most
/// [`MAX_STACK`](rtprof_runtime::MAX_STACK); `periods` is the number of samples, one for each elapsed period of
/// processor time. May be called in the signal handler that has interrupted the thread, at any point. A thread that the
/// profiler has not met yet is registered ([`goroutine::sampled`]); if that fails, its samples belong to no goroutine.
/// Safe to call in a hook. Go: `traceCPUSample`.
pub fn cpu_sample(frames: &[usize], periods: u64) {
    if !is_enabled() {
        return;
    }
    let own = goroutine::sampled();
    let polled = own.and_then(Goroutine::polls);
    // A sample does not change the goroutine's state, because the goroutine may be about to wait.
    let sample = |writer: &mut LaneWriter<'_>, is_own_lane: bool| {
        if let Some(own) = own {
            writer.declare(own);
        }
        if let (Some(own), Some(task)) = (own, polled) {
            match is_own_lane && own.state().state() == State::Running {
                // The poll may have begun before the trace.
                true => writer.settle_task(task),
                false => writer.declare_task(task),
            }
        }
        let polled = polled.filter(|task| task.traced().mark() != 0);
        (!writer.is_blind()).then(|| {
            let (id, stack) = (own.map_or(0, Goroutine::id), writer.stack_of(frames));
            let task = polled.map_or(0, Task::id);
            writer.write(RecordKind::CpuSample, writer.now(), [id, task, stack.into(), periods]);
        })
    };
    in_haste(|| {
        if own.and_then(|own| in_own_lane(own, |writer| sample(writer, true)).flatten()).is_none() {
            record_in_handler(|writer| {
                sample(writer, false).or_else(|| writer.count_if_lost().then_some(()))
            });
        }
    });
}
