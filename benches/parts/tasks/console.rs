//! console-subscriber, the server side of tokio-console, as a peer of rtprof's async tasks. No client connects here.
//!
//! tokio reports tasks to it only in builds with `--cfg tokio_unstable` and tokio's feature `tracing`, so this is a
//! separate build.

use std::time::Duration;

use console_subscriber::ConsoleLayer;
use rtprof_benches::async_work::{Plain, runtime, serve_works};

fn main() {
    let builder = ConsoleLayer::builder().server_addr(([127, 0, 0, 1], 0));
    // console-subscriber keeps the data of a task for an hour after its end, which would be gigabytes here.
    builder.retention(Duration::from_secs(1)).init();
    serve_works(runtime, Plain);
}
