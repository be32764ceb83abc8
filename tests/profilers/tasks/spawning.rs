//! Tasks that `rtprof::task` spawns on tokio's runtimes.

use std::future::{pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use rtprof::task::{JoinSet, spawn, spawn_blocking, spawn_local, spawn_named};
use rtprof::{GoroutineKind, GoroutineState, num_goroutine};
use test_support::{child, until};
use tokio::runtime::Builder;

use super::leaves::lasting_runtime;
use super::states::{find, waits};

async fn unnamed() {
    pending::<()>().await;
}

#[test]
fn spawned_tasks_are_there_until_they_end() {
    child::isolated("spawned_tasks_are_there_until_they_end", || {
        let runtime = lasting_runtime();
        let _entered = runtime.enter();
        let line = line!() + 1;
        let lasting = spawn(unnamed());
        spawn_named("named", pending::<()>());
        let title = concat!(module_path!(), "::unnamed::{{closure}}");
        until("both wait", || waits("named") && waits(title));
        let seen = find(title).expect("it is there");
        assert_eq!(seen.started_at, Some((file!(), line)));
        lasting.abort();
        until("the one that was aborted has ended", || find(title).is_none());
        assert!(find("named").is_some());
        assert_eq!(runtime.block_on(spawn(async { 7 })).expect("it ends"), 7);
        let panicked = runtime.block_on(spawn(async { panic!("in a task") }));
        assert!(panicked.expect_err("it panics").is_panic());
    });
}

#[test]
fn a_blocking_task_runs_on_its_thread() {
    child::isolated("a_blocking_task_runs_on_its_thread", || {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).max_blocking_threads(1).build().expect("a runtime");
        let _entered = runtime.enter();
        let ((end, ends), (more, runs)) = (mpsc::channel::<()>(), mpsc::channel::<u64>());
        let before = num_goroutine();
        let first = spawn_blocking(move || ends.recv().is_err());
        let second = spawn_blocking(move || more.send(8).is_ok());
        let tasks = || {
            let mut all = rtprof::goroutine_profile();
            all.retain(|task| task.kind == GoroutineKind::Task);
            all
        };
        until("the first one runs", || tasks().iter().any(|task| task.thread_id != 0));
        let all = tasks();
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!(all[1].state, GoroutineState::Runnable, "no thread is left for it: {all:?}");
        drop(end);
        assert!(runtime.block_on(first).expect("it ends"));
        assert!(runtime.block_on(second).expect("it ends"));
        assert_eq!(runs.recv(), Ok(8));
        until("both have ended", || tasks().is_empty());
        assert!(num_goroutine() > before, "the threads are left");
    });
}

#[test]
fn sets_of_tasks() {
    child::isolated("sets_of_tasks", || {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let mut set: JoinSet<u32> = (0..3).map(|n| async move { n }).collect();
            set.spawn_named("of a set", async { 10 });
            set.spawn_local(async { 20 });
            set.spawn_blocking(|| 30);
            set.spawn_on(async { 40 }, runtime.handle());
            assert_eq!(set.len(), 7);
            assert_eq!(find("of a set").expect("it is there").state, GoroutineState::Runnable);
            let on_local = spawn_local(async { 1 }).await.expect("it ends");
            let mut sum = on_local;
            while let Some(result) = set.join_next().await {
                sum += result.expect("it ends");
            }
            assert_eq!(sum, 1 + 3 + 10 + 20 + 30 + 40);
            assert!(find("of a set").is_none());
            set.spawn_named("aborted", pending());
            drop(set);
            tokio::task::yield_now().await;
            assert!(find("aborted").is_none());
        });
    });
}

#[test]
fn all_tasks_of_a_set_are_joined_as_tokio_does() {
    child::isolated("all_tasks_of_a_set_are_joined_as_tokio_does", || {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let mut results =
            runtime.block_on(async { (0..3).map(ready).collect::<JoinSet<_>>().join_all().await });
        results.sort();
        assert_eq!(results, [0, 1, 2]);

        let why = |fails: fn(&mut JoinSet<()>)| {
            let joined = AssertUnwindSafe(|| {
                runtime.block_on(async {
                    let mut set = JoinSet::new();
                    fails(&mut set);
                    set.join_all().await
                })
            });
            let panic = catch_unwind(joined).expect_err("the task has failed");
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            text.or_else(|| panic.downcast_ref::<String>().cloned()).expect("a text")
        };
        let panicked = why(|set| {
            set.spawn(async { panic!("in a task of a set") });
        });
        assert_eq!(panicked, "in a task of a set");
        let aborted = why(|set| set.spawn(pending()).abort());
        assert!(aborted.contains("cancelled"), "{aborted}");
    });
}
