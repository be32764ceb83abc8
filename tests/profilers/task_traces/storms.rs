//! Traces of programs whose tasks begin and end, wake each other and move between threads: every trace is valid, and
//! nothing is omitted.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rtprof::GoroutineState;
use rtprof::task::Instrument;
use rtprof::trace::{self, Options};
use rtprof_trace_check::EventType;
use test_support::churn::{churn, workers};
use test_support::recording::{Trace, record, start, valid};
use test_support::trace_go;
use test_support::{Background, child, rounds, stress, until};
use tokio::runtime::Builder;
use tokio::sync::{Notify, mpsc};

/// The number of traces that are started and stopped.
const TRACES: usize = 100;

/// Asserts that nothing was lost or omitted: goroutines are in the recorded states, and every event fits.
#[track_caller]
fn check_whole(trace: &Trace) {
    trace.assert_whole();
    trace.assert_in_order();
}

#[test]
fn started_and_stopped_while_tasks_come_and_go() {
    child::isolated("started_and_stopped_while_tasks_come_and_go", || {
        let runtime = workers(2);
        let (background, count) = (Background::default(), AtomicU64::new(0));
        let mut last = None;
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            scope.spawn(|| background.repeat(|| runtime.block_on(churn(&count).instrument_named("churns"))));
            let start = std::time::Instant::now();
            let (mut traces, mut whole) = (0, 0);
            while traces < TRACES || start.elapsed() < stress() {
                let trace = record(|| {
                    // More than the capacity of a channel.
                    let before = count.load(Relaxed);
                    until("tasks have ended", || count.load(Relaxed) > before + 20);
                });
                trace.assert_in_order();
                // A thread loses events while the reader holds its lane and has lost its core; the loss is counted.
                if trace.stats.dropped_events == 0 {
                    trace.assert_whole();
                    whole += 1;
                }
                assert!(trace.parsed.goroutines_named("churned").count() > 0);
                traces += 1;
                last = Some(trace);
            }
            let tasks = 2 * count.load(Relaxed);
            println!(
                "{traces} traces, {whole} without a loss; {:.0} tasks in a second",
                tasks as f64 / start.elapsed().as_secs_f64()
            );
            assert!(whole > traces / 2, "{whole} of {traces} are whole");
        });
        trace_go::check("task-churn", &last.expect("there was one"), &[]);
    });
}

#[test]
fn started_while_thousands_of_tasks_wait() {
    child::isolated("started_while_thousands_of_tasks_wait", || {
        let all = rounds(2_000, 10_000);
        let runtime = workers(2);
        let notify = Arc::new(Notify::new());
        for _ in 0..all {
            let notify = notify.clone();
            runtime.spawn(async move { notify.notified().await }.instrument_named("waits"));
        }
        let waits = |task: &rtprof::GoroutineRecord| {
            task.name == "waits" && matches!(task.state, GoroutineState::Waiting(_))
        };
        until("all wait", || rtprof::goroutine_profile().iter().filter(|task| waits(task)).count() == all);
        let asleep = record(|| ());
        check_whole(&asleep);
        assert_eq!(asleep.parsed.goroutines_named("waits").count(), all);
        trace_go::check("task-waiting", &asleep, &[]);
        // Half of the tasks end in the trace, woken from another thread.
        let trace = record(|| {
            notify.notify_waiters();
            until("all have ended", || rtprof::num_goroutine() < all / 2);
        });
        check_whole(&trace);
        let waiting: HashSet<u64> = trace.parsed.goroutines_named("waits").collect();
        assert_eq!(waiting.len(), all);
        let ends = trace.parsed.events_of(EventType::GoEnd).filter(|end| waiting.contains(&end.g())).count();
        assert!(ends > all / 2, "{ends} have ended");
    });
}

#[test]
fn tasks_wake_each_other_across_runtimes() {
    child::isolated("tasks_wake_each_other_across_runtimes", || {
        const ROUNDS: u64 = 2000;
        let trace = record(|| {
            let runtimes =
                [workers(1), Builder::new_current_thread().build().expect("there is one"), workers(2)];
            let rings: Vec<_> = runtimes.iter().map(|_| mpsc::unbounded_channel::<u64>()).collect();
            let (senders, receivers): (Vec<_>, Vec<_>) = rings.into_iter().unzip();
            let tasks = receivers.into_iter().enumerate().map(|(at, mut receive)| {
                let next = senders[(at + 1) % senders.len()].clone();
                let body = async move {
                    while let Some(round) = receive.recv().await {
                        if next.send(round + 1).is_err() || round >= ROUNDS {
                            break;
                        }
                    }
                };
                body.instrument_named("ring")
            });
            let mut tasks = tasks.collect::<Vec<_>>().into_iter();
            let first = runtimes[0].spawn(tasks.next().expect("three"));
            let current = tasks.next().expect("three");
            let last = runtimes[2].spawn(tasks.next().expect("three"));
            senders[0].send(0).expect("it lives");
            drop(senders);
            runtimes[1].block_on(current);
            runtimes[2].block_on(async move {
                first.await.expect("it ends");
                last.await.expect("it ends");
            });
        });
        check_whole(&trace);
        let ring: Vec<u64> = trace.parsed.goroutines_named("ring").collect();
        let by = |event_type| {
            trace.parsed.events_of(event_type).filter(|wake| ring.contains(&wake.g())).count() as u64
        };
        let wakes = by(EventType::GoUnblock) + by(EventType::GoUnblockLocal);
        assert!(ring.len() == 3 && wakes > 0, "{ring:?}: {wakes} wakes");
        trace_go::check("task-runtimes", &trace, &[]);
    });
}

/// Blocking work: on threads for it, and in place.
#[cfg(feature = "tokio")]
#[test]
fn tasks_that_block_their_thread() {
    child::isolated("tasks_that_block_their_thread", || {
        let lock = Arc::new(rtprof::sync::Mutex::new(()));
        let trace = record(|| {
            let runtime = workers(2);
            runtime.block_on(async {
                for _ in 0..20 {
                    let blocking = lock.clone();
                    let held = lock.lock();
                    let blocks = rtprof::task::spawn_blocking(move || drop(blocking.lock()));
                    let in_place = lock.clone();
                    let polled = async move {
                        tokio::task::yield_now().await;
                        tokio::task::block_in_place(|| drop(in_place.lock()));
                        tokio::task::yield_now().await;
                    };
                    let polled = tokio::spawn(polled.instrument_named("in place"));
                    let waits = |goroutine: &rtprof::GoroutineRecord| {
                        matches!(goroutine.state, GoroutineState::Waiting(reason) if reason.name() == "sync.Mutex.Lock")
                    };
                    until("both wait", || rtprof::goroutine_profile().iter().filter(|all| waits(all)).count() >= 2);
                    drop(held);
                    blocks.await.expect("it ends");
                    polled.await.expect("it ends");
                }
            });
        });
        check_whole(&trace);
        let blocked = |goroutine: &u64| {
            let is_wait =
                |event: &rtprof_trace_check::Event<'_>| event.event_type() == EventType::GoBlockSync;
            let takes_lock = |event: &rtprof_trace_check::Event<'_>| {
                event.functions().iter().any(|name| name.contains("tasks_that_block"))
            };
            trace.story(*goroutine).into_iter().any(|event| is_wait(&event) && takes_lock(&event))
        };
        // In place, the task blocks the thread in its poll.
        assert!(trace.parsed.goroutines_named("in place").any(|task| blocked(&task)));
        trace_go::check("task-blocking", &trace, &[]);
    });
}

#[test]
fn a_runtime_is_dropped_in_the_middle() {
    child::isolated("a_runtime_is_dropped_in_the_middle", || {
        let tasks = rounds(40, 100);
        let trace = record(|| {
            let runtime = workers(2);
            let count = Arc::new(AtomicU64::new(0));
            let begun = Arc::new(AtomicU64::new(0));
            for _ in 0..tasks {
                let (ends, begins) = (count.clone(), begun.clone());
                struct Counts(Arc<AtomicU64>);
                impl Drop for Counts {
                    fn drop(&mut self) {
                        trace::log("dropped", "");
                        self.0.fetch_add(1, Relaxed);
                    }
                }
                let waits = async move {
                    let _counts = Counts(ends);
                    begins.fetch_add(1, Relaxed);
                    std::future::pending::<()>().await;
                };
                runtime.spawn(waits.instrument_named("dropped"));
                // Never polled, or only just.
                let churned = count.clone();
                runtime.spawn(async move { churn(&churned).await }.instrument_named("churns"));
            }
            until("one was polled", || begun.load(Relaxed) > 0);
            drop(runtime);
        });
        trace.assert_in_order();
        trace.assert_whole();
        let dropped: Vec<u64> = trace.parsed.goroutines_named("dropped").collect();
        assert_eq!(dropped.len(), tasks);
        let logs =
            trace.parsed.events_of(EventType::UserLog).filter(|log| dropped.contains(&log.g())).count();
        let polled = dropped.iter().filter(|task| trace.story(**task).len() > 3).count();
        assert!(logs <= tasks && logs > 0, "{logs} of {polled} that were polled");
        for task in &dropped {
            assert_eq!(trace.story(*task).last().map(|last| last.event_type()), Some(EventType::GoEnd));
        }
        trace_go::check("task-dropped", &trace, &[]);
    });
}

/// A trace ends while all tasks continue, and another one begins at that moment.
#[test]
fn one_trace_after_the_other_without_a_gap() {
    child::isolated("one_trace_after_the_other_without_a_gap", || {
        let runtime = workers(2);
        let (background, count) = (Background::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            scope.spawn(|| background.repeat(|| runtime.block_on(churn(&count).instrument_named("churns"))));
            for _ in 0..20 {
                let kept = start(Options::default());
                std::thread::yield_now();
                let stats = trace::stop().expect("a vector takes everything");
                let trace = valid(kept.bytes(), stats);
                trace.assert_in_order();
                // An event that has begun in the previous trace may find no room in this one; nothing else is omitted.
                if stats.dropped_events == 0 {
                    trace.assert_whole();
                }
            }
        });
    });
}
