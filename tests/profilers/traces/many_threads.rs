//! More threads than large buffers fit into the memory: threads that record little lose nothing.

use std::sync::Barrier;

use rtprof::thread;
use rtprof::trace::{self, Options};
use rtprof_trace_check::EventType;
use test_support::child;
use test_support::recording::record_with;

/// With a large buffer for each, these threads would take 12 MiB.
const THREADS: usize = 200;

#[test]
fn quiet_threads_lose_nothing() {
    child::isolated("quiet_threads_lose_nothing", || {
        let options = Options { buffer_memory: 1 << 20, ..Options::default() };
        let meeting = Barrier::new(THREADS);
        let trace = record_with(options, || {
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    let body = || {
                        trace::log("quiet", "begins");
                        // All threads at once.
                        meeting.wait();
                        trace::log("quiet", "ends");
                    };
                    drop(thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, body));
                }
            });
        });
        trace.assert_whole();
        assert_eq!(trace.parsed.count(EventType::UserLog), 2 * THREADS);
    });
}

/// A log of the maximum length fits into any buffer, even several in a row.
#[test]
fn long_messages_are_whole() {
    child::isolated("long_messages_are_whole", || {
        let message = "m".repeat(1024);
        let trace = record_with(Options::default(), || {
            for _ in 0..200 {
                trace::log("long", &message);
                trace::with_region("short", || ());
            }
        });
        trace.assert_whole();
        let mut logs = trace.parsed.events_of(EventType::UserLog);
        assert!(logs.all(|log| log.message() == message));
        assert_eq!(trace.parsed.count(EventType::UserLog), 200);
    });
}
