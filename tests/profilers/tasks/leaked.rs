//! `goroutineleak`: tasks for which no waker is left.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use rtprof::task::{AwaitStacks, Instrument, leak_limit, set_await_stacks, set_leak_limit};
use rtprof::{goroutine_profile, pprof};
use test_support::profile::{Profile, Sample};
use test_support::{child, sample_types, until};
use tokio::runtime::Builder;

use super::by_hand::{Leaf, Woken, poll};
use super::dump;
use super::leaves::lasting_runtime;
use super::states::{find, waits};

fn samples() -> Vec<Sample> {
    let mut written = Vec::new();
    pprof::lookup("goroutineleak").expect("it is built in").write_to(&mut written, 0).expect("into memory");
    let profile = Profile::read(&written);
    assert_eq!(profile.sample_types(), sample_types::of("goroutineleak"));
    assert!(profile.comments().contains("an estimate"), "{}", profile.comments());
    profile.samples()
}

/// Returns the names of the tasks in the profile, each with its count.
fn leaked() -> Vec<(String, i64)> {
    let mut all: Vec<_> = samples()
        .into_iter()
        .map(|mut sample| (sample.labels.remove("task").expect("the task is named"), sample.values[0]))
        .collect();
    all.sort_unstable();
    let count: i64 = all.iter().map(|(_, count)| count).sum();
    assert_eq!(pprof::lookup("goroutineleak").expect("it is built in").count() as i64, count);
    all
}

async fn awaits_for_ever(leaf: Leaf) {
    leaf.await;
}

#[test]
fn tasks_that_nothing_can_wake() {
    child::isolated("tasks_that_nothing_can_wake", || {
        set_await_stacks(AwaitStacks::Always);
        assert_eq!(leak_limit(), Duration::from_secs(60));
        assert_eq!(set_leak_limit(Duration::ZERO), Duration::from_secs(60));
        let executor = Arc::new(Woken::default());
        assert_eq!(leaked(), []);

        let (lost, live) = (Leaf::default(), Leaf::default());
        let mut tasks: Vec<_> = [&lost, &lost, &live]
            .into_iter()
            .map(|leaf| Box::pin(awaits_for_ever(leaf.clone()).instrument_named("awaits")))
            .collect();
        tasks.iter_mut().for_each(|task| assert!(poll(task.as_mut(), &executor).is_pending()));
        let mut never = Box::pin(pending::<()>().instrument_named("never"));
        assert_eq!(leaked(), [], "one was not polled, and all others have wakers");
        assert!(poll(never.as_mut(), &executor).is_pending());
        assert_eq!(leaked(), [("never".into(), 1)]);

        drop(lost.take());
        assert_eq!(leaked(), [("awaits".into(), 2), ("never".into(), 1)]);
        let functions = |sample: &Sample| sample.frames[0].function.clone();
        for sample in samples() {
            match sample.labels["task"].as_str() {
                "never" => assert!(functions(&sample).ends_with("task_has_no_waker"), "{sample:?}"),
                _ => assert!(sample.has("awaits_for_ever"), "{sample:?}"),
            }
        }
        let told: Vec<_> = goroutine_profile().into_iter().filter(|task| task.is_leaked).collect();
        assert_eq!(
            told.iter().map(|task| task.name.as_str()).collect::<Vec<_>>(),
            ["awaits", "awaits", "never"]
        );
        assert!(dump::tasks()["never"].about.ends_with(", polled 1 time, no waker is left"));
        let profile = pprof::lookup("goroutineleak").expect("it is built in");
        let text = |debug| {
            let mut written = Vec::new();
            profile.write_to(&mut written, debug).expect("into memory");
            String::from_utf8(written).expect("it is text")
        };
        assert!(text(1).starts_with("goroutineleak profile: total 3\n"), "{}", text(1));
        assert_eq!(text(2).matches("[await]:").count(), 3, "{}", text(2));

        set_leak_limit(Duration::from_secs(3600));
        assert_eq!(leaked(), [], "they have not waited for so long");
        set_leak_limit(Duration::ZERO);
        assert!(poll(tasks[0].as_mut(), &executor).is_pending());
        assert_eq!(leaked(), [("awaits".into(), 1), ("never".into(), 1)], "one has a waker again");
        drop(tasks);
        drop(never);
        assert_eq!(leaked(), []);
    });
}

/// A waker cloned by another thread is the executor's own waker, which is not counted. The future keeps the first
/// waker.
#[test]
fn a_waker_cloned_by_another_thread_may_wake_the_task() {
    child::isolated("a_waker_cloned_by_another_thread_may_wake_the_task", || {
        set_leak_limit(Duration::ZERO);
        let executor = Arc::new(Woken::default());
        let mut kept = None;
        let clones_elsewhere = poll_fn(|context| {
            let waker = context.waker();
            kept.get_or_insert_with(|| {
                thread::scope(|threads| threads.spawn(|| waker.clone()).join().expect("no panic"))
            });
            Poll::<()>::Pending
        });
        let mut task = Box::pin(clones_elsewhere.instrument_named("elsewhere"));
        for _ in 0..3 {
            assert!(poll(task.as_mut(), &executor).is_pending());
            assert_eq!(leaked(), []);
            assert!(!dump::tasks()["elsewhere"].about.contains("no waker"));
        }
        drop(task);
        let woken = executor.count();
        kept.expect("it was polled").wake();
        assert_eq!(executor.count(), woken + 1);
    });
}

/// The inner task's waker leads to the outer task.
#[test]
fn a_task_around_one_that_can_be_woken() {
    async fn locks(lock: Arc<tokio::sync::Mutex<()>>) {
        drop(lock.lock().await);
    }
    child::isolated("a_task_around_one_that_can_be_woken", || {
        set_leak_limit(Duration::ZERO);
        let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        let held = lock.try_lock().expect("it is free");
        let tasks = [
            runtime.spawn(locks(lock.clone()).instrument_named("inner").instrument_named("outer")),
            runtime.spawn({
                let lock = lock.clone();
                async { locks(lock).instrument_named("inner").await }.instrument_named("outer")
            }),
        ];
        let waiting = || {
            let all = goroutine_profile();
            all.iter()
                .filter(|task| task.wait_reason().is_some_and(|reason| reason.name() == "await"))
                .count()
        };
        until("all wait", || waiting() == 4);
        // The first snapshot has the tasks polled.
        for _ in 0..3 {
            assert_eq!(leaked(), []);
            assert!(goroutine_profile().iter().all(|task| !task.is_leaked));
        }
        drop(held);
        tasks.into_iter().for_each(|task| runtime.block_on(task).expect("no panic"));
    });
}

#[test]
fn a_task_around_one_that_nothing_can_wake() {
    child::isolated("a_task_around_one_that_nothing_can_wake", || {
        // No stack is requested, because the request would wake the task.
        set_await_stacks(AwaitStacks::Always);
        set_leak_limit(Duration::ZERO);
        let (executor, leaf) = (Arc::new(Woken::default()), Leaf::default());
        let inner = leaf.clone().instrument_named("inner");
        let mut outer = Box::pin(inner.instrument_named("outer"));
        assert!(poll(outer.as_mut(), &executor).is_pending());
        assert_eq!(leaked(), []);
        drop(leaf.take());
        assert_eq!(leaked(), [("inner".into(), 1), ("outer".into(), 1)]);
    });
}

/// Snapshots do not have the task polled again and again.
#[test]
fn a_leaf_that_keeps_its_first_waker_is_asked_once() {
    child::isolated("a_leaf_that_keeps_its_first_waker_is_asked_once", || {
        let runtime = lasting_runtime();
        let mut kept = None;
        let keeps = poll_fn(move |context| {
            kept.get_or_insert_with(|| context.waker().clone());
            Poll::<()>::Pending
        });
        // Its first poll leaves no stack.
        set_await_stacks(AwaitStacks::Never);
        runtime.spawn(keeps.instrument_named("keeps"));
        until("it waits", || waits("keeps"));
        set_await_stacks(AwaitStacks::OnRequest);
        until("it was asked", || find("keeps").is_some_and(|task| task.polls > 1));
        for _ in 0..5 {
            assert_eq!(find("keeps").expect("it waits").polls, 2);
        }
    });
}
