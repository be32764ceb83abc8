//! Regions, logs and user tasks of async code: they belong to the async task, whichever thread polls it.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;

use rtprof::task::{Instrument, Instrumented};
use rtprof::trace::{self, Options};
use rtprof_trace_check::EventType;
use test_support::child;
use test_support::recording::{Trace, record, start, valid};
use test_support::trace_go;

use crate::tasks::by_hand::{Leaf, Woken, poll};

/// Polls a task on a new thread.
fn poll_elsewhere<F: Future<Output: Send> + Send>(
    future: Pin<&mut Instrumented<F>>,
    executor: &Arc<Woken>,
) -> bool {
    thread::scope(|scope| scope.spawn(|| poll(future, executor).is_ready()).join().expect("it polls"))
}

/// Suspends the current task once.
async fn suspend(leaf: &Leaf) {
    let mut leaf = Some(leaf.clone());
    std::future::poll_fn(|context| match leaf.take() {
        Some(leaf) => pin!(leaf).poll(context),
        None => Poll::Ready(()),
    })
    .await;
}

fn wake(leaf: &Leaf) {
    leaf.take().into_iter().for_each(Waker::wake);
}

/// Returns the logs of a goroutine: the message, and the id of the user task.
fn logs(trace: &Trace, goroutine: u64) -> Vec<(&str, u64)> {
    let own = trace.parsed.events_of(EventType::UserLog).filter(|log| log.g() == goroutine);
    own.map(|log| (log.message(), log.argument("id").expect("it has one"))).collect()
}

#[test]
fn a_guard_is_held_across_an_await() {
    child::isolated("a_guard_is_held_across_an_await", || {
        let (executors, leaf) = ([Arc::new(Woken::default()), Arc::new(Woken::default())], Leaf::default());
        let request = async {
            let task = trace::Task::new("request");
            let outer = trace::start_region("outer");
            trace::log("note", "before");
            suspend(&leaf).await;
            trace::log("note", "between");
            let inner = trace::start_region("inner");
            suspend(&leaf).await;
            drop((inner, outer));
            trace::log("note", "after");
            drop(task);
            trace::log("note", "over");
        };
        let other = async {
            trace::log("note", "other");
            suspend(&leaf).await;
            trace::log("note", "other again");
        };
        let trace = record(|| {
            let mut request = Box::pin(request.instrument_named("request"));
            let mut other = Box::pin(other.instrument_named("other"));
            // First one after the other on one thread, then on other threads.
            assert!(poll(request.as_mut(), &executors[0]).is_pending());
            assert!(poll(other.as_mut(), &executors[1]).is_pending());
            trace::log("note", "the thread's");
            wake(&leaf);
            assert!(!poll_elsewhere(request.as_mut(), &executors[0]));
            wake(&leaf);
            assert!(poll_elsewhere(other.as_mut(), &executors[1]));
            wake(&leaf);
            assert!(poll_elsewhere(request.as_mut(), &executors[0]));
        });
        trace.assert_whole();
        let (request, other) = (trace.goroutine("request"), trace.goroutine("other"));
        let task = trace.parsed.events_of(EventType::UserTaskCreate).next().expect("there is one");
        assert_eq!((task.g(), task.name()), (request, "request"));
        let id = task.argument("taskid").expect("it has one");
        assert_eq!(logs(&trace, request), [("before", id), ("between", id), ("after", id), ("over", 0)]);
        assert_eq!(logs(&trace, other), [("other", 0), ("other again", 0)]);
        let thread = trace.parsed.events_of(EventType::UserLog).find(|log| log.message() == "the thread's");
        let thread = thread.expect("it is there");
        assert!(![request, other].contains(&thread.g()) && thread.argument("id") == Some(0));
        let regions = trace.parsed.events_of(EventType::UserRegion);
        let regions: Vec<_> =
            regions.map(|event| (event.name(), event.argument("mode"), event.g())).collect();
        let expected = [("outer", Some(0)), ("inner", Some(0)), ("inner", Some(1)), ("outer", Some(1))];
        assert_eq!(regions, expected.map(|(name, mode)| (name, mode, request)));
        let places: Vec<u64> = trace.parsed.events_of(EventType::UserRegion).map(|event| event.p()).collect();
        assert!(places[0] != places[1] && places[1] != places[2], "{places:?}");
        trace_go::check("task-regions", &trace, &[]);
    });
}

/// A region that a task passes to another task ends with the task that began it.
#[test]
fn a_region_ends_on_its_own_task_only() {
    child::isolated("a_region_ends_on_its_own_task_only", || {
        let executors = [Arc::new(Woken::default()), Arc::new(Woken::default())];
        let trace = record(|| {
            let (send, receive) = std::sync::mpsc::channel();
            let starts = async move { send.send(trace::start_region("given away")).expect("it is received") };
            let ends = async move { drop(receive.recv().expect("it was sent")) };
            assert!(poll(Box::pin(starts.instrument_named("starts")).as_mut(), &executors[0]).is_ready());
            assert!(poll(Box::pin(ends.instrument_named("ends")).as_mut(), &executors[1]).is_ready());
        });
        assert_eq!(trace.stats.foreign_region_ends, 1);
        trace_go::check("task-foreign-region", &trace, &[]);
    });
}

/// A trace begins in a poll, which then begins a user task.
#[test]
fn a_user_task_of_a_trace_that_began_in_the_poll() {
    child::isolated("a_user_task_of_a_trace_that_began_in_the_poll", || {
        let (executor, leaf, kept) = (Arc::new(Woken::default()), Leaf::default(), Cell::new(None));
        let request = async {
            kept.set(Some(start(Options::default())));
            let _task = trace::Task::new("request");
            trace::log("note", "first");
            suspend(&leaf).await;
            trace::log("note", "second");
        };
        let mut request = Box::pin(request.instrument_named("request"));
        assert!(poll(request.as_mut(), &executor).is_pending());
        trace::log("note", "the thread's");
        let other = async { trace::log("note", "another's") };
        assert!(poll(pin!(other.instrument_named("other")), &executor).is_ready());
        wake(&leaf);
        assert!(poll(request.as_mut(), &executor).is_ready());
        trace::log("note", "the thread's again");
        let stats = trace::stop().expect("a vector takes everything");
        let trace = valid(kept.take().expect("it was started").bytes(), stats);
        let task = trace.parsed.events_of(EventType::UserTaskCreate).next().expect("it is there");
        let id = task.argument("taskid").expect("it has one");
        assert_eq!(logs(&trace, trace.goroutine("request")), [("first", id), ("second", id)]);
        let others = trace.parsed.events_of(EventType::UserLog).filter(|log| log.argument("id") == Some(0));
        let others: Vec<_> = others.map(|log| log.message()).collect();
        assert_eq!(others, ["the thread's", "another's", "the thread's again"]);
    });
}

/// A trace begins and ends in a poll that leaves a user task behind: the next trace does not contain that task.
#[test]
fn a_user_task_of_a_trace_that_is_over() {
    child::isolated("a_user_task_of_a_trace_that_is_over", || {
        let (executor, leaf) = (Arc::new(Woken::default()), Leaf::default());
        let request = async {
            start(Options::default());
            let _task = trace::Task::new("request");
            trace::stop().expect("a vector takes everything");
            suspend(&leaf).await;
        };
        let mut request = Box::pin(request.instrument_named("request"));
        assert!(poll(request.as_mut(), &executor).is_pending());
        let trace = record(|| trace::log("note", "the thread's"));
        let ids = trace.parsed.events_of(EventType::UserLog).map(|log| log.argument("id"));
        assert_eq!(ids.collect::<Vec<_>>(), [Some(0)]);
    });
}
