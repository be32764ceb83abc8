//! A thread that is about to sleep, or asleep, is shown waiting whatever it does on the way, and woken by who woke it.
#![cfg(all(feature = "pprof", target_os = "linux"))]

mod support;
#[allow(dead_code, reason = "every test uses its own part of this")]
#[path = "support/trace.rs"]
mod trace_of;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rtprof::sync::mpsc::sync_channel;
use rtprof::sync::{Condvar, Mutex};
use rtprof::thread;
use rtprof::trace::{self, EventType, Parsed};
use support::child;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

fn record(script: impl FnOnce()) -> Parsed {
    trace_of::record(script).parsed
}

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.into())
}

fn of(parsed: &Parsed, name: &str) -> u64 {
    parsed.goroutines_named(name).next().expect("it is there")
}

/// The waits of this kind of a goroutine: how long each took, and who ended it (0 for nobody).
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

const PAUSE: Duration = Duration::from_millis(100);

/// The waiter gives up a mutex that another wants, and so wakes that one on its way to sleep.
#[test]
fn who_unlocks_on_the_way_to_sleep_does_not_seem_awake() {
    static STATE: Mutex<bool> = Mutex::new(false);
    static CHANGED: Condvar = Condvar::new();
    static HOLDS: AtomicBool = AtomicBool::new(false);
    child::isolated("who_unlocks_on_the_way_to_sleep_does_not_seem_awake", || {
        let parsed = record(|| {
            let waiter = named("waiter").spawn(|| {
                let mut state = STATE.lock();
                HOLDS.store(true, Ordering::Relaxed);
                // The other one is in the queue by then.
                std::thread::sleep(PAUSE);
                while !*state {
                    CHANGED.wait(&mut state);
                }
            });
            let waiter = waiter.expect("a thread");
            while !HOLDS.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let notifier = named("notifier").spawn(|| {
                *STATE.lock() = true;
                std::thread::sleep(PAUSE);
                CHANGED.notify_one();
            });
            notifier.expect("a thread").join().expect("it ends well");
            waiter.join().expect("it ends well");
        });
        let waits = waits(&parsed, "waiter", EventType::GoBlockCond);
        let [(time, by)] = waits[..] else { panic!("{waits:?}") };
        assert_eq!(by, of(&parsed, "notifier"));
        assert!(time >= PAUSE && time < 3 * PAUSE, "{time:?}");
        let woken = self::waits(&parsed, "notifier", EventType::GoBlockSync);
        assert!(woken[0].0 > PAUSE / 2, "{woken:?}");
    });
}

/// As above, of a channel without room, whose receiver takes a message from the sender that waits longest.
#[test]
fn a_rendezvous_is_shown_as_it_is() {
    child::isolated("a_rendezvous_is_shown_as_it_is", || {
        let parsed = record(|| {
            let (send, receive) = sync_channel(0);
            let sender =
                named("sender").spawn(move || (0..3).for_each(|n| send.send(n).expect("it listens")));
            for n in 0..3 {
                std::thread::sleep(PAUSE);
                assert_eq!(receive.recv(), Ok(n));
            }
            sender.expect("a thread").join().expect("it ends well");
        });
        let waits = waits(&parsed, "sender", EventType::GoBlockSend);
        assert_eq!(waits.len(), 3, "{waits:?}");
        for (time, by) in waits {
            assert!(time > PAUSE / 2 && time < 3 * PAUSE, "{time:?}");
            assert!(by != 0 && by != of(&parsed, "sender"), "woken by {by}");
        }
    });
}

/// A handler that logs in a thread that sleeps is no sign that the thread's goroutine runs.
#[test]
fn a_handler_in_a_sleeping_thread_does_not_wake_it() {
    static LOCK: Mutex<()> = Mutex::new(());
    static THREAD: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handler(_: libc::c_int) {
        trace::log("signal", "handled");
        drop(trace::start_region("of a handler"));
    }
    child::isolated("a_handler_in_a_sleeping_thread_does_not_wake_it", || {
        // SAFETY: the handler only does what trace::log promises to bear.
        unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
        let parsed = record(|| {
            let held = LOCK.lock();
            let waiter = named("waiter").spawn(|| {
                // SAFETY: asks for the thread's own handle.
                THREAD.store(unsafe { libc::pthread_self() }, Ordering::Release);
                drop(LOCK.lock());
            });
            std::thread::sleep(PAUSE);
            for _ in 0..5 {
                // SAFETY: the thread lives: it waits for the lock.
                unsafe { libc::pthread_kill(THREAD.load(Ordering::Acquire), libc::SIGUSR1) };
                std::thread::sleep(PAUSE / 10);
            }
            drop(held);
            waiter.expect("a thread").join().expect("it ends well");
        });
        assert_eq!(parsed.events_of(EventType::UserLog).count(), 5);
        let waits = waits(&parsed, "waiter", EventType::GoBlockSync);
        let [(time, by)] = waits[..] else { panic!("{waits:?}") };
        assert!(time > PAUSE, "{time:?}");
        assert!(by != 0 && by != of(&parsed, "waiter"), "woken by {by}");
    });
}

/// A sample of the heap is no sign that a thread runs that has said that it waits.
#[test]
fn what_a_wait_allocates_does_not_end_it() {
    child::isolated("what_a_wait_allocates_does_not_end_it", || {
        rtprof::set_mem_profile_rate(1);
        let parsed = record(|| {
            let waits = || {
                trace::wait(trace::WaitKind::Net, || {
                    std::thread::sleep(PAUSE / 4);
                    let block = std::hint::black_box(vec![1u8; 1 << 20]);
                    std::thread::sleep(PAUSE / 4);
                    drop(block);
                    std::thread::sleep(PAUSE / 4);
                })
            };
            named("waiter").spawn(waits).expect("a thread").join().expect("it ends well");
        });
        let waits = waits(&parsed, "waiter", EventType::GoBlockNet);
        let [(time, _)] = waits[..] else { panic!("{waits:?}") };
        assert!(time >= PAUSE * 3 / 4, "{time:?}");
        // The curve has the block, and has it no more at the end.
        let live: Vec<u64> = parsed.events_of(EventType::HeapAlloc).map(|point| point.args()[0]).collect();
        let most = live.iter().max().expect("there is a curve");
        assert!(live[live.len() - 1] + (1 << 19) < *most, "{live:?}");
    });
}
