//! The threads of tokio's runtimes.

use rtprof_runtime::clock;
use rtprof_runtime::goroutine;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_tracer::states;
use tokio::runtime::Builder;

/// Makes the threads of a runtime goroutines from their start, and shows in traces when its workers have nothing to do:
/// as a wait for the network, which is where they wait for sockets, timers and tasks. A worker runs from its wake until
/// it polls a task of [`task`](crate::task), or has nothing to do again. Without this a trace has a worker from its
/// first event on.
///
/// ```
/// # use rtprof_hooks as rtprof;
/// use tokio::runtime::Builder;
///
/// // Likewise with `Builder::new_multi_thread()`.
/// let runtime = rtprof::task::observe_workers(Builder::new_current_thread().enable_all()).build()?;
/// runtime.block_on(rtprof::task::instrument(async { /* the service */ }));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// It sets `on_thread_start`, `on_thread_park` and `on_thread_unpark`, of which a builder has one each. While no trace
/// is recorded, a worker that goes to sleep notes the time and its state, and its state again when it wakes.
pub fn observe_workers(builder: &mut Builder) -> &mut Builder {
    builder
        .on_thread_start(|| {
            goroutine::current();
        })
        .on_thread_park(parks)
        .on_thread_unpark(unparks)
}

fn parks() {
    // While no trace is recorded too: one that begins later shows the worker waiting from its beginning.
    if let Some(own) = goroutine::current() {
        // The worker's stack is recorded here, and not kept: this function returns before the worker sleeps.
        states::announce(own, WaitReason::Net, clock::ticks());
    }
}

fn unparks() {
    if let Some(own) = goroutine::known() {
        states::resume(own);
    }
}
