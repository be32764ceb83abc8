//! Samples of the processor.

use rtprof_profiler::goroutine;

use crate::record::Kind;
use crate::thread::{in_own_lane, is_enabled, shared_turn};
use crate::turn::Turn;

/// The current thread's goroutine was found running with this stack: return addresses, leaf first, at most
/// [`MAX_STACK`](rtprof_profiler::MAX_STACK). May be called in the signal handler that has interrupted it, wherever. Nothing,
/// in a thread that has no goroutine. For hooks. Go: `traceCPUSample`.
pub fn cpu_sample(frames: &[usize]) {
    if !is_enabled() {
        return;
    }
    let Some(own) = goroutine::known() else { return };
    // What the goroutine does is not changed by this: it may be about to wait.
    let sample = |turn: &mut Turn<'_>| {
        turn.declare(own);
        if !turn.count_if_lost() {
            let stack = turn.stack_of(frames);
            turn.write(Kind::CpuSample, turn.now(), [own.id(), stack.into()]);
        }
    };
    if in_own_lane(own, sample).is_none() {
        shared_turn(sample);
    }
}
