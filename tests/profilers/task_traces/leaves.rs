//! The kind of a task's wait follows from the leaf future that it awaits, in a debug build and in a release build.

use std::collections::BTreeSet;
use std::future::{pending, poll_fn};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use rtprof::task::Instrument;
use rtprof::trace::WaitKind;
use rtprof_trace_check::EventType;
use test_support::child;
use test_support::recording::{Trace, has, is_named, record};
use test_support::trace_go;
use tokio::sync::{Barrier, Notify, Semaphore, mpsc, oneshot};
use tokio::time::{interval, timeout};

use super::script::{Play, WAIT, runtime};
use crate::tasks::by_hand::{Woken, poll};

/// Returns the waits of a goroutine: kinds, and stacks.
fn waits_of(trace: &Trace, goroutine: u64) -> Vec<(&'static str, Vec<&str>)> {
    let story = trace.story(goroutine).into_iter();
    let named = story.map(|event| (event.event_type().name(), event));
    let begins =
        named.filter(|(name, _)| name.starts_with("GoBlock") || ["GoSleep", "GoSched"].contains(name));
    begins.map(|(name, event)| (name, event.functions())).collect()
}

/// Checks that all waits of goroutines whose names begin with a kind are of that kind. (A timer of another thread may
/// fire in the poll that registers it: then there is no wait.) Returns the number of these goroutines.
#[track_caller]
fn check_kinds(trace: &Trace) -> usize {
    let mut checked = 0;
    for (goroutine, name) in trace.parsed.goroutines() {
        let Some((kind, _)) = name.split_once(' ').filter(|(kind, _)| kind.starts_with("Go")) else {
            continue;
        };
        let mut found = waits_of(trace, goroutine);
        found.retain(|(found, _)| *found != "GoSched");
        assert!(!found.is_empty() && found.iter().all(|(found, _)| *found == kind), "{name}: {found:#?}");
        checked += 1;
    }
    checked
}

/// Libraries whose leaf futures are recognised, on an executor other than tokio's.
#[test]
fn leaves_of_other_libraries() {
    child::isolated("leaves_of_other_libraries", || {
        let trace = record(|| {
            let mut tasks: Vec<Play<'static>> = Vec::new();
            let mut waits =
                |name: &str, future: Play<'static>| tasks.push(Box::pin(future.instrument_named(name)));
            let (smol_sends, smol_receives) = smol::channel::bounded::<u8>(1);
            let (mut sends, mut receives) = futures::channel::mpsc::channel::<u8>(0);
            let (lock, other_lock) =
                (Arc::new(smol::lock::Mutex::new(())), Arc::new(futures::lock::Mutex::new(())));
            let held = (
                lock.clone().try_lock_arc().expect("free"),
                other_lock.clone().try_lock_owned().expect("free"),
            );
            let (reply, replied) = futures::channel::oneshot::channel::<u8>();
            {
                use futures::{SinkExt, StreamExt};
                let receives_later = smol_receives.clone();
                waits("GoBlockRecv smol", Box::pin(async move { _ = smol_receives.recv().await }));
                waits("GoBlockRecv futures", Box::pin(async move { _ = receives.next().await }));
                waits("GoBlockRecv oneshot", Box::pin(async move { _ = replied.await }));
                waits("GoBlockSync smol", Box::pin(async move { drop(lock.lock().await) }));
                waits("GoBlockSync futures", Box::pin(async move { drop(other_lock.lock().await) }));
                // If the task loses its core for long enough, its sleep is over at the first poll; so it sleeps several
                // times.
                let sleeps = async || {
                    for _ in 0..10 {
                        smol::Timer::after(WAIT).await;
                    }
                };
                waits("GoSleep smol", Box::pin(async move { sleeps().await }));
                // The tasks begin to wait in their order: all of these are suspended when the last one runs.
                waits(
                    "wakes",
                    Box::pin(async move {
                        smol_sends.send(1).await.expect("there is room");
                        sends.send(1).await.expect("it lives");
                        reply.send(1).expect("it lives");
                        drop((held, receives_later));
                    }),
                );
            }
            let (full_sends, full_receives) = smol::channel::bounded::<u8>(1);
            full_sends.try_send(1).expect("there is room");
            let (flume_sends, flume_receives) = flume::bounded::<u8>(0);
            waits("GoBlockRecv flume", Box::pin(async move { _ = flume_receives.recv_async().await }));
            let (full_flume, empty_flume) = flume::bounded::<u8>(1);
            full_flume.send(1).expect("there is room");
            waits("GoBlockSend flume", Box::pin(async move { _ = full_flume.send_async(2).await }));
            waits(
                "uses flume",
                Box::pin(async move {
                    flume_sends.send_async(1).await.expect("it lives");
                    empty_flume.recv_async().await.expect("it lives");
                }),
            );
            waits("GoBlockSend smol", Box::pin(async move { _ = full_sends.send(2).await }));
            waits("empties", Box::pin(async move { _ = full_receives.recv().await }));
            smol::block_on(futures::future::join_all(tasks));
        });
        assert_eq!(check_kinds(&trace), 9);
    });
}

/// A task that yields, and a task whose budget tokio finds used up while messages are ready, can run again at once.
#[test]
fn tasks_that_let_others_run() {
    const MESSAGES: usize = 1000;
    const YIELDS: usize = 10;
    child::isolated("tasks_that_let_others_run", || {
        let trace = record(|| {
            runtime().block_on(async {
                let (send, mut receive) = mpsc::unbounded_channel();
                (0..MESSAGES).for_each(|n| send.send(n).expect("it lives"));
                let receives = async move {
                    for _ in 0..MESSAGES {
                        receive.recv().await.expect("it is there");
                    }
                };
                let yields = async {
                    for _ in 0..YIELDS {
                        tokio::task::yield_now().await;
                    }
                };
                let tasks = [
                    tokio::spawn(receives.instrument_named("receives")),
                    tokio::spawn(yields.instrument_named("yields")),
                ];
                for task in tasks {
                    task.await.expect("it does not panic");
                }
            });
        });
        trace.assert_whole();
        let yields = |name: &str| {
            let story = trace.story(trace.goroutine(name));
            let waits = story.iter().filter(|event| event.event_type().name().starts_with("GoBlock")).count();
            let yields: Vec<_> =
                story.into_iter().filter(|event| event.event_type() == EventType::GoSched).collect();
            (waits, yields)
        };
        let (waits, yielded) = yields("yields");
        assert_eq!((waits, yielded.len()), (0, YIELDS));
        assert!(yielded.iter().all(|event| has(*event, "tasks_that_let_others_run")), "{yielded:?}");
        // At present 128 messages at a time.
        let (waits, yielded) = yields("receives");
        assert!(waits == 0 && (2..MESSAGES).contains(&yielded.len()), "{waits} waits, and {yielded:?}");
        trace_go::check("task-yields", &trace, &[]);
    });
}

/// A device of the program that tokio does not know.
#[derive(Clone, Default)]
struct Device(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Device {
    async fn ready(&self) {
        let is_ready = poll_fn(|context| {
            let mut device = self.0.lock().expect("nobody panics");
            match device.0 {
                true => Poll::Ready(()),
                false => {
                    device.1.push(context.waker().clone());
                    Poll::Pending
                }
            }
        });
        is_ready.await;
        black_box("ready");
    }

    fn set_ready(&self) {
        let mut device = self.0.lock().expect("nobody panics");
        device.0 = true;
        device.1.drain(..).for_each(Waker::wake);
    }
}

async fn second(wait: impl Future<Output = ()>) {
    wait.await;
    black_box("second");
}

/// Leaf futures of tokio, bare and inside futures that hide them.
#[test]
fn leaves_of_tokio() {
    const LONG: Duration = Duration::from_secs(3600);
    child::isolated("leaves_of_tokio", || {
        let trace = record(|| {
            let mut tasks: Vec<Play<'static>> = Vec::new();
            let asked = Arc::new(AtomicUsize::new(0));
            let mut waits = |name: &str, future: Play<'static>| {
                let asked = asked.clone();
                let task = async move {
                    asked.fetch_add(1, Relaxed);
                    future.await;
                };
                tasks.push(Box::pin(task.instrument_named(name)));
            };
            let (notify, device) = (Arc::new(Notify::new()), Device::default());
            let (lock, full) = (Arc::new(tokio::sync::Mutex::new(())), Arc::new(Semaphore::new(0)));
            let held = lock.clone().try_lock_owned().expect("free");
            let barrier = Arc::new(Barrier::new(2));
            let (send, mut receive) = mpsc::unbounded_channel::<u8>();
            let (other_send, mut other_receive) = mpsc::unbounded_channel::<u8>();
            let (mut reply, replied) = oneshot::channel::<u8>();
            let (one, other) =
                (futures::channel::oneshot::channel::<u8>(), futures::channel::oneshot::channel::<u8>());

            let own = lock.clone();
            waits("GoBlockSync lock", Box::pin(async move { drop(timeout(LONG, own.lock()).await) }));
            let own = full.clone();
            waits("GoBlockSync semaphore", Box::pin(async move { drop(timeout(LONG, own.acquire()).await) }));
            let own = notify.clone();
            waits("GoBlockCond deadline", Box::pin(async move { drop(timeout(LONG, own.notified()).await) }));
            let own = notify.clone();
            waits(
                "GoBlockCond unconstrained",
                Box::pin(async move { tokio::task::unconstrained(own.notified()).await }),
            );
            let own = barrier.clone();
            waits("GoBlockSync barrier", Box::pin(async move { _ = own.wait().await }));
            let own = device.clone();
            waits("GoBlockSync device", Box::pin(async move { drop(timeout(LONG, own.ready()).await) }));
            waits("GoBlockRecv deadline", Box::pin(async move { drop(timeout(LONG, receive.recv()).await) }));
            waits("GoBlockSend closed", Box::pin(async move { reply.closed().await }));
            let own = device.clone();
            waits(
                "GoBlockNet told",
                Box::pin(async move {
                    drop(timeout(LONG, rtprof::task::wait(WaitKind::Net, own.ready())).await);
                }),
            );
            let own = device.clone();
            waits(
                "GoBlockSelect told",
                Box::pin(async move {
                    tokio::select! {
                        () = rtprof::task::wait(WaitKind::Net, own.ready()) => {}
                        _ = other_receive.recv() => {}
                    }
                }),
            );
            // The announced future is polled twice in a poll, as the first tick comes at once.
            let own = device.clone();
            waits(
                "GoBlockNet ticking",
                Box::pin(async move {
                    let (mut told, mut ticks) =
                        (pin!(rtprof::task::wait(WaitKind::Net, own.ready())), interval(LONG));
                    loop {
                        tokio::select! {
                            biased;
                            () = &mut told => break,
                            _ = ticks.tick() => {}
                        }
                    }
                }),
            );
            // The announced future is dropped in the same poll, and has left a stack.
            let own = device.clone();
            waits(
                "GoBlockCond given up",
                Box::pin(async move {
                    tokio::select! {
                        biased;
                        () = rtprof::task::wait(WaitKind::Net, own.ready()) => {}
                        () = async {} => {}
                    }
                    rtprof::task::wait(WaitKind::Cond, own.ready()).await;
                }),
            );
            let own = device.clone();
            waits(
                "GoBlockNet second",
                Box::pin(rtprof::task::wait(WaitKind::Net, async move {
                    tokio::select! {
                        biased;
                        () = own.ready() => {}
                        () = async {} => {}
                    }
                    second(own.ready()).await;
                })),
            );
            // This future leaves no stack.
            waits(
                "GoSleep given up",
                Box::pin(async move {
                    tokio::select! {
                        biased;
                        () = rtprof::task::wait(WaitKind::Net, pending()) => {}
                        () = async {} => {}
                    }
                    tokio::time::sleep(WAIT).await;
                }),
            );
            let (mut first, mut second) = (one.1, other.1);
            waits(
                "GoBlockSelect futures",
                Box::pin(async move {
                    futures::select! {
                        _ = first => {}
                        _ = second => {}
                    }
                }),
            );
            runtime().block_on(async {
                let count = tasks.len();
                let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
                // A task that has begun is waiting when another task runs.
                while asked.load(Relaxed) < count {
                    tokio::task::yield_now().await;
                }
                tokio::join!(
                    async {
                        drop((held, replied));
                        full.add_permits(1);
                        notify.notify_waiters();
                        device.set_ready();
                        send.send(1).expect("it lives");
                        one.0.send(1).expect("it lives");
                    },
                    async { _ = barrier.wait().await }
                );
                for task in tasks {
                    task.await.expect("it ends");
                }
                drop((other_send, other.0));
            });
        });
        trace.assert_whole();
        assert_eq!(check_kinds(&trace), 15);
        let reasons: BTreeSet<_> = trace.parsed.events().map(|event| event.reason()).collect();
        for reason in [
            "tokio: sleep",
            "tokio: channel receive",
            "tokio: channel send",
            "tokio: sync",
            "tokio: sync, condition",
            "network",
            "select",
            "sync: await",
        ] {
            assert!(reasons.contains(reason), "{reason} is none of {reasons:#?}");
        }
        let waits = waits_of(&trace, trace.goroutine("GoBlockNet second"));
        assert!(
            waits.iter().all(|(_, stack)| stack.iter().any(|name| is_named(name, "second"))),
            "{waits:#?}"
        );
        trace_go::check("task-leaves", &trace, &[]);
    });
}

/// A poll that panics is not a wait.
#[test]
fn a_poll_that_panics() {
    child::isolated("a_poll_that_panics", || {
        let executor = Arc::new(Woken::default());
        let trace = record(|| {
            let (lock, mut polls) = (Notify::new(), 0);
            let task = poll_fn(|context| {
                polls += 1;
                assert!(polls < 2, "polled twice");
                let mut waits = pin!(lock.notified());
                waits.as_mut().poll(context)
            });
            let mut task = Box::pin(task.instrument_named("panics"));
            assert!(poll(task.as_mut(), &executor).is_pending());
            let ends = catch_unwind(AssertUnwindSafe(|| poll(task.as_mut(), &executor).is_ready()));
            assert!(ends.is_err());
        });
        trace.assert_whole();
        let waits: Vec<_> =
            waits_of(&trace, trace.goroutine("panics")).into_iter().map(|(name, _)| name).collect();
        assert_eq!(waits, ["GoBlockCond", "GoSched"]);
    });
}
