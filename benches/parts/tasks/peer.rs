//! console-subscriber, the server side of tokio-console, as a peer of rtprof's async tasks. No client connects here.
//!
//! tokio reports tasks to it only in builds with `--cfg tokio_unstable` and tokio's feature `tracing`, so this is a
//! separate build.
//!
//! Request: `work RUNTIME WORK _ COUNT`, as of `part-tasks`; answers nanoseconds for a task or poll.

use std::collections::HashMap;
use std::time::Duration;

use console_subscriber::ConsoleLayer;
use rtprof_benches::async_work::{Plain, Work, runtime};
use rtprof_benches::serve::serve;

fn main() {
    let builder = ConsoleLayer::builder().server_addr(([127, 0, 0, 1], 0));
    // console-subscriber keeps the data of a task for an hour after its end, which would be gigabytes here.
    builder.retention(Duration::from_secs(1)).init();
    let mut runtimes = HashMap::new();
    serve(|request| match request.word() {
        "work" => {
            let name = request.word();
            let runtime = runtimes.entry(name.to_owned()).or_insert_with(|| runtime(name));
            let (work, _how, count) = (Work::named(request.word()), request.word(), request.number());
            vec![work.nanos(runtime, count, Plain)]
        }
        other => panic!("unknown request {other}"),
    });
}
