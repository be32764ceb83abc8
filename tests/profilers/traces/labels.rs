//! Labels of threads in a trace.

use rtprof::pprof;
use rtprof::sync::mpsc::channel;
use rtprof::thread;
use rtprof_trace_check::{EventType, Parsed};
use test_support::child;
use test_support::contention::{thread_id, wait_until_asleep};
use test_support::recording;

fn traced(body: impl FnOnce()) -> Parsed {
    recording::record(body).parsed
}

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.into())
}

#[test]
fn a_thread_shows_the_labels_it_runs_with() {
    child::isolated("a_thread_shows_the_labels_it_runs_with", || {
        let parsed = traced(|| {
            let (ask, asked) = channel();
            let (answer, answered) = channel();
            let (tx, rx) = std::sync::mpsc::channel();
            let asker = thread_id();
            let worker = named("worker").spawn(move || {
                tx.send(thread_id()).expect("the test listens");
                let reply = || {
                    let n: u32 = asked.recv().expect("somebody asks");
                    // The asker must not hold the channel's lock, which would make this thread wait.
                    wait_until_asleep(asker);
                    answer.send(n + 1).expect("somebody listens");
                };
                reply();
                pprof::do_with(pprof::labels(&[("tenant", "a"), ("path", "/x")]), || {
                    reply();
                    reply();
                });
                reply();
                reply();
            });
            let worker_id = rx.recv().expect("it has begun");
            for n in 0..5 {
                wait_until_asleep(worker_id);
                ask.send(n).expect("it listens");
                assert_eq!(answered.recv(), Ok(n + 1));
            }
            worker.expect("a thread").join().expect("it ends well");
        });
        let worker = parsed.goroutines_named("worker").next().expect("it is there");
        let labels: Vec<_> = parsed
            .events()
            .filter(|event| event.target() == Some(worker))
            .filter_map(|event| match event.event_type() {
                EventType::GoStart | EventType::GoStartLocal => Some(""),
                EventType::GoStartLabel => Some(event.name()),
                _ => None,
            })
            .collect();
        // The goroutine's beginning, and five wake-ups.
        let story: Vec<_> =
            parsed.events().filter(|event| event.g() == worker || event.target() == Some(worker)).collect();
        let expected = ["", "", "path=/x tenant=a", "path=/x tenant=a", "worker", ""];
        assert_eq!(labels, expected, "{story:#?}");
    });
}
