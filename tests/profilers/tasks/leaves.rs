//! The stacks of tasks contain every async function and the line at which it awaits, for every kind of leaf.

use std::future::pending;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use rtprof::task::{AwaitStacks, Instrument, set_await_stacks};
use rtprof::{GoroutineKind, GoroutineRecord, GoroutineState, goroutine_profile};
use test_support::{child, until};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Barrier, Mutex, Notify, RwLock, Semaphore, broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::dump::{self, Dumped};

const LONG: Duration = Duration::from_secs(100_000);

/// Objects that are never released.
struct Held {
    mutex: Mutex<()>,
    rw_lock: RwLock<()>,
    semaphore: Semaphore,
    notify: Notify,
    barrier: Barrier,
    watch: watch::Sender<()>,
    broadcast: broadcast::Sender<()>,
}

impl Held {
    fn new() -> Arc<Self> {
        let held = Self {
            mutex: Mutex::new(()),
            rw_lock: RwLock::new(()),
            semaphore: Semaphore::new(0),
            notify: Notify::new(),
            barrier: Barrier::new(2),
            watch: watch::channel(()).0,
            broadcast: broadcast::channel(1).0,
        };
        std::mem::forget(held.mutex.try_lock().expect("it is free"));
        std::mem::forget(held.rw_lock.try_write().expect("it is free"));
        Arc::new(held)
    }
}

/// Awaits the leaf.
async fn outermost<F: Future>(leaf: F) {
    leaf.await; // outermost
}

macro_rules! leaves {
    ($($name:ident($held:ident) $body:block)*) => {
        $(async fn $name($held: Arc<Held>) $body)*

        /// Spawns a task of each kind, under its name.
        fn spawn_all(runtime: &Handle, held: &Arc<Held>) -> Vec<&'static str> {
            $(runtime.spawn(outermost($name(held.clone())).instrument_named(stringify!($name)));)*
            vec![$(stringify!($name)),*]
        }
    };
}

leaves! {
    sleeps(_held) {
        tokio::time::sleep(LONG).await; // sleeps
    }
    ticks(_held) {
        let start = tokio::time::Instant::now() + LONG;
        tokio::time::interval_at(start, LONG).tick().await; // ticks
    }
    is_notified(held) {
        held.notify.notified().await; // is_notified
    }
    receives(_held) {
        let (_send, mut receive) = mpsc::channel::<()>(1);
        receive.recv().await; // receives
    }
    receives_unbounded(_held) {
        let (_send, mut receive) = mpsc::unbounded_channel::<()>();
        receive.recv().await; // receives_unbounded
    }
    sends(_held) {
        let (send, _receive) = mpsc::channel(1);
        send.send(1).await.ok();
        send.send(2).await.ok(); // sends
    }
    receives_once(_held) {
        let (_send, receive) = oneshot::channel::<()>();
        receive.await.ok(); // receives_once
    }
    receives_broadcast(held) {
        held.broadcast.subscribe().recv().await.ok(); // receives_broadcast
    }
    watches(held) {
        held.watch.subscribe().changed().await.ok(); // watches
    }
    locks(held) {
        drop(held.mutex.lock().await); // locks
    }
    reads(held) {
        drop(held.rw_lock.read().await); // reads
    }
    acquires(held) {
        drop(held.semaphore.acquire().await); // acquires
    }
    meets(held) {
        held.barrier.wait().await; // meets
    }
    reads_socket(_held) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let _other_end = listener.accept().await;
        stream.read_u8().await.ok(); // reads_socket
    }
    accepts(_held) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        listener.accept().await.ok(); // accepts
    }
    joins(_held) {
        tokio::spawn(pending::<()>()).await.ok(); // joins
    }
    joins_set(_held) {
        let mut set = JoinSet::new();
        set.spawn(pending::<()>());
        set.join_next().await; // joins_set
    }
    joins_blocking(_held) {
        // The task waits as long as the thread parks: until the end of the runtime, which is leaked.
        tokio::task::spawn_blocking(|| std::thread::park_timeout(LONG)).await.ok(); // joins_blocking
    }
    times_out(held) {
        tokio::time::timeout(LONG, is_notified_too(held)).await.ok(); // times_out
    }
    selects(held) {
        // Both awaits are at the macro's line.
        tokio::select! { () = sleeps_too() => {} () = is_notified_too(held) => {} } // selects
    }
    joins_both(held) {
        tokio::join!(sleeps_too(), is_notified_too(held)); // joins_both
    }
    boxed(held) {
        let future: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(is_notified_too(held));
        future.await; // boxed
    }
}

async fn sleeps_too() {
    tokio::time::sleep(LONG).await; // sleeps_too
}

async fn is_notified_too(held: Arc<Held>) {
    held.notify.notified().await; // is_notified_too
}

/// Returns the line with this comment.
fn line_of(name: &str) -> usize {
    let comment = format!("// {name}");
    let at = include_str!("leaves.rs").lines().position(|line| line.ends_with(&comment));
    at.expect("the line is marked") + 1
}

/// Returns the lines of an async function of this file on the stacks of a task.
fn lines(task: &Dumped, function: &str) -> Vec<usize> {
    task.lines_in(&format!("leaves::{function}::{{"), "leaves.rs")
}

/// Checks the stack of the task of this name, out to the function around the leaf.
fn check(name: &str, task: &Dumped) {
    assert!(task.state.starts_with("await"), "{task:?}");
    let expect: &[(&str, &str)] = match name {
        "times_out" => &[("is_notified_too", "is_notified_too")],
        "selects" | "joins_both" => &[("is_notified_too", "is_notified_too"), ("sleeps_too", "sleeps_too")],
        "boxed" => &[("is_notified_too", "is_notified_too")],
        _ => &[],
    };
    for (function, mark) in expect.iter().chain(&[(name, name), ("outermost", "outermost")]) {
        let lines = lines(task, function);
        assert!(!lines.is_empty(), "{function} is missing in {task:#?}");
        assert!(lines.iter().all(|&line| line == line_of(mark)), "{function} is at {lines:?} in {task:#?}");
    }
    for stack in task.branches.iter().chain([&task.frames]) {
        let end = &stack.last().expect("it has frames").function;
        assert!(end.contains("leaves::outermost"), "{end} is no part of the task: {task:#?}");
        let leaf = &stack[0].function;
        assert!(!leaf.contains("rtprof") && !leaf.contains("Waker::clone"), "{leaf} is ours: {task:#?}");
    }
    let stacks = 1 + task.branches.len();
    // The timer, and the future inside the timeout.
    let expected = if expect.len() == 2 || name == "times_out" { 2 } else { 1 };
    assert_eq!(stacks, expected, "{task:#?}");
}

/// Returns all tasks, without a request for their stacks.
fn tasks() -> Vec<GoroutineRecord> {
    let mut all = goroutine_profile();
    all.retain(|goroutine| goroutine.kind == GoroutineKind::Task);
    all
}

fn all_wait(count: usize) -> bool {
    let waits = |task: &GoroutineRecord| task.wait_reason().is_some_and(|reason| reason.name() == "await");
    tasks().iter().filter(|task| waits(task)).count() == count
}

/// Waits until all tasks have stacks. A snapshot waits for tasks that are to be polled, unless the runtime's threads
/// get no core for a tenth of a second: then the next snapshot has their stacks.
fn wait_for_stacks() {
    until("all have been polled", || tasks().iter().all(|task| task.stack().len() > 1));
}

fn every_leaf_in(runtime: &Handle) {
    let held = Held::new();
    set_await_stacks(AwaitStacks::Never);
    let names = spawn_all(runtime, &held);
    until("all tasks wait", || all_wait(names.len()));
    let polls: Vec<(u64, u32)> = tasks().iter().map(|task| (task.id, task.polls)).collect();
    assert!(tasks().iter().all(|task| task.stack().len() == 1), "nothing was noted");

    set_await_stacks(AwaitStacks::OnRequest);
    wait_for_stacks();
    let dumped = dump::tasks();
    for name in &names {
        check(name, &dumped[*name]);
    }
    let polled: Vec<_> = tasks().iter().map(|task| (task.id, task.polls - 1)).collect();
    assert_eq!(polled, polls, "each was polled once for its stack");
    for name in names {
        check(name, &dump::tasks()[name]);
    }
    let still: Vec<_> = tasks().iter().map(|task| (task.id, task.polls - 1)).collect();
    assert_eq!(still, polls, "their stacks are known");
    assert!(tasks().iter().all(|task| matches!(task.state, GoroutineState::Waiting(_))));
}

/// Makes a runtime of two threads, which is never dropped, because some of its tasks wait for ever.
pub(crate) fn lasting_runtime() -> ManuallyDrop<Runtime> {
    let mut runtime = Builder::new_multi_thread();
    ManuallyDrop::new(runtime.worker_threads(2).enable_all().build().expect("a runtime"))
}

#[test]
fn every_leaf_on_many_threads() {
    child::isolated("every_leaf_on_many_threads", || {
        every_leaf_in(lasting_runtime().handle());
    });
}

#[test]
fn every_leaf_on_one_thread() {
    child::isolated("every_leaf_on_one_thread", || {
        let (send, handle) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            send.send(runtime.handle().clone()).expect("it is received");
            runtime.block_on(pending::<()>());
        });
        every_leaf_in(&handle.recv().expect("it runs"));
    });
}

/// The first snapshot has all stacks of ten thousand tasks of four kinds.
#[test]
fn ten_thousand_idle_tasks() {
    const TASKS: usize = 10_000;
    child::isolated("ten_thousand_idle_tasks", || {
        let runtime = lasting_runtime();
        let held = Held::new();
        for _ in 0..TASKS / 4 {
            runtime.spawn(sleeps(held.clone()).instrument_named("sleeps"));
            runtime.spawn(is_notified(held.clone()).instrument_named("is_notified"));
            runtime.spawn(locks(held.clone()).instrument_named("locks"));
            runtime.spawn(receives(held.clone()).instrument_named("receives"));
        }
        set_await_stacks(AwaitStacks::Never);
        until("all tasks wait", || all_wait(TASKS));
        set_await_stacks(AwaitStacks::OnRequest);
        wait_for_stacks();
        let all: Vec<_> = dump::take().into_iter().filter(|task| task.about.starts_with("task")).collect();
        assert_eq!(all.len(), TASKS);
        for task in &all {
            let name = task.about.split('"').nth(1).expect("it has one");
            let lines = lines(task, name);
            assert_eq!(lines, [line_of(name)], "{task:#?}");
        }
    });
}
