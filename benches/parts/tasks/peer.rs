//! console-subscriber, which stands beside rtprof's async tasks: what tokio-console connects to. Nobody connects here.
//!
//! tokio tells it of tasks in builds with `--cfg tokio_unstable` and its feature `tracing` only, so this is a build by itself.
//!
//! Request: `work RUNTIME WORK _ COUNT`, as of `part-tasks`; answers nanoseconds a task or poll.

use std::collections::HashMap;
use std::time::Duration;

use console_subscriber::ConsoleLayer;
use rtprof_benches::async_work::{Plain, Work, runtime};
use rtprof_benches::serve::serve;

fn main() {
    let builder = ConsoleLayer::builder().server_addr(([127, 0, 0, 1], 0));
    // It keeps what it knows of a task for an hour after its end: here that would be gigabytes.
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
