//! Waits at channels, condition variables, barriers, semaphores and initialisations, in the block profile: each is one
//! event, with the stack that waited and the time from the thread's arrival to its release.

use std::hint::black_box;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use rtprof::sync::mpsc::{self, Receiver};
use rtprof::sync::{Barrier, Condvar, Mutex, Once, Semaphore};
use rtprof_runtime::goroutine;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use test_support::child;
use test_support::contention::{
    About, Moment, NONE, Seen, in_vain, queue, record_everything, record_nothing,
};

const WAIT: Duration = Duration::from_millis(50);

/// Runs `body`, in which the thread waits.
#[inline(never)]
fn waits<T>(body: impl FnOnce() -> T) -> T {
    black_box(body())
}

/// Runs `body`, which ends the wait.
#[inline(never)]
fn lets_go<T>(body: impl FnOnce() -> T) -> T {
    black_box(body())
}

/// Lets `wait` wait for 50 ms, until `release`; checks that this is one event, with the waiter's stack, and that there
/// is no other.
#[track_caller]
fn one_event<T: Send>(wait: impl FnOnce() -> T + Send, release: impl FnOnce()) {
    record_everything();
    let (began, released) = scope(|scope| {
        let waiter = queue(scope, || waits(wait));
        sleep(WAIT);
        let released = Moment::of(|| lets_go(release));
        waiter.thread.join().expect("it ends well");
        (waiter.began, released)
    });
    let seen = Seen::now();
    let waited = seen.blocked("waits");
    assert_eq!(waited.count, 1);
    released.since(began).check("the wait", waited.nanos);
    assert!(waited.nanos >= WAIT.as_nanos() as i64);
    assert_eq!(seen.blocked(""), waited, "nobody else has waited");
    assert_eq!(seen.charged(""), NONE, "no lock made it wait");
}

/// Lets `wait` wait until its timeout of 50 ms is over.
#[track_caller]
fn one_event_in_vain(wait: impl FnOnce(Duration) + Send) {
    record_everything();
    let waited = scope(|scope| {
        let waiter = scope.spawn(|| in_vain(WAIT, |timeout| waits(|| wait(timeout))));
        waiter.join().expect("it ends well")
    });
    let seen = Seen::now();
    assert_eq!(seen.blocked("waits").count, 1);
    waited.check("the wait", seen.blocked("waits").nanos);
    assert_eq!(seen.blocked(""), seen.blocked("waits"), "nobody else has waited");
    assert_eq!(seen.charged(""), NONE);
}

#[test]
fn a_receive_from_an_empty_channel() {
    let ways: [fn(&Receiver<u8>) -> u8; 4] = [
        |receiver| receiver.recv().unwrap(),
        |receiver| receiver.recv_timeout(Duration::MAX).unwrap(),
        |receiver| receiver.iter().next().unwrap(),
        |receiver| receiver.into_iter().next().unwrap(),
    ];
    for (number, receive) in ways.into_iter().enumerate() {
        child::isolated_as("a_receive_from_an_empty_channel", &number.to_string(), || {
            let (sender, receiver) = mpsc::channel();
            one_event(move || assert_eq!(receive(&receiver), 7), || sender.send(7).unwrap());
        });
    }
    child::isolated_as("a_receive_from_an_empty_channel", "bounded", || {
        let (sender, receiver) = mpsc::sync_channel(1);
        one_event(move || receiver.recv().unwrap(), || sender.try_send(()).unwrap());
    });
    child::isolated_as("a_receive_from_an_empty_channel", "rendezvous", || {
        let (sender, receiver) = mpsc::sync_channel(0);
        one_event(move || receiver.recv().unwrap(), || sender.send(()).unwrap());
    });
    child::isolated_as("a_receive_from_an_empty_channel", "closed", || {
        let (sender, receiver) = mpsc::channel::<u8>();
        one_event(move || receiver.recv().unwrap_err(), || drop(sender));
    });
    child::isolated_as("a_receive_from_an_empty_channel", "in vain", || {
        let (_sender, receiver) = mpsc::channel::<u8>();
        one_event_in_vain(move |time| assert!(receiver.recv_timeout(time).is_err()));
    });
}

#[test]
fn a_send_to_a_full_channel() {
    for bound in [0, 1, 3] {
        let full = || {
            let (sender, receiver) = mpsc::sync_channel(bound);
            (0..bound).for_each(|number| sender.send(number).unwrap());
            (sender, receiver)
        };
        child::isolated_as("a_send_to_a_full_channel", &format!("{bound}, received"), || {
            let (sender, receiver) = full();
            one_event(move || sender.send(bound).unwrap(), || assert_eq!(receiver.recv(), Ok(0)));
        });
        child::isolated_as("a_send_to_a_full_channel", &format!("{bound}, closed"), || {
            let (sender, receiver) = full();
            one_event(move || sender.send(bound).unwrap_err(), || drop(receiver));
        });
    }
}

#[test]
fn a_condition() {
    let ways: [fn(&Condvar, &Mutex<bool>); 4] = [
        |condvar, mutex| condvar.wait(&mut mutex.lock()),
        |condvar, mutex| assert!(!condvar.wait_for(&mut mutex.lock(), Duration::MAX).timed_out()),
        |condvar, mutex| {
            let ages = Instant::now() + Duration::from_secs(1 << 30);
            assert!(!condvar.wait_until(&mut mutex.lock(), ages).timed_out());
        },
        |condvar, mutex| condvar.wait_while(&mut mutex.lock(), |is_set| !*is_set),
    ];
    for (number, wait) in ways.into_iter().enumerate() {
        for all in [false, true] {
            child::isolated_as("a_condition", &format!("{number}, {all}"), || {
                let (condvar, mutex) = (Condvar::new(), Mutex::new(false));
                one_event(
                    || wait(&condvar, &mutex),
                    || {
                        *mutex.lock() = true;
                        assert!(if all { condvar.notify_all() == 1 } else { condvar.notify_one() });
                    },
                );
            });
        }
    }
    child::isolated_as("a_condition", "in vain", || {
        let (condvar, mutex) = (Condvar::new(), Mutex::new(()));
        one_event_in_vain(|time| assert!(condvar.wait_for(&mut mutex.lock(), time).timed_out()));
    });
}

/// A notified thread next waits for the mutex, which is another wait, and is charged to the holder of the mutex.
#[test]
fn a_condition_whose_mutex_is_held() {
    child::isolated("a_condition_whose_mutex_is_held", || {
        record_everything();
        let (condvar, mutex) = (Condvar::new(), Mutex::new(()));
        let (waited, owed) = scope(|scope| {
            let waiter = queue(scope, || waits(|| condvar.wait(&mut mutex.lock())));
            sleep(WAIT);
            let guard = mutex.lock();
            let notified = Moment::of(|| assert!(condvar.notify_one()));
            let waits_for_it = |reason| reason == WaitReason::MutexLock;
            while !goroutine::all()
                .any(|thread| thread.waiting.is_some_and(|(reason, _)| waits_for_it(reason)))
            {
                sleep(Duration::from_millis(1));
            }
            sleep(WAIT);
            let unlocked = lets_go(|| Moment::of(|| drop(guard)));
            waiter.thread.join().expect("it ends well");
            (unlocked.since(waiter.began), unlocked.since(notified))
        });
        let seen = Seen::now();
        assert_eq!((seen.blocked("waits").count, seen.charged("lets_go").count), (2, 1));
        // Between the two waits the thread ran, after it had waited for a core.
        assert!(seen.blocked("waits").nanos <= (waited.most + waited.most / 1000).as_nanos() as i64);
        assert!(seen.charged("lets_go").nanos <= (owed.most + owed.most / 1000).as_nanos() as i64);
        assert!(
            seen.blocked("waits").nanos > seen.charged("lets_go").nanos + WAIT.as_nanos() as i64 * 9 / 10
        );
        assert_eq!(seen.charged(""), seen.charged("lets_go"), "and nobody else");
    });
}

#[test]
fn a_semaphore() {
    let ways: [fn(&Semaphore); 4] = [
        |semaphore| semaphore.acquire().forget(),
        |semaphore| semaphore.acquire_many(3).forget(),
        |semaphore| semaphore.try_acquire_for(Duration::MAX).expect("it comes").forget(),
        |semaphore| {
            let ages = Instant::now() + Duration::from_secs(1 << 30);
            semaphore.try_acquire_many_until(2, ages).expect("they come").forget();
        },
    ];
    for (number, acquire) in ways.into_iter().enumerate() {
        child::isolated_as("a_semaphore", &number.to_string(), || {
            let semaphore = Semaphore::new(0);
            one_event(|| acquire(&semaphore), || semaphore.add_permits(3));
        });
    }
    child::isolated_as("a_semaphore", "guard", || {
        let semaphore = Semaphore::new(3);
        let guard = semaphore.acquire_many(2);
        one_event(|| semaphore.acquire_many(2).forget(), || drop(guard));
    });
    child::isolated_as("a_semaphore", "in vain", || {
        let semaphore = Semaphore::new(1);
        one_event_in_vain(|time| assert!(semaphore.try_acquire_many_for(2, time).is_none()));
    });
}

#[test]
fn an_initialisation() {
    for forced in [false, true] {
        child::isolated_as("an_initialisation", &forced.to_string(), || {
            record_everything();
            let once = Once::new();
            let waited = scope(|scope| {
                let mut began = None;
                once.call_once(|| {
                    let waiter = queue(scope, || {
                        waits(|| if forced { once.call_once_force(|_| ()) } else { once.call_once(|| ()) });
                    });
                    began = Some(waiter.began);
                    sleep(WAIT);
                });
                // The wait ends when the closure returns: between its last instant and now.
                Moment::now().since(began.expect("it was called"))
            });
            let seen = Seen::now();
            let blocked = seen.blocked("waits");
            assert_eq!(blocked.count, 1);
            About { least: WAIT, ..waited }.check("the wait", blocked.nanos);
            assert_eq!(seen.blocked(""), blocked);
            assert_eq!(seen.charged(""), NONE);
        });
    }
}

#[test]
fn a_barrier() {
    child::isolated("a_barrier", || {
        record_everything();
        let barrier = Barrier::new(3);
        let waited: About = scope(|scope| {
            let first = queue(scope, || waits(|| barrier.wait().is_leader()));
            sleep(WAIT / 2);
            let second = queue(scope, || waits(|| barrier.wait().is_leader()));
            sleep(WAIT);
            let last = Moment::of(|| assert!(lets_go(|| barrier.wait().is_leader())));
            let waiters = [first, second];
            let waited = waiters.iter().map(|waiter| last.since(waiter.began)).sum();
            for waiter in waiters {
                assert!(!waiter.thread.join().expect("it ends well"), "it did not come last");
            }
            waited
        });
        let seen = Seen::now();
        assert_eq!(seen.blocked("waits").count, 2);
        waited.check("the two waits", seen.blocked("waits").nanos);
        assert_eq!(seen.blocked("lets_go"), NONE, "the last one does not wait");
        assert_eq!(seen.blocked(""), seen.blocked("waits"));
        assert_eq!(seen.charged(""), NONE);
    });
}

fn everything_that_need_not_wait() {
    let (sender, receiver) = mpsc::channel();
    let (bounded, from_bounded) = mpsc::sync_channel(2);
    let (rendezvous, nobody) = mpsc::sync_channel(0);
    for round in 0..100 {
        sender.send(round).unwrap();
        sender.clone().send(round).unwrap();
        assert_eq!(receiver.recv(), Ok(round));
        assert_eq!(receiver.recv_timeout(WAIT), Ok(round));
        assert!(receiver.try_recv().is_err());
        assert!(receiver.recv_timeout(Duration::ZERO).is_err());
        bounded.send(round).unwrap();
        bounded.try_send(round).unwrap();
        assert!(bounded.try_send(round).is_err());
        assert_eq!(from_bounded.try_iter().count(), 2);
        assert!(rendezvous.try_send(round).is_err());
        assert!(nobody.try_recv().is_err());
    }
    drop((sender, nobody));
    assert!(receiver.recv().is_err());
    assert!(rendezvous.send(0).is_err());

    let condvar = Condvar::new();
    assert!(!condvar.notify_one() && condvar.notify_all() == 0);
    condvar.wait_while(&mut Mutex::new(false).lock(), |holds| *holds);
    assert!(Barrier::new(1).wait().is_leader());
    let once = Once::new();
    once.call_once(|| ());
    once.call_once(|| ());
    let semaphore = Semaphore::new(2);
    drop((semaphore.acquire(), semaphore.try_acquire()));
    drop(semaphore.acquire_many(2));
    assert!(semaphore.try_acquire_many_for(2, WAIT).is_some());
    assert!(semaphore.try_acquire_many_for(3, Duration::ZERO).is_none());
}

#[test]
fn what_did_not_wait_is_no_event() {
    child::isolated("what_did_not_wait_is_no_event", || {
        record_everything();
        everything_that_need_not_wait();
        let seen = Seen::now();
        assert_eq!((seen.blocked(""), seen.charged("")), (NONE, NONE));
    });
}

/// The rate at the end of a wait decides. A wait that began while the rate was 0 is recorded whole, as in Go.
#[test]
fn the_rate_may_change_during_a_wait() {
    child::isolated_as("the_rate_may_change_during_a_wait", "on", || {
        let (sender, receiver) = mpsc::channel();
        one_event(
            // `record_everything` was called by then; the rate is set to 0 again.
            move || receiver.recv().unwrap(),
            || {
                record_nothing();
                sleep(Duration::from_millis(1));
                record_everything();
                sender.send(()).unwrap();
            },
        );
    });
    child::isolated_as("the_rate_may_change_during_a_wait", "off", || {
        record_everything();
        let (sender, receiver) = mpsc::sync_channel(0);
        scope(|scope| {
            let waiter = queue(scope, move || waits(|| sender.send(1).unwrap()));
            record_nothing();
            assert_eq!(lets_go(|| receiver.recv()), Ok(1));
            waiter.thread.join().expect("it ends well");
        });
        record_everything();
        assert_eq!(Seen::now().blocked(""), NONE);
    });
}
