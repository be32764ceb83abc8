//! Snapshots while tasks come, go, wake each other and move between threads.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Instant;

use rtprof::task::Instrument;
use rtprof::{GoroutineKind, goroutine_profile, num_goroutine};

use crate::leaves::lasting_runtime;
use crate::support::{Background, child, stress, until};

const LASTING: usize = 50;
const LEAST_SNAPSHOTS: usize = 50;

/// The number of the task that runs.
fn own_id() -> u64 {
    let text = rtprof::stack(false);
    text.split(' ').nth(1).and_then(|id| id.parse().ok()).expect("a number")
}

/// Of tasks that live throughout, each is in every snapshot once; of those that ended before or began later, none.
#[test]
fn a_snapshot_has_those_that_live() {
    child::isolated("a_snapshot_has_those_that_live", || {
        let before = num_goroutine();
        let runtime = lasting_runtime();
        let (background, ended) = (Background::default(), Mutex::new(HashSet::new()));
        let (send, lasting) = std::sync::mpsc::channel();
        let mut stop = Vec::new();
        // They wake each other in a ring, as fast as they can.
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
            // Many more, of which no number is known.
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
                assert!(all.iter().all(|goroutine| goroutine.id < later), "one is there that began later");
                for task in all.iter().filter(|task| task.kind == GoroutineKind::Task) {
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
        // The runtime's threads are left.
        until("counts agree", || num_goroutine() <= before + 2 + 1);
    });
}
