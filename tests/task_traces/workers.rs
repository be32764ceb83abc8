//! Threads of a runtime of tokio in traces.

use rtprof_trace_check::EventType;
use tokio::runtime::Builder;

use crate::support::{child, until};
use crate::trace_go;
use crate::trace_of::record;

/// A worker is in the trace while it has nothing to do, and runs while it polls a task that is not instrumented.
#[test]
fn idle_workers_wait() {
    child::isolated("idle_workers_wait", || {
        let trace = record(|| {
            let mut builder = Builder::new_multi_thread();
            let builder = builder.worker_threads(2).thread_name("server");
            let runtime = rtprof::task::observe_workers(builder).build().expect("there are threads");
            for _ in 0..3 {
                let metrics = runtime.metrics();
                let is_parked = |worker| metrics.worker_park_unpark_count(worker) % 2 == 1;
                until("both workers have nothing to do", || (0..2).all(is_parked));
                runtime
                    .block_on(runtime.spawn(async { rtprof::trace::log("note", "polled") }))
                    .expect("it ends");
            }
        });
        trace.assert_whole();
        let workers: Vec<u64> = trace.parsed.goroutines_named("server").collect();
        assert_eq!(workers.len(), 2);
        for worker in &workers {
            let story = trace.story(*worker);

            assert!(
                story.iter().any(|event| event.event_type() == EventType::GoBlockNet),
                "{worker} never waits"
            );
        }
        let mut polled = trace.parsed.events_of(EventType::UserLog);
        assert!(polled.clone().count() == 3 && polled.all(|log| workers.contains(&log.g())));
        trace_go::check("workers", &trace, &[]);
    });
}
