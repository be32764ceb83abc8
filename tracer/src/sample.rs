//! Samples of the processor.

use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_runtime::state::State;
use rtprof_runtime::task::Task;

use crate::record::Kind;
use crate::recorder::in_haste;
use crate::thread::{handler_turn, in_own_lane, is_enabled};
use crate::turn::Turn;

/// The current thread was found with this stack, return addresses, leaf first, at most [`MAX_STACK`](rtprof_runtime::MAX_STACK),
/// when `periods` of its processor time were over: so many samples. May be called in the signal handler that has interrupted
/// it, wherever. A thread that the profiler has not met yet is registered ([`goroutine::sampled`]); where that cannot be, its
/// samples are of no goroutine. For hooks.
/// Go: `traceCPUSample`.
pub fn cpu_sample(frames: &[usize], periods: u64) {
    if !is_enabled() {
        return;
    }
    let own = goroutine::sampled();
    let polled = own.and_then(Goroutine::polls);
    // What the goroutine does is not changed by this: it may be about to wait.
    let sample = |turn: &mut Turn<'_>, is_own_lane: bool| {
        if let Some(own) = own {
            turn.declare(own);
        }
        if let (Some(own), Some(task)) = (own, polled) {
            match is_own_lane && own.state().state() == State::Running {
                // Its poll may have begun before the trace.
                true => turn.settle_task(task),
                false => turn.declare_task(task),
            }
        }
        let polled = polled.filter(|task| task.traced().generation() != 0);
        (!turn.is_blind()).then(|| {
            let (id, stack) = (own.map_or(0, Goroutine::id), turn.stack_of(frames));
            let task = polled.map_or(0, Task::id);
            turn.write(Kind::CpuSample, turn.now(), [id, task, stack.into(), periods]);
        })
    };
    in_haste(|| {
        if own.and_then(|own| in_own_lane(own, |turn| sample(turn, true)).flatten()).is_none() {
            handler_turn(|turn| sample(turn, false).or_else(|| turn.count_if_lost().then_some(())));
        }
    });
}
