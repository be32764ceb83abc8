//! The state of a task, its duration, the task's identity, and the state of its thread.

use std::future::pending;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake};
use std::time::{Duration, Instant};

use rtprof::task::{AwaitStacks, Instrument, Instrumented, instrument, set_await_stacks};
use rtprof::{GoroutineKind, GoroutineRecord, GoroutineState, goroutine_profile, num_goroutine};
use test_support::{child, fork, until};
use tokio::runtime::Builder;

use super::dump;
use super::leaves::lasting_runtime;

/// Returns the goroutine of this name.
pub(crate) fn find(name: &str) -> Option<GoroutineRecord> {
    goroutine_profile().into_iter().find(|goroutine| goroutine.name == name)
}

pub(crate) fn waits(name: &str) -> bool {
    find(name).and_then(|task| task.wait_reason()).is_some_and(|reason| reason.name() == "await")
}

#[test]
fn who_a_task_is() {
    child::isolated("who_a_task_is", || {
        let before = num_goroutine();
        let own = goroutine_profile()[0].id;
        let (line, unnamed) = (line!(), instrument(pending::<()>()));
        let long = "ü".repeat(40);
        let (named_line, named) = (line!(), pending::<()>().instrument_named(&long));
        assert_eq!(num_goroutine(), before + 2);
        let all = goroutine_profile();
        assert_eq!(all.len(), before + 2);
        let task = |name: &str| all.iter().find(|task| task.name == name).expect("it is there").clone();
        let both = [(task(&long[..64]), named_line), (task("core::future::pending::Pending<()>"), line)];
        for (task, line) in both {
            assert_eq!(task.kind, GoroutineKind::Task);
            assert_eq!((task.state, task.polls), (GoroutineState::Runnable, 0));
            assert_eq!(task.waited, Duration::ZERO);
            assert_eq!(task.created_by, own);
            let (file, at) = task.started_at.expect("it is known");
            assert_eq!((file, at), (Location::caller().file(), line));
        }
        drop((unnamed, named));
        assert_eq!(num_goroutine(), before);
    });
}

#[inline(never)]
fn creates() -> (u32, Instrumented<std::future::Pending<()>>) {
    let line = line!() + 1;
    let task = pending().instrument_named("created");
    std::hint::black_box("creates");
    (line, task)
}

#[test]
fn who_has_created_it() {
    child::isolated("who_has_created_it", || {
        set_await_stacks(AwaitStacks::Always);
        let (line, created) = creates();
        let seen = &dump::tasks()["created"];
        assert!(seen.about.contains(&format!("started at {}:{line}, polled 0 times", file!())), "{seen:?}");
        let created_by = seen.created_by.as_ref().expect("it is known");
        assert!(
            created_by.function.starts_with(concat!(module_path!(), "::creates in goroutine ")),
            "{created_by:?}"
        );
        assert_eq!((created_by.file.as_str(), created_by.line), ("states.rs", line as usize));
        assert!(seen.frames[0].function.contains("task_was_not_polled_yet"), "{seen:?}");
        drop(created);
    });
}

#[test]
fn a_wait_lasts_until_the_task_is_woken() {
    child::isolated("a_wait_lasts_until_the_task_is_woken", || {
        set_await_stacks(AwaitStacks::Never);
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let notify = std::sync::Arc::new(tokio::sync::Notify::new());
        let is_notified = notify.clone();
        let waits_twice = async move {
            is_notified.notified().await;
            is_notified.notified().await;
        };
        // Runs the tasks that can run, and no others.
        let run = || runtime.block_on(async { tokio::task::yield_now().await });
        runtime.spawn(waits_twice.instrument_named("waits"));
        assert_eq!(find("waits").expect("it is there").state, GoroutineState::Runnable);
        let start = Instant::now();
        run();
        assert!(waits("waits"));
        until("it has waited for a while", || {
            find("waits").expect("it is there").waited >= Duration::from_millis(20)
        });
        let task = find("waits").expect("it is there");
        assert!(task.waited <= start.elapsed(), "{task:?}");

        // A poll for the task's stack does not end its wait.
        set_await_stacks(AwaitStacks::Always);
        let (send, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            // A snapshot waits only for a limited time, so it is repeated.
            until("it was polled", || find("waits").expect("it is there").stack().len() > 1);
            send.send(find("waits").expect("it is there")).expect("it is received");
        });
        let mut seen = None;
        until("the look is over", || {
            run();
            seen = is_done.try_recv().ok();
            seen.is_some()
        });
        let seen = seen.expect("it was seen");
        assert!(seen.waited >= task.waited && seen.stack().len() > 1, "{seen:?}");
        assert_eq!(seen.polls, 2);

        notify.notify_one();
        let woken = find("waits").expect("it is there");
        assert_eq!((woken.state, woken.waited), (GoroutineState::Runnable, Duration::ZERO));
        run();
        let again = find("waits").expect("it is there");
        assert!(again.wait_reason().is_some() && again.waited < start.elapsed() - seen.waited, "{again:?}");
        notify.notify_one();
        run();
        assert!(find("waits").is_none(), "it has ended");
    });
}

#[inline(never)]
fn blocks(held: &std::sync::Mutex<()>) {
    drop(held.lock());
    std::hint::black_box("blocks");
}

/// A task that blocks its thread is in the profile with its part of the stack, and the thread with the rest.
#[test]
fn a_task_that_is_polled_has_its_part_of_the_stack() {
    child::isolated("a_task_that_is_polled_has_its_part_of_the_stack", || {
        static HELD: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let held = HELD.lock().expect("nobody panics");
        let runtime = lasting_runtime();
        let inner = async { blocks(&HELD) }.instrument_named("inner");
        let outer = async move {
            inner.await;
            pending::<()>().await;
        };
        runtime.spawn(outer.instrument_named("outer"));
        let blocks = "states::blocks";
        let is_blocked =
            || dump::tasks().get("inner").is_some_and(|task| !task.lines_in(blocks, "states.rs").is_empty());
        until("it blocks", is_blocked);
        let all = dump::take();
        let with = |about: &str| {
            let mut found = all.iter().filter(|goroutine| goroutine.about.contains(about));
            let first = found.next().unwrap_or_else(|| panic!("no {about} in {all:#?}")).clone();
            assert!(found.next().is_none(), "{about} is there twice");
            first
        };
        let (inner, outer) = (with("task \"inner\""), with("task \"outer\""));
        let thread = with(&format!("polls goroutine {}", inner.id));
        let number = thread.about.split(' ').nth(1).expect("the thread's number");
        for task in [&inner, &outer] {
            assert!(task.about.ends_with(&format!("polled 1 time, on thread {number}")), "{task:?}");
            assert_eq!(task.state, thread.state);
        }
        assert_eq!(inner.lines_in(blocks, "states.rs").len(), 1);
        let outer_functions: Vec<_> = outer.frames.iter().map(|frame| frame.function.clone()).collect();
        assert!(outer.lines_in("a_task_that_is_polled", "states.rs").len() == 1, "{outer_functions:?}");
        let functions: Vec<_> = thread.frames.iter().map(|frame| frame.function.as_str()).collect();
        assert!(functions.iter().all(|function| !function.contains("states::")), "{functions:?}");
        assert!(functions[0].starts_with("tokio::"), "{functions:?}");
        assert_eq!(functions.last(), Some(&"thread start"));
        drop(held);
        until("inner has ended", || find("inner").is_none());
    });
}

#[test]
fn the_current_task_comes_first() {
    child::isolated("the_current_task_comes_first", || {
        let runtime = lasting_runtime();
        let task = async { (goroutine_profile(), rtprof::stack(false)) };
        let (all, own) = runtime.block_on(runtime.spawn(task.instrument_named("own"))).expect("it ends");
        assert_eq!((all[0].name.as_str(), all[0].kind), ("own", GoroutineKind::Task));
        assert_eq!(all[0].state, GoroutineState::Running);
        assert!(own.starts_with(&format!("goroutine {} [running]:", all[0].id)), "{own}");
        assert!(own.contains("the_current_task_comes_first") && !own.contains("tokio"), "{own}");
    });
}

#[test]
fn a_forked_child_has_none_of_its_parents_tasks() {
    fork::isolated("a_forked_child_has_none_of_its_parents_tasks", "", || {
        let held = instrument(pending::<()>());
        let before = num_goroutine();
        for (make, what) in [(fork::fork as fn() -> i32, "fork"), (fork::bare_fork, "bare fork")] {
            fork::in_a_child_by(make, what, || {
                assert_eq!(num_goroutine(), 1);
                assert!(goroutine_profile().iter().all(|all| all.kind == GoroutineKind::Thread));
                let own = pending::<()>().instrument_named("of the child");
                assert_eq!(find("of the child").expect("it is there").kind, GoroutineKind::Task);
                drop(own);
            });
        }
        assert_eq!(num_goroutine(), before);
        drop(held);
    });
}

/// A child that is forked inside a poll goes on with that task. The parent's other tasks, whose executors the child
/// does not have, are left alone.
#[test]
fn a_child_that_is_forked_in_a_poll() {
    fork::isolated("a_child_that_is_forked_in_a_poll", "", || {
        struct Counts(AtomicUsize);
        impl Wake for Counts {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        set_await_stacks(AwaitStacks::Never);
        let counts = Arc::new(Counts(AtomicUsize::new(0)));
        let waker = counts.clone().into();
        let mut context = Context::from_waker(&waker);
        let notify = tokio::sync::Notify::new();
        let mut waits = Box::pin(notify.notified().instrument_named("of the parent"));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        set_await_stacks(AwaitStacks::OnRequest);
        for (make, what) in [(fork::fork as fn() -> i32, "fork"), (fork::bare_fork, "bare fork")] {
            let forks = async {
                fork::in_a_child_by(make, what, || {
                    let own = find("forks").expect("it is there");
                    assert!(own.thread_id != 0, "{own:?}");
                    assert!(rtprof::stack(false).contains("a_child_that_is_forked_in_a_poll"));
                    assert!(find("of the parent").is_none());
                    assert_eq!(counts.0.load(Ordering::Relaxed), 0, "the parent's executor is not asked");
                });
            };
            assert!(Box::pin(forks.instrument_named("forks")).as_mut().poll(&mut context).is_ready());
        }
    });
}

#[inline(never)]
fn recurses(depth: u32, held: &std::sync::Mutex<()>) -> u32 {
    if depth == 0 {
        drop(held.lock());
        return 0;
    }
    std::hint::black_box(recurses(depth - 1, held) + 1)
}

/// If a stack is too deep to be kept, the inner end belongs to the task.
#[test]
fn a_task_whose_stack_is_cut_off() {
    child::isolated("a_task_whose_stack_is_cut_off", || {
        static HELD: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let held = HELD.lock().expect("nobody panics");
        let runtime = lasting_runtime();
        runtime.spawn(async { recurses(500, &HELD) }.instrument_named("deep"));
        let is_deep = || find("deep").is_some_and(|task| task.stack().len() == rtprof::MAX_STACK);
        until("it waits deep inside", is_deep);
        let all = dump::take();
        let deep = all.iter().find(|task| task.about.contains("task \"deep\"")).expect("it is there");
        assert!(!deep.lines_in("states::recurses", "states.rs").is_empty(), "{deep:?}");
        let polls = format!("polls goroutine {}", deep.id);
        let thread = all.iter().find(|thread| thread.about.contains(&polls)).expect("it is there");
        assert!(thread.frames[0].function.contains("stack_is_the_tasks"), "{thread:?}");
        drop(held);
    });
}
