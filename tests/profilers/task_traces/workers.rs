//! Threads of a runtime of tokio in traces.

use rtprof_trace_check::EventType;
use test_support::recording::record;
use test_support::trace_go;
use test_support::{child, until};
use tokio::runtime::{Builder, Runtime};

/// Starts a runtime with two workers, which have the name `server`.
fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(2).thread_name("server");
    rtprof::task::observe_workers(builder).build().expect("there are threads")
}

fn until_idle(runtime: &Runtime) {
    let metrics = runtime.metrics();
    let is_parked = |worker| metrics.worker_park_unpark_count(worker) % 2 == 1;
    until("both workers have nothing to do", || (0..2).all(is_parked));
}

/// A worker is in the trace while it has nothing to do, and runs while it polls a task that is not instrumented.
#[test]
fn idle_workers_wait() {
    child::isolated("idle_workers_wait", || {
        let trace = record(|| {
            let runtime = runtime();
            for _ in 0..3 {
                until_idle(&runtime);
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

/// A worker that has nothing to do when the trace begins waits from its beginning.
#[test]
fn workers_that_were_idle_before_wait() {
    child::isolated("workers_that_were_idle_before_wait", || {
        let runtime = runtime();
        until_idle(&runtime);
        let trace = record(|| runtime.block_on(runtime.spawn(async {})).expect("it ends"));
        trace.assert_whole();
        let workers: Vec<u64> = trace.parsed.goroutines_named("server").collect();
        assert_eq!(workers.len(), 2);
        for worker in workers {
            // A goroutine whose first status is a wait is shown as created, run and stopped at one time.
            let [created, _run, stopped, ..] = trace.story(worker)[..] else {
                panic!("{worker} has no status")
            };
            assert_eq!(stopped.event_type(), EventType::GoBlock);
            assert_eq!(stopped.tick(), created.tick());
        }
    });
}
