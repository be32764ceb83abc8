//! Snapshots while tasks begin, end, wake each other and move between threads.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rtprof::task::Instrument;
use rtprof::{GoroutineKind, goroutine_profile, num_goroutine};
use test_support::address_space::resident;
use test_support::{Background, child, stress, until};

use super::by_hand::Leaf;
use super::leaves::lasting_runtime;

const LASTING: usize = 50;
const LEAST_SNAPSHOTS: usize = 50;

/// Returns the id of the running task.
fn own_id() -> u64 {
    let text = rtprof::stack(false);
    text.split(' ').nth(1).and_then(|id| id.parse().ok()).expect("a number")
}

/// Each task that lives throughout is in every snapshot once; tasks that ended before or began later are in none.
#[test]
fn a_snapshot_has_those_that_live() {
    child::isolated("a_snapshot_has_those_that_live", || {
        let before = num_goroutine();
        let runtime = lasting_runtime();
        let (background, ended) = (Background::default(), Mutex::new(HashSet::new()));
        let (send, lasting) = std::sync::mpsc::channel();
        let mut stop = Vec::new();
        // The tasks wake each other in a ring, as fast as they can.
        let rings: Vec<_> = (0..LASTING).map(|_| tokio::sync::mpsc::unbounded_channel::<()>()).collect();
        let (senders, receivers): (Vec<_>, Vec<_>) = rings.into_iter().unzip();
        for (at, mut receive) in receivers.into_iter().enumerate() {
            let (next, send) = (senders[(at + 1) % LASTING].clone(), send.clone());
            let (end, ends) = tokio::sync::oneshot::channel::<()>();
            stop.push(end);
            let body = async move {
                send.send(own_id()).expect("it is received");
                let turns = async {
                    while receive.recv().await.is_some() {
                        next.send(()).ok();
                    }
                };
                tokio::select! { () = turns => {} _ = ends => {} }
            };
            runtime.spawn(body.instrument_named("lasting"));
        }
        let lasting: Vec<u64> = lasting.iter().take(LASTING).collect();
        senders.iter().step_by(LASTING / 4).for_each(|first| first.send(()).expect("it lives"));
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            let (runtime, ended, other) = (&runtime, &ended, &background);
            scope.spawn(move || {
                other.repeat(|| {
                    let short = async {
                        tokio::task::yield_now().await;
                        rtprof::goroutine_profile()[0].id
                    };
                    let id =
                        runtime.block_on(runtime.spawn(short.instrument_named("short"))).expect("it ends");
                    ended.lock().expect("nobody panics").insert(id);
                });
            });
            // Many more tasks, whose ids are not known.
            scope.spawn(move || {
                other.repeat(|| {
                    let all = (0..100)
                        .map(|_| runtime.spawn(async { tokio::task::yield_now().await }.instrument()));
                    let all: Vec<_> = all.collect();
                    all.into_iter().for_each(|task| runtime.block_on(task).expect("it ends"));
                });
            });
            let (mut snapshots, start) = (0, Instant::now());
            while snapshots < LEAST_SNAPSHOTS || start.elapsed() < stress() {
                let gone = ended.lock().expect("nobody panics").clone();
                let all = goroutine_profile();
                let later = runtime
                    .block_on(runtime.spawn(async { own_id() }.instrument_named("later")))
                    .expect("it ends");
                snapshots += 1;
                let there: HashSet<u64> = all.iter().map(|goroutine| goroutine.id).collect();
                assert_eq!(there.len(), all.len(), "one is there twice: {all:?}");
                assert!(there.is_disjoint(&gone), "one is there that ended before");
                assert!(lasting.iter().all(|id| there.contains(id)), "one is missing in {all:?}");
                for task in all.iter().filter(|task| task.kind == GoroutineKind::Task) {
                    assert!(task.id < later, "it began later: {task:?}");
                    assert!(!task.stack().is_empty(), "{task:?}");
                    assert!(
                        ["lasting", "short", "later"].contains(&&*task.name) || task.name.contains("churn"),
                        "{task:?}"
                    );
                }
            }
        });
        drop(stop);
        drop(senders);
        until("all tasks have ended", || {
            goroutine_profile().iter().all(|all| all.kind == GoroutineKind::Thread)
        });
        // Only the runtime's threads are left.
        until("counts agree", || num_goroutine() <= before + 2 + 1);
    });
}

/// The bytes of a task's slot.
const SLOT: u64 = 256;

/// The number of each kind in a round: pairs of tasks that wake each other, tasks that are never polled, and tasks that
/// are dropped while they wait.
const EACH: usize = 50;
/// The number of tasks in a round.
const ROUND: usize = 4 * EACH;

/// Runs a round. Returns how many tasks were woken.
async fn round() -> usize {
    for _ in 0..EACH {
        drop(std::future::pending::<()>().instrument());
    }
    let dropped: Vec<_> = (0..EACH)
        .map(|_| {
            let leaf = Leaf::default();
            (leaf.clone(), tokio::spawn(leaf.instrument()))
        })
        .collect();
    let ended: Vec<_> = (0..EACH)
        .map(|n| {
            let (send, receive) = tokio::sync::oneshot::channel();
            let receives = tokio::spawn(async move { receive.await == Ok(n) }.instrument());
            let sends = tokio::spawn(async move { send.send(n).is_ok() }.instrument());
            (receives, sends)
        })
        .collect();
    let mut count = 0;
    for (receives, sends) in ended {
        count += usize::from(receives.await.expect("no panic")) + usize::from(sends.await.expect("no panic"));
    }
    for (leaf, task) in dropped {
        task.abort();
        assert!(task.await.expect_err("it was not woken").is_cancelled());
        // The woken tasks have wakers that outlive them.
        drop(leaf.take());
    }
    count
}

/// A lost wake-up would keep a task waiting for ever, and leaked slots would make memory grow with each task.
#[test]
fn no_wake_is_lost_and_no_slot() {
    child::isolated("no_wake_is_lost_and_no_slot", || {
        let runtime = lasting_runtime();
        let rounds = |count: usize| {
            for _ in 0..count {
                assert_eq!(runtime.block_on(runtime.spawn(round())).expect("no panic"), 2 * EACH);
            }
        };
        let background = Background::default();
        let snapshots = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            scope.spawn(|| {
                background.repeat(|| {
                    assert!(!goroutine_profile().is_empty());
                    snapshots.fetch_add(1, Ordering::Relaxed);
                });
            });
            // One-time allocations are made by now.
            rounds(50);
            let (before, start) = (resident(), Instant::now());
            let mut tasks = 0;
            while tasks < 400_000 || start.elapsed() < stress() {
                rounds(10);
                tasks += 10 * ROUND;
            }
            let grown = resident().saturating_sub(before);
            let (seconds, looks) = (start.elapsed().as_secs_f64(), snapshots.load(Ordering::Relaxed));
            println!("{:.0} tasks a second, {looks} snapshots, {grown} bytes", tasks as f64 / seconds);
            // A quarter of the tasks is of each kind; pairs count as two.
            assert!(grown < (4 << 20) + tasks as u64 * SLOT / 10, "{grown} bytes for {tasks} tasks");
            assert!(looks > 0);
        });
        until("all tasks have ended", || {
            goroutine_profile().iter().all(|all| all.kind == GoroutineKind::Thread)
        });
    });
}
