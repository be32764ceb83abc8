//! A thread that is about to sleep, or asleep, is shown as waiting, whatever events it records on the way, and as woken
//! by the right goroutine.
#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

use rtprof::sync::mpsc::sync_channel;
use rtprof::sync::{Condvar, Mutex};
use rtprof::thread;
use rtprof::trace;
use rtprof_trace_check::{EventType, Parsed};
use test_support::child;
use test_support::contention::{About, Moment, thread_id, wait_until_asleep};
use test_support::recording;

fn record(script: impl FnOnce()) -> Parsed {
    recording::record(script).parsed
}

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.into())
}

fn of(parsed: &Parsed, name: &str) -> u64 {
    parsed.goroutines_named(name).next().expect("it is there")
}

/// Returns the waits of this kind of a goroutine: how long each took, and which goroutine ended it (0 for none).
fn waits(parsed: &Parsed, name: &str, kind: EventType) -> Vec<(Duration, u64)> {
    let goroutine = of(parsed, name);
    let mut begun = None;
    let mut waits = Vec::new();
    for event in parsed.events() {
        if event.event_type() == kind && event.g() == goroutine {
            begun = Some(event.time());
        }
        let is_wake = matches!(event.event_type(), EventType::GoUnblock | EventType::GoUnblockLocal);
        if is_wake
            && event.target() == Some(goroutine)
            && let Some(begun) = begun.take()
        {
            waits.push((Duration::from_nanos(event.time() - begun), event.g()));
        }
    }
    waits
}

/// The minimum length of a recorded wait. A wait may end just after the waiter was seen asleep.
const PAUSE: Duration = Duration::from_millis(20);

fn pause() {
    std::thread::sleep(PAUSE);
}

/// The waiter releases a mutex that another thread wants, and so wakes that thread on its own way to sleep.
#[test]
fn who_unlocks_on_the_way_to_sleep_does_not_seem_awake() {
    static STATE: Mutex<bool> = Mutex::new(false);
    static CHANGED: Condvar = Condvar::new();
    child::isolated("who_unlocks_on_the_way_to_sleep_does_not_seem_awake", || {
        let (mut began, mut notified) = (Moment::now(), Moment::now());
        let parsed = record(|| {
            let ((holds, held), (queues, queued)) = (std_mpsc::channel(), std_mpsc::channel());
            let waiter = named("waiter").spawn(move || {
                let mut state = STATE.lock();
                holds.send(thread_id()).expect("the test listens");
                // The other thread is in the queue by then.
                wait_until_asleep(queued.recv().expect("it says who it is"));
                pause();
                let began = Moment::now();
                while !*state {
                    CHANGED.wait(&mut state);
                }
                began
            });
            let waiter_id = held.recv().expect("it has the lock");
            let notifier = named("notifier").spawn(move || {
                queues.send(thread_id()).expect("the waiter listens");
                *STATE.lock() = true;
                wait_until_asleep(waiter_id);
                pause();
                Moment::of(|| assert!(CHANGED.notify_one()))
            });
            notified = notifier.expect("a thread").join().expect("it ends well");
            began = waiter.expect("a thread").join().expect("it ends well");
        });
        let waits = waits(&parsed, "waiter", EventType::GoBlockCond);
        let [(time, by)] = waits[..] else { panic!("{waits:?}") };
        assert_eq!(by, of(&parsed, "notifier"));
        assert!(time >= PAUSE * 99 / 100, "{time:?}");
        About { least: Duration::ZERO, ..notified.since(began) }.check("the wait", time.as_nanos() as i64);
        let woken = self::waits(&parsed, "notifier", EventType::GoBlockSync);
        assert!(woken[0].0 >= PAUSE * 99 / 100, "{woken:?}");
    });
}

/// The same for a channel without room, whose receiver takes a message from the sender that waits longest.
#[test]
fn a_rendezvous_is_shown_as_it_is() {
    child::isolated("a_rendezvous_is_shown_as_it_is", || {
        let mut taken = Vec::new();
        let parsed = record(|| {
            let (send, receive) = sync_channel(0);
            let (tx, rx) = std_mpsc::channel();
            taken.push(Moment::now());
            let sender = named("sender").spawn(move || {
                tx.send(thread_id()).expect("the test listens");
                (0..3).for_each(|n| send.send(n).expect("it listens"));
            });
            let sender_id = rx.recv().expect("it has begun");
            for n in 0..3 {
                wait_until_asleep(sender_id);
                pause();
                taken.push(Moment::of(|| assert_eq!(receive.recv(), Ok(n))));
            }
            sender.expect("a thread").join().expect("it ends well");
        });
        let waits = waits(&parsed, "sender", EventType::GoBlockSend);
        assert_eq!(waits.len(), 3, "{waits:?}");
        for ((time, by), taken) in waits.into_iter().zip(taken.windows(2)) {
            assert!(time >= PAUSE * 99 / 100, "{time:?}");
            let most = taken[1].since(taken[0]);
            About { least: Duration::ZERO, ..most }.check("the wait", time.as_nanos() as i64);
            assert!(by != 0 && by != of(&parsed, "sender"), "woken by {by}");
        }
    });
}

/// A handler that logs on a sleeping thread does not mean that the thread's goroutine runs.
#[test]
fn a_handler_in_a_sleeping_thread_does_not_wake_it() {
    static LOCK: Mutex<()> = Mutex::new(());
    static THREAD: AtomicU64 = AtomicU64::new(0);
    static HANDLED: AtomicU32 = AtomicU32::new(0);
    extern "C" fn handler(_: libc::c_int) {
        trace::log("signal", "handled");
        drop(trace::start_region("of a handler"));
        HANDLED.fetch_add(1, Ordering::Release);
    }
    child::isolated("a_handler_in_a_sleeping_thread_does_not_wake_it", || {
        // SAFETY: the handler only calls trace::log, which may be called in a handler.
        unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
        let parsed = record(|| {
            let held = LOCK.lock();
            let (tx, rx) = std_mpsc::channel();
            let waiter = named("waiter").spawn(move || {
                // SAFETY: the call returns the thread's own handle.
                THREAD.store(unsafe { libc::pthread_self() }, Ordering::Release);
                tx.send(thread_id()).expect("the test listens");
                drop(LOCK.lock());
            });
            let waiter_id = rx.recv().expect("it has begun");
            for n in 1..=5 {
                wait_until_asleep(waiter_id);
                // SAFETY: the thread lives, because it waits for the lock.
                unsafe { libc::pthread_kill(THREAD.load(Ordering::Acquire), libc::SIGUSR1) };
                // A second signal before the first is handled would be merged with it.
                let started = Instant::now();
                while HANDLED.load(Ordering::Acquire) < n {
                    assert!(started.elapsed() < Duration::from_secs(60), "signal {n} is not handled");
                    std::thread::yield_now();
                }
            }
            pause();
            drop(held);
            waiter.expect("a thread").join().expect("it ends well");
        });
        assert_eq!(parsed.events_of(EventType::UserLog).count(), 5);
        let waits = waits(&parsed, "waiter", EventType::GoBlockSync);
        let [(time, by)] = waits[..] else { panic!("{waits:?}") };
        assert!(time >= PAUSE * 99 / 100, "{time:?}");
        assert!(by != 0 && by != of(&parsed, "waiter"), "woken by {by}");
    });
}

/// A heap sample does not mean that a thread runs, if the thread has announced a wait.
#[test]
fn what_a_wait_allocates_does_not_end_it() {
    child::isolated("what_a_wait_allocates_does_not_end_it", || {
        rtprof::set_mem_profile_rate(1);
        let parsed = record(|| {
            let waits = || {
                trace::wait(trace::WaitKind::Net, || {
                    pause();
                    let block = std::hint::black_box(vec![1u8; 1 << 20]);
                    pause();
                    drop(block);
                    pause();
                })
            };
            named("waiter").spawn(waits).expect("a thread").join().expect("it ends well");
        });
        let waits = waits(&parsed, "waiter", EventType::GoBlockNet);
        let [(time, _)] = waits[..] else { panic!("{waits:?}") };
        assert!(time >= 3 * PAUSE * 99 / 100, "{time:?}");
        // The curve contains the block, and no longer contains it at the end.
        let live: Vec<u64> = parsed.events_of(EventType::HeapAlloc).map(|point| point.args()[0]).collect();
        let most = live.iter().max().expect("there is a curve");
        assert!(live[live.len() - 1] + (1 << 19) < *most, "{live:?}");
    });
}
