//! hotpath as a peer of rtprof's async tasks: it counts the calls and polls of a future, and their time, by its place in
//! the source.

use hotpath::{Format, HotpathGuardBuilder};
use rtprof_benches::async_work::{Spawn, runtime, serve_works};
use tokio::task::JoinHandle;

fn main() {
    // Without the report at the end.
    let _guard = HotpathGuardBuilder::new("main").format(Format::None).build();
    serve_works(runtime, Counted);
}

/// Spawns tasks whose futures hotpath counts.
#[derive(Clone, Copy)]
struct Counted;

impl Spawn for Counted {
    fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(hotpath::future!(future))
    }
}
