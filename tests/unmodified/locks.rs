//! Waits for locks, channels and conditions of std, parking_lot and crossbeam, and their charges.
//!
//! A thread waits for an event whose time is known (`test_support::contention`). In the block profile its wait is as long as
//! the thread has measured, and has the names of the primitive and of the function that used it. A thread that unlocked
//! a lock has the same time in the mutex profile; a thread that sent a message or notified a condition is not in this
//! profile.

use std::hint::black_box;
use std::ops::DerefMut;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, RwLock, mpsc};
use std::thread::{park, scope, sleep, spawn};
use std::time::Duration;

use test_support::contention::{About, Moment, NONE, Seen, in_vain, queue, record_everything};
use test_support::profile::Sample;
use test_support::{child, until};

pub(crate) const HOLD: Duration = Duration::from_millis(40);

#[inline(never)]
pub(crate) fn waker<T>(play: impl FnOnce() -> T) -> T {
    black_box("waker");
    black_box(play())
}

#[inline(never)]
pub(crate) fn waiter<T>(play: impl FnOnce() -> T) -> T {
    black_box("waiter");
    black_box(play())
}

/// The event that ends a wait.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Ends {
    /// An unlock, which is in the mutex profile.
    Unlock,
    /// Another event, which is not in the mutex profile.
    Other,
    /// A return some time after the wake: of a join, or of a wait for a condition of C.
    Return,
}

/// Lets a thread wait in `wait`, until this thread calls `wake` after a while. A frame of the wait has `primitive` in
/// its name.
///
/// The result of `wait` is dropped at the end: closing a channel takes its lock, for which the thread might have to
/// wait too.
pub(crate) fn scripted<T: Send>(
    primitive: &str,
    ends: Ends,
    wait: impl FnOnce() -> T + Send,
    wake: impl FnOnce(),
) {
    let (began, woke, _kept) = scope(|scope| {
        let waiting = queue(scope, || waiter(wait));
        sleep(HOLD);
        let woke = waker(|| Moment::of(wake));
        let kept = waiting.thread.join().expect("the thread ends well");
        (waiting.began, woke, kept)
    });
    let seen = Seen::unmodified();
    let (waited, charged) = (seen.blocked("waiter"), seen.charged("waker"));
    let expected = match ends {
        Ends::Return => About { most: Moment::now().since(began).most, ..woke.since(began) },
        _ => woke.since(began),
    };
    expected.check("the wait", waited.nanos);
    match ends {
        Ends::Unlock => woke.since(began).check("the charge", charged.nanos),
        // A condition has a mutex too, for which the waiter may have to wait again.
        _ => woke.since(woke).check("what the waker has unlocked", charged.nanos),
    }
    for sample in seen.samples_blocked("waiter") {
        assert!(names(&sample, primitive), "no {primitive} in {:#?}", sample.frames);
    }
}

/// Returns whether a function of the stack has `primitive` in its name. The test's own functions do not count.
fn names(sample: &Sample, primitive: &str) -> bool {
    let is_ours = |name: &str| name.trim_start_matches('<').starts_with("unmodified");
    let mut functions = sample.frames.iter().map(|frame| &frame.function);
    functions.any(|name| name.contains(primitive) && !is_ours(name))
}

/// In an optimised program neither this function nor the lock's is in the stack of the wake: each has tail-called the
/// next one.
#[inline(never)]
fn last_drops(mut held: impl DerefMut<Target = u64>) {
    *held += 1;
}

// The names of tests differ from those of the primitives: whether a wake is an unlock is decided by function names,
// which must be the lock's own.
macro_rules! waits {
    ($($name:ident: $primitive:literal, $ends:expr, $play:expr;)*) => {
        $(#[test]
        fn $name() {
            child::isolated(stringify!($name), || {
                record_everything();
                let play: fn(&str, Ends) = $play;
                play($primitive, $ends);
            });
        })*
    };
}

waits! {
    std_exclusive: "mutex::futex::Mutex", Ends::Unlock, |primitive, ends| {
        let lock = Mutex::new(());
        let held = lock.lock().unwrap();
        scripted(primitive, ends, || drop(black_box(lock.lock().unwrap())), || drop(held));
    };
    std_exclusive_at_the_end: "mutex::futex::Mutex", Ends::Unlock, |primitive, ends| {
        let lock = Mutex::new(0);
        let held = lock.lock().unwrap();
        scripted(primitive, ends, || drop(black_box(lock.lock().unwrap())), || last_drops(held));
    };
    std_shared_reader: "rwlock::futex::RwLock", Ends::Unlock, |primitive, ends| {
        let lock = RwLock::new(());
        let held = lock.write().unwrap();
        scripted(primitive, ends, || drop(black_box(lock.read().unwrap())), || drop(held));
    };
    std_shared_writer: "rwlock::futex::RwLock", Ends::Unlock, |primitive, ends| {
        let lock = RwLock::new(());
        let held = lock.read().unwrap();
        scripted(primitive, ends, || drop(black_box(lock.write().unwrap())), || drop(held));
    };
    std_signal: "Condvar", Ends::Other, |primitive, ends| {
        let (lock, condition) = (Mutex::new(false), Condvar::new());
        let wait = || drop(condition.wait_while(lock.lock().unwrap(), |is_set| !*is_set).unwrap());
        scripted(primitive, ends, wait, || {
            *lock.lock().unwrap() = true;
            condition.notify_one();
        });
    };
    std_first_use: "once::", Ends::Other, |primitive, ends| {
        let (once, (send, receive)) = (Arc::new(OnceLock::new()), mpsc::channel::<()>());
        let (theirs, (began, begun)) = (once.clone(), mpsc::channel());
        let first = spawn(move || {
            theirs.get_or_init(|| {
                began.send(()).unwrap();
                receive.recv().unwrap();
            });
        });
        begun.recv().unwrap();
        // The woken thread is the one that initialises; it wakes the waiter.
        scripted(primitive, ends, || *once.get_or_init(|| ()), || {
            send.send(()).unwrap();
            first.join().unwrap();
        });
    };
    std_message: "recv", Ends::Other, |primitive, ends| {
        let (send, receive) = mpsc::channel();
        let wait = move || {
            receive.recv().unwrap();
            receive
        };
        scripted(primitive, ends, wait, || send.send(()).unwrap());
    };
    std_full_queue: "send", Ends::Other, |primitive, ends| {
        let (send, receive) = mpsc::sync_channel(1);
        send.send(()).unwrap();
        scripted(primitive, ends, || send.send(()).unwrap(), || receive.recv().unwrap());
    };
    std_pause: "park", Ends::Other, |primitive, ends| {
        let (send, receive) = mpsc::channel();
        let wait = move || {
            send.send(std::thread::current()).unwrap();
            park();
        };
        let thread = std::sync::OnceLock::new();
        scripted(primitive, ends, wait, || {
            thread.get_or_init(|| receive.recv().unwrap()).unpark();
        });
    };
    std_meeting: "barrier::Barrier", Ends::Other, |primitive, ends| {
        let barrier = Barrier::new(2);
        scripted(primitive, ends, || { barrier.wait(); }, || { barrier.wait(); });
    };
    lot_exclusive: "raw_mutex::RawMutex", Ends::Unlock, |primitive, ends| {
        let lock = parking_lot::Mutex::new(());
        let held = lock.lock();
        scripted(primitive, ends, || drop(black_box(lock.lock())), || drop(held));
    };
    lot_exclusive_at_the_end: "raw_mutex::RawMutex", Ends::Unlock, |primitive, ends| {
        let lock = parking_lot::Mutex::new(0);
        let held = lock.lock();
        scripted(primitive, ends, || drop(black_box(lock.lock())), || last_drops(held));
    };
    lot_shared_reader: "raw_rwlock::RawRwLock", Ends::Unlock, |primitive, ends| {
        let lock = parking_lot::RwLock::new(());
        let held = lock.write();
        scripted(primitive, ends, || drop(black_box(lock.read())), || drop(held));
    };
    lot_shared_writer: "raw_rwlock::RawRwLock", Ends::Unlock, |primitive, ends| {
        let lock = parking_lot::RwLock::new(());
        let held = lock.read();
        scripted(primitive, ends, || drop(black_box(lock.write())), || drop(held));
    };
    lot_signal: "Condvar", Ends::Other, |primitive, ends| {
        let (lock, condition) = (parking_lot::Mutex::new(false), parking_lot::Condvar::new());
        let wait = || condition.wait_while(&mut lock.lock(), |is_set| !*is_set);
        scripted(primitive, ends, wait, || {
            *lock.lock() = true;
            condition.notify_one();
        });
    };
    crossbeam_message: "recv", Ends::Other, |primitive, ends| {
        let (send, receive) = crossbeam_channel::unbounded();
        let wait = move || {
            receive.recv().unwrap();
            receive
        };
        scripted(primitive, ends, wait, || send.send(()).unwrap());
    };
    crossbeam_full_queue: "send", Ends::Other, |primitive, ends| {
        let (send, receive) = crossbeam_channel::bounded(1);
        send.send(()).unwrap();
        scripted(primitive, ends, || send.send(()).unwrap(), || receive.recv().unwrap());
    };
    flume_message: "recv", Ends::Other, |primitive, ends| {
        let (send, receive) = flume::unbounded();
        let wait = move || {
            receive.recv().unwrap();
            receive
        };
        scripted(primitive, ends, wait, || send.send(()).unwrap());
    };
    tokio_message: "blocking_recv", Ends::Other, |primitive, ends| {
        let (send, mut receive) = tokio::sync::mpsc::channel(1);
        let wait = || receive.blocking_recv().unwrap();
        scripted(primitive, ends, wait, || send.blocking_send(()).unwrap());
    };
    std_end: "JoinHandle", Ends::Return, |primitive, ends| {
        let (send, receive) = mpsc::channel::<()>();
        let thread = spawn(move || receive.recv().unwrap());
        scripted(primitive, ends, || thread.join().unwrap(), move || send.send(()).unwrap());
    };
    std_ends: "scope", Ends::Return, |primitive, ends| {
        let (send, receive) = mpsc::channel::<()>();
        scripted(primitive, ends, move || scope(move |scope| { scope.spawn(move || receive.recv().unwrap()); }), move || {
            send.send(()).unwrap();
        });
    };
}

/// Several threads wait for one holder: each wait is recorded, and the thread that wakes them all is charged for all.
#[test]
fn a_holder_is_charged_for_all_who_wait() {
    child::isolated("a_holder_is_charged_for_all_who_wait", || {
        record_everything();
        let lock = RwLock::new(());
        let (begun, woke) = scope(|scope| {
            let held = lock.write().unwrap();
            let waiting: Vec<_> =
                (0..3).map(|_| queue(scope, || waiter(|| drop(lock.read().unwrap())))).collect();
            sleep(HOLD);
            let woke = waker(|| Moment::of(|| drop(held)));
            (waiting.iter().map(|waiting| waiting.began).collect::<Vec<_>>(), woke)
        });
        let seen = Seen::unmodified();
        let (waited, charged) = (seen.blocked("waiter"), seen.charged("waker"));
        let all: About = begun.iter().map(|&began| woke.since(began)).sum();
        all.check("all", waited.nanos);
        assert_eq!((waited.count, charged), (3, waited));
    });
}

/// No wake is recorded for a lock without waiters, and for a wait that times out.
#[test]
fn a_wait_may_end_by_itself() {
    child::isolated("a_wait_may_end_by_itself", || {
        record_everything();
        let (lock, condition) = (Mutex::new(()), Condvar::new());
        let waited = waiter(|| {
            in_vain(HOLD, |timeout| {
                drop(condition.wait_timeout(lock.lock().unwrap(), timeout).unwrap());
            })
        });
        waker(|| condition.notify_all());
        let seen = Seen::unmodified();
        waited.check("the wait", seen.blocked("waiter").nanos);
        assert_eq!((seen.blocked("waiter").count, seen.charged("")), (1, NONE));
    });
}

/// The conditions of parking_lot hand their waiters to the lock if the thread that notifies holds it. So one unlock wakes a
/// thread that has waited for the lock, and another time one that has waited for the condition, which no holder has kept
/// waiting.
#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "in unoptimised programs all waits of parking_lot call the kernel from one function"
)]
fn an_unlock_that_wakes_a_notified_thread_is_not_charged() {
    child::isolated("an_unlock_that_wakes_a_notified_thread_is_not_charged", || {
        record_everything();
        let (lock, condition) = (parking_lot::Mutex::new(()), parking_lot::Condvar::new());
        let has_lock = AtomicBool::new(false);
        let mut expected = About::default();
        for round in 0..4 {
            let is_notified = round % 2 == 0;
            scope(|scope| {
                let mut held = lock.lock();
                let waiting = queue(scope, || {
                    waiter(|| {
                        let mut taken = lock.lock();
                        if is_notified {
                            has_lock.store(true, Relaxed);
                            condition.wait(&mut taken);
                        }
                    });
                });
                if is_notified {
                    // The waiter takes the lock, and lets it go when it waits for the condition.
                    parking_lot::MutexGuard::unlocked(&mut held, || {
                        until("the waiter has the lock", || has_lock.load(Relaxed));
                    });
                    has_lock.store(false, Relaxed);
                    sleep(HOLD);
                    condition.notify_one();
                } else {
                    sleep(HOLD);
                }
                let woke = Moment::of(|| waker(|| drop(held)));
                if !is_notified {
                    expected = expected + woke.since(waiting.began);
                }
            });
        }
        expected.check("the unlocks", Seen::unmodified().charged("waker").nanos);
    });
}

/// At a fraction above 1 the waits are chosen, and count as often as they stand for. Both profiles have seen the same waits.
#[test]
fn some_waits_stand_for_all() {
    const WAITS: i64 = 200;
    const FRACTION: i64 = 4;
    child::isolated("some_waits_stand_for_all", || {
        rtprof::set_block_profile_rate(1);
        rtprof::set_mutex_profile_fraction(FRACTION);
        let (std, of_parking_lot) = (Mutex::new(()), parking_lot::Mutex::new(()));
        for at in 0..WAITS {
            scope(|scope| {
                let (held, also_held) = (std.lock().unwrap(), of_parking_lot.lock());
                let waiting = queue(scope, || {
                    waiter(|| match at % 2 {
                        0 => drop(std.lock().unwrap()),
                        _ => drop(of_parking_lot.lock()),
                    });
                });
                waker(|| drop((held, also_held)));
                waiting.thread.join().expect("the thread ends well");
            });
        }
        let seen = Seen::unmodified();
        let (waited, charged) = (seen.blocked("waiter"), seen.charged("waker"));
        assert_eq!(waited.count, WAITS);
        assert_eq!(charged.count % FRACTION, 0, "each stands for as many");
        let each = waited.nanos as f64 / WAITS as f64;
        let sigma = ((WAITS * (FRACTION - 1)) as f64).sqrt();
        let near = |what, value: f64, exact: f64, sigma: f64| {
            // One run in 5e8, by chance.
            assert!((value - exact).abs() < 6.0 * sigma, "{what}: {value} for {exact}, sigma {sigma}");
        };
        near("waits", charged.count as f64, WAITS as f64, sigma);
        // Waits are about as long as each other.
        near("nanoseconds", charged.nanos as f64, waited.nanos as f64, 2.0 * sigma * each);
    });
}
