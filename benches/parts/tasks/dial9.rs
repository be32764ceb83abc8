//! dial9 as a peer of rtprof's async tasks, attached to the runtime as its README says, with a buffer in memory and no
//! pipeline behind it: it records polls, wakes, and births and ends of tasks, as a trace of rtprof does, without stacks.

use dial9::{Dial9Handle, Dial9HandleTokioExt, MemoryBuffer, TokioAttachOptions, TokioHooks, recorder};
use rtprof_benches::async_work::{Spawn, builder, count_this_thread, serve_works};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// The bytes of events that are kept. The oldest are dropped.
const BUFFER: u64 = 16 << 20;

fn main() {
    let recorder = recorder(MemoryBuffer::new(BUFFER).expect("a buffer")).build();
    serve_works(|name| followed(recorder.handle(), name), Followed);
}

/// Returns the runtime that a request names, attached to the recorder.
fn followed(handle: &Dial9Handle, name: &str) -> Runtime {
    // dial9 replaces the hooks of a builder.
    let mut hooks = TokioHooks::default();
    hooks.on_thread_start(count_this_thread);
    let options = TokioAttachOptions::builder().task_tracking_enabled(true).tokio_hooks(hooks).build();
    handle.attach_tokio_runtime(builder(name), options).expect("a runtime")
}

/// Spawns tasks whose wakes dial9 records too.
#[derive(Clone, Copy)]
struct Followed;

impl Spawn for Followed {
    fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        dial9::spawn(future)
    }
}
