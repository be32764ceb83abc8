//! Mutexes and conditions of C, which wait inside the C library.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::{Builder, scope, sleep};
use std::time::Duration;

use rtprof_trace_check::EventType;
use test_support::contention::{
    About, Moment, NONE, Seen, in_vain, queue, record_everything, thread_id, wait_until_asleep,
};
use test_support::recording::{has, record};
use test_support::{Background, child, until};

#[cfg(target_env = "gnu")]
use crate::c_lock::pthread_mutex_clocklock;
use crate::c_lock::{By, CLock};
use crate::locks::{Ends, HOLD, scripted, waiter, waker};

const HOUR: Duration = Duration::from_secs(3600);

fn all_clocks() -> Vec<By> {
    vec![
        By::Set,
        #[cfg(target_env = "gnu")]
        By::Chosen(libc::CLOCK_MONOTONIC),
    ]
}

#[test]
fn a_mutex() {
    child::isolated("a_mutex", || {
        record_everything();
        let lock = CLock::new();
        lock.lock();
        let wait = || assert_eq!((lock.lock(), lock.unlock()), (0, 0));
        scripted("pthread_mutex_lock", Ends::Unlock, wait, || assert_eq!(lock.unlock(), 0));
        let seen = Seen::unmodified();
        assert_eq!((seen.blocked("waiter").count, seen.charged("waker").count), (1, 1));
        assert_eq!(seen.charged("pthread_mutex_unlock"), seen.charged("waker"), "the primitive is named");
    });
}

#[test]
fn a_mutex_with_a_deadline() {
    for (at, by) in all_clocks().into_iter().enumerate() {
        child::isolated_as("a_mutex_with_a_deadline", &at.to_string(), || {
            record_everything();
            let lock = CLock::new();
            lock.lock();
            let wait = || assert_eq!((lock.lock_by(by, HOUR), lock.unlock()), (0, 0));
            scripted("pthread_mutex_", Ends::Unlock, wait, || assert_eq!(lock.unlock(), 0));
        });
    }
}

#[test]
fn a_condition() {
    let signals = [libc::pthread_cond_signal, libc::pthread_cond_broadcast];
    for (at, signal) in signals.into_iter().enumerate() {
        child::isolated_as("a_condition", &at.to_string(), || {
            record_everything();
            let lock = CLock::new();
            let wait = || lock.wait_until_set(CLock::wait);
            scripted("pthread_cond_wait", Ends::Return, wait, || lock.set(signal));
        });
    }
}

/// A thread that holds the mutex and waits for a condition releases the mutex, as an unlock does.
#[test]
fn who_waits_for_a_condition_gives_up_its_mutex() {
    child::isolated("who_waits_for_a_condition_gives_up_its_mutex", || {
        record_everything();
        let lock = CLock::new();
        let (held, waited) = scope(|scope| {
            lock.lock();
            let waiting = queue(scope, || waiter(|| assert_eq!((lock.lock(), lock.unlock()), (0, 0))));
            sleep(HOLD);
            let held = Moment::now().since(waiting.began);
            let waited = waker(|| {
                let waited =
                    in_vain(HOLD, |timeout| assert_eq!(lock.wait_by(By::Set, timeout), libc::ETIMEDOUT));
                lock.unlock();
                waited
            });
            waiting.thread.join().unwrap();
            (held, waited)
        });
        let seen = Seen::unmodified();
        let (blocked, charged) = (seen.blocked("waiter"), seen.charged("waker"));
        assert!(charged.count == 1 && (blocked.nanos - charged.nanos).abs() <= 2, "{blocked:?} {charged:?}");
        // The whole charge is for the release by the condition, unless the woken thread did not arrive in time.
        let by_condition = seen.charged("pthread_cond_timedwait").nanos;
        assert!(by_condition >= held.least.as_nanos() as i64 - 2000, "{by_condition} of {held:?}");
        waited.check("the condition", seen.blocked("waker").nanos);
    });
}

/// Lets a thread wait for the mutex, which this thread unlocks and takes again, if it is faster. Returns how long the
/// other thread has waited, and how often it was too late.
fn taken_again(lock: &CLock) -> (About, usize) {
    let (mut times, mut began) = (0, None);
    let woke = scope(|scope| {
        lock.lock();
        let waiting = queue(scope, || waiter(|| assert_eq!((lock.lock(), lock.unlock()), (0, 0))));
        began = Some(waiting.began);
        waker(|| {
            Moment::of(|| {
                for _ in 0..20 {
                    sleep(HOLD / 20);
                    lock.unlock();
                    if lock.try_lock() != 0 {
                        return;
                    }
                    times += 1;
                }
                lock.unlock();
            })
        })
    });
    (woke.since(began.expect("it began")), times)
}

/// A woken thread may find the mutex taken again. Its whole wait is charged to the holders.
#[test]
fn who_takes_it_again_is_charged_too() {
    child::isolated("who_takes_it_again_is_charged_too", || {
        record_everything();
        let (lock, mut all, mut rounds) = (CLock::new(), About::default(), 0);
        // The woken thread takes some microseconds to arrive: nearly always too many.
        until("the mutex is taken again", || {
            let (waited, times) = taken_again(&lock);
            (all, rounds) = (all + waited, rounds + 1);
            times > 0
        });
        let seen = Seen::unmodified();
        let (waited, charged) = (seen.blocked("waiter"), seen.charged("waker"));
        all.check("the waits", waited.nanos);
        assert_eq!(waited.count, rounds);
        // Each record is cut off at a nanosecond. The number of records depends on how the compiler has unrolled the
        // loop.
        assert!((waited.nanos - charged.nanos).abs() <= 20 * rounds, "{waited:?} {charged:?}");
    });
}

#[inline(never)]
pub(crate) fn unlocks(lock: &CLock) {
    black_box("unlocks");
    assert_eq!(lock.unlock(), 0);
    black_box("unlocks");
}

/// A recursive mutex is unlocked by the last of its unlocks.
#[test]
fn a_recursive_mutex_is_unlocked_once() {
    child::isolated("a_recursive_mutex_is_unlocked_once", || {
        record_everything();
        let lock = CLock::of_kind(libc::PTHREAD_MUTEX_RECURSIVE);
        assert_eq!((lock.lock(), lock.lock(), lock.lock()), (0, 0, 0));
        let wait = || assert_eq!((lock.lock(), lock.lock(), lock.unlock(), lock.unlock()), (0, 0, 0, 0));
        scripted("pthread_mutex_lock", Ends::Unlock, wait, || {
            unlocks(&lock);
            unlocks(&lock);
            assert_eq!(lock.unlock(), 0);
        });
        let seen = Seen::unmodified();
        assert_eq!((seen.charged("waker").count, seen.charged("unlocks")), (1, NONE));
    });
}

/// A timeout ends a wait, and an unlock after the timeout is not charged for it.
#[test]
fn a_time_may_be_over() {
    for (at, by) in all_clocks().into_iter().enumerate() {
        child::isolated_as("a_time_may_be_over", &at.to_string(), || {
            record_everything();
            let lock = CLock::new();
            lock.lock();
            let waited = scope(|scope| {
                let wait = || {
                    waiter(|| in_vain(HOLD, |timeout| assert_eq!(lock.lock_by(by, timeout), libc::ETIMEDOUT)))
                };
                scope.spawn(wait).join().unwrap()
            });
            waker(|| lock.unlock());
            lock.lock();
            let condition =
                waker(|| in_vain(HOLD, |timeout| assert_eq!(lock.wait_by(by, timeout), libc::ETIMEDOUT)));
            lock.unlock();
            let seen = Seen::unmodified();
            waited.check("the mutex", seen.blocked("waiter").nanos);
            condition.check("the condition", seen.blocked("waker").nanos);
            assert_eq!((seen.blocked("waiter").count, seen.blocked("waker").count), (1, 1));
            assert_eq!((seen.charged("waiter"), seen.charged("waker")), (NONE, NONE));
        });
    }
}

/// Threads contend for a mutex: the sum of their waits equals the sum of the charges, except for waits that were over
/// before they began.
#[test]
fn waits_and_charges_agree() {
    child::isolated("waits_and_charges_agree", || {
        record_everything();
        let (lock, background) = (CLock::new(), Background::default());
        scope(|scope| {
            let ends = background.ends_here();
            for _ in 0..4 {
                scope.spawn(|| {
                    background.repeat(|| {
                        waiter(|| assert_eq!(lock.lock(), 0));
                        for turn in 0..2000 {
                            black_box(turn);
                        }
                        waiter(|| assert_eq!(lock.unlock(), 0));
                    });
                });
            }
            until("there are waits", || Seen::unmodified().charged("waiter").count > 200);
            drop(ends);
        });
        let seen = Seen::unmodified();
        let (waited, charged) = (seen.blocked("waiter"), seen.charged("waiter"));
        assert!(charged.count <= waited.count, "{waited:?} {charged:?}");
        let cut_off = charged.count + waited.count;
        assert!(charged.nanos <= waited.nanos + cut_off, "{waited:?} {charged:?}");
    });
}

#[inline(never)]
fn signals(lock: &CLock) {
    black_box("signals");
    lock.set(libc::pthread_cond_signal);
    black_box("signals");
}

/// In a trace a wait for a mutex is a wait for another goroutine, a wait for a condition is Go's wait for a condition,
/// and both have a waker.
#[test]
fn a_trace_has_both() {
    child::isolated("a_trace_has_both", || {
        let (lock, has_it) = (CLock::new(), AtomicBool::new(false));
        lock.lock();
        let trace = record(|| {
            let (tx, rx) = mpsc::channel();
            scope(|scope| {
                let waits = || {
                    tx.send(thread_id()).unwrap();
                    waiter(|| {
                        lock.wait_until_set(|lock| {
                            has_it.store(true, Relaxed);
                            lock.wait()
                        });
                    });
                };
                Builder::new().name("c thread".into()).spawn_scoped(scope, waits).unwrap();
                let id = rx.recv().unwrap();
                wait_until_asleep(id);
                unlocks(&lock);
                until("it has the mutex", || has_it.load(Relaxed));
                signals(&lock);
            });
        });
        trace.assert_whole();
        trace.assert_in_order();
        let story = trace.story(trace.goroutine("c thread"));
        for (block, waker) in [(EventType::GoBlockSync, "unlocks"), (EventType::GoBlockCond, "signals")] {
            let at = story.iter().position(|event| event.event_type() == block && has(*event, "waiter"));
            let at = at.unwrap_or_else(|| panic!("no {block:?} in {story:#?}"));
            let wake = story[at + 1..].iter().find(|event| event.event_type() == EventType::GoUnblock);
            assert!(wake.is_some_and(|wake| has(*wake, waker)), "{story:#?}");
        }
    });
}

/// The functions return what the C library's functions return, whether anything is recorded or not.
#[test]
fn results_are_those_of_the_c_library() {
    child::isolated("results_are_those_of_the_c_library", || {
        let outcomes = || {
            let [normal, recursive, checked] =
                [libc::PTHREAD_MUTEX_NORMAL, libc::PTHREAD_MUTEX_RECURSIVE, libc::PTHREAD_MUTEX_ERRORCHECK]
                    .map(CLock::of_kind);
            let passed = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let mut all = vec![
                normal.lock(),
                normal.try_lock(),
                normal.lock_by(By::Set, Duration::ZERO),
                normal.unlock(),
            ];
            all.extend([recursive.lock(), recursive.lock(), recursive.unlock(), recursive.unlock()]);
            all.extend([checked.lock(), checked.lock(), checked.unlock(), checked.unlock()]);
            // SAFETY: the deadline is a local; the mutex is valid and free.
            all.push(unsafe { libc::pthread_mutex_timedlock(normal.mutex.get(), &raw const passed) });
            all.extend([normal.wait_by(By::Set, Duration::ZERO), normal.unlock()]);
            #[cfg(target_env = "gnu")]
            // SAFETY: the deadline is a local; the mutex is valid and not locked.
            all.extend(unsafe {
                [
                    pthread_mutex_clocklock(normal.mutex.get(), libc::CLOCK_TAI, &raw const passed),
                    pthread_mutex_clocklock(normal.mutex.get(), libc::CLOCK_MONOTONIC, &raw const passed),
                    normal.unlock(),
                ]
            });
            // SAFETY: the condition is valid, and no thread waits for it.
            all.extend(unsafe {
                [
                    libc::pthread_cond_signal(normal.condition.get()),
                    libc::pthread_cond_broadcast(normal.condition.get()),
                ]
            });
            all
        };
        let (busy, late, again, denied) = (libc::EBUSY, libc::ETIMEDOUT, libc::EDEADLK, libc::EPERM);
        let mut expected = vec![0, busy, late, 0, 0, 0, 0, 0, 0, again, 0, denied, 0, late, 0];
        if cfg!(target_env = "gnu") {
            expected.extend([libc::EINVAL, 0, 0]);
        }
        expected.extend([0, 0]);
        let check = |when: &str| {
            // SAFETY: the location is this thread's own.
            unsafe { *libc::__errno_location() = 4000 };
            assert_eq!(outcomes(), expected, "{when}");
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(4000), "{when}");
        };
        check("while nothing is recorded");
        record_everything();
        check("while waits are");
        record(|| check("while a trace is too")).assert_whole();
    });
}
