//! Tasks of executors other than tokio's, and of combinators that poll their children under separate wakers.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::{self, FuturesUnordered};
use rtprof::task::{AwaitStacks, Instrument, set_await_stacks};
use test_support::{child, until};

use super::dump::{self, Dumped};
use super::leaves::lasting_runtime;
use super::states::{find, waits};

/// Runs a future on a minimal executor.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unparks(Thread);
    impl Wake for Unparks {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unparks(thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

type Receiver = smol::channel::Receiver<u8>;

async fn receives(receiver: Receiver) -> u8 {
    receiver.recv().await.expect("it is sent") // receives
}

async fn calls(receiver: Receiver) -> u8 {
    receives(receiver).await // calls
}

/// Checks that the task awaits in `function`, at the line with that comment.
fn check(task: &Dumped, function: &str) {
    let comment = format!("// {function}");
    let line = include_str!("executors.rs").lines().position(|line| line.ends_with(&comment));
    let lines = task.lines_in(&format!("executors::{function}::{{"), "executors.rs");
    assert_eq!(lines, [line.expect("it is marked") + 1], "{function}: {task:#?}");
}

/// Checks that the task's stack is known, and goes from the leaf to `calls` and no further.
fn check_stack(name: &str) {
    until(&format!("{name} has a stack"), || dump::tasks()[name].frames.len() > 2);
    let task = &dump::tasks()[name];
    assert!(task.state.starts_with("await"), "{task:#?}");
    check(task, "receives");
    check(task, "calls");
    assert!(task.frames.last().is_some_and(|frame| frame.function.contains("executors::calls")), "{task:#?}");
}

/// Checks a task that waits, is in a snapshot, is woken and ends, on the executor `run`.
fn lives_on(run: impl FnOnce(Receiver) + Send + 'static) {
    let (sender, receiver) = smol::channel::bounded(1);
    let thread = thread::spawn(|| run(receiver));
    until("it waits", || waits("waits"));
    check_stack("waits");
    let first = find("waits").expect("it waits");
    assert!(
        waits("waits") && find("waits").is_some_and(|task| task.polls == first.polls),
        "a look wakes it once"
    );
    sender.send_blocking(7).expect("it is received");
    thread.join().expect("no panic");
    until("it has ended", || find("waits").is_none());
}

#[test]
fn on_a_bare_block_on() {
    child::isolated("on_a_bare_block_on", || {
        lives_on(|receiver| assert_eq!(block_on(calls(receiver).instrument_named("waits")), 7));
    });
}

#[test]
fn on_the_executor_of_futures() {
    child::isolated("on_the_executor_of_futures", || {
        lives_on(|receiver| {
            assert_eq!(futures::executor::block_on(calls(receiver).instrument_named("waits")), 7);
        });
    });
}

#[test]
fn on_smol() {
    child::isolated("on_smol", || {
        lives_on(|receiver| {
            let task = smol::spawn(calls(receiver).instrument_named("waits"));
            assert_eq!(smol::block_on(task), 7);
        });
    });
}

/// smol's sockets and timers keep their wakers in other ways than its channels do.
#[test]
fn leaves_of_smol() {
    async fn sleeps() {
        smol::Timer::after(Duration::from_secs(100_000)).await; // sleeps
    }
    async fn accepts() {
        let listener = smol::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        listener.accept().await.expect("nobody connects"); // accepts
    }
    async fn locks() {
        let lock = smol::lock::Mutex::new(());
        let _held = lock.lock().await;
        lock.lock().await; // locks
    }
    child::isolated("leaves_of_smol", || {
        let tasks = [
            smol::spawn(sleeps().instrument_named("sleeps")),
            smol::spawn(accepts().instrument_named("accepts")),
            smol::spawn(locks().instrument_named("locks")),
        ];
        let names = ["sleeps", "accepts", "locks"];
        until("all wait", || names.into_iter().all(waits));
        let have_stacks = || names.iter().all(|name| dump::tasks()[*name].frames.len() > 1);
        until("all have stacks", have_stacks);
        let all = dump::tasks();
        for name in names {
            // The functions are the test's own.
            let line =
                include_str!("executors.rs").lines().position(|line| line.ends_with(&format!("// {name}")));
            let lines = all[name].lines_in(&format!("leaves_of_smol::{name}::{{"), "executors.rs");
            // A timer clones the waker twice.
            let marked = line.expect("it is marked") + 1;
            assert!(!lines.is_empty() && lines.iter().all(|&line| line == marked), "{:#?}", all[name]);
        }
        drop(tasks);
    });
}

/// Children that a combinator polls under its own waker appear as separate tasks, if they are instrumented where they
/// are pushed.
#[test]
fn children_of_combinators() {
    const CHILDREN: usize = 40;
    child::isolated("children_of_combinators", || {
        set_await_stacks(AwaitStacks::Always);
        let (sender, receiver) = smol::channel::bounded::<u8>(1);
        let child = move |of: &str| calls(receiver.clone()).instrument_named(of);
        let (unordered, buffered, joined) = (child.clone(), child.clone(), child);
        let runtime = lasting_runtime();
        let spawned = [
            runtime.spawn(
                async move {
                    let all: FuturesUnordered<_> = (0..CHILDREN).map(|_| unordered("unordered")).collect();
                    all.count().await
                }
                .instrument_named("unordered parent"),
            ),
            runtime.spawn(
                async move {
                    stream::iter(0..CHILDREN)
                        .map(|_| buffered("buffered"))
                        .buffer_unordered(CHILDREN)
                        .count()
                        .await
                }
                .instrument_named("buffered parent"),
            ),
            runtime.spawn(
                async move { join_all((0..CHILDREN).map(|_| joined("joined"))).await.len() }
                    .instrument_named("joined parent"),
            ),
        ];
        let waiting = || {
            let all = rtprof::goroutine_profile();
            all.iter()
                .filter(|task| task.wait_reason().is_some_and(|reason| reason.name() == "await"))
                .count()
        };
        until("all wait", || waiting() == 3 * (CHILDREN + 1));
        let all = dump::take();
        for name in ["unordered", "buffered", "joined"] {
            let about = |name: &str| format!("task \"{name}\"");
            let children: Vec<_> = all.iter().filter(|task| task.about.starts_with(&about(name))).collect();
            assert_eq!(children.len(), CHILDREN, "{name}");
            for task in children {
                check(task, "receives");
                check(task, "calls");
            }
            let parent = dump::tasks().remove(&format!("{name} parent")).expect("it waits");
            let of_parent = |frame: &dump::Frame| frame.function.contains("children_of_combinators");
            assert!(parent.frames.iter().any(of_parent), "{parent:#?}");
            assert!(parent.lines_in("executors::receives::{", "executors.rs").is_empty(), "{parent:#?}");
        }
        // All children are woken, and no message is lost.
        for _ in 0..3 * CHILDREN {
            sender.send_blocking(1).expect("they receive");
        }
        for task in spawned {
            assert_eq!(runtime.block_on(task).expect("no panic"), CHILDREN);
        }
        until("all have ended", || waiting() == 0);
    });
}
