//! Samples of the processor.

use rtprof_profiler::goroutine::{self, Goroutine};

use crate::record::Kind;
use crate::thread::{handler_turn, in_own_lane, is_enabled};
use crate::turn::Turn;

/// The current thread was found with this stack, return addresses, leaf first, at most [`MAX_STACK`](rtprof_profiler::MAX_STACK),
/// when `periods` of its processor time were over: so many samples. May be called in the signal handler that has interrupted
/// it, wherever. Samples of a thread that has no goroutine, because the profiler has not met it yet, are of none. For hooks.
/// Go: `traceCPUSample`.
pub fn cpu_sample(frames: &[usize], periods: u64) {
    if !is_enabled() {
        return;
    }
    let own = goroutine::known();
    // What the goroutine does is not changed by this: it may be about to wait.
    let sample = |turn: &mut Turn<'_>| {
        if let Some(own) = own {
            turn.declare(own);
        }
        if !turn.count_if_lost() {
            let (id, stack) = (own.map_or(0, Goroutine::id), turn.stack_of(frames));
            turn.write(Kind::CpuSample, turn.now(), [id, stack.into(), periods]);
        }
    };
    if own.and_then(|own| in_own_lane(own, sample)).is_none() {
        handler_turn(sample);
    }
}
