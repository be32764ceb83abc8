//! The threads of tokio's runtimes.

use rtprof_runtime::clock;
use rtprof_runtime::goroutine;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_tracer::states;
use tokio::runtime::Builder;

/// Registers each thread of a runtime as a goroutine when the thread starts, and shows in traces when a worker is idle.
/// An idle worker appears as waiting for the network, because it waits there for sockets, timers and tasks. A woken
/// worker appears as running until it polls a task of [`task`](crate::task) or is idle again. Without this call a trace
/// shows a worker only from the worker's first event on.
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
/// This sets `on_thread_start`, `on_thread_park` and `on_thread_unpark`; a builder holds one callback of each. While no
/// trace is recorded, a worker notes the time and its state when it goes to sleep, and its state when it wakes.
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
