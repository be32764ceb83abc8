use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rtprof_hooks::sync::{Condvar, Mutex};
use rtprof_runtime::goroutine::wait_reason::WaitReason::CondWait;

use crate::watched::{Watched, a_moment, start, stress, until};

type Pair<T> = Arc<(Mutex<T>, Condvar)>;

fn pair<T>(value: T) -> Pair<T> {
    Arc::new((Mutex::new(value), Condvar::new()))
}

/// A thread that waits, and notes in the list when it has the mutex again.
fn waiter(pair: &Pair<Vec<u32>>, number: u32) -> Watched<()> {
    let pair = pair.clone();
    let thread = start(move || {
        let mut list = pair.0.lock();
        pair.1.wait(&mut list);
        list.push(number);
    });
    thread.until_it_waits(CondWait);
    thread
}

#[test]
fn nobody_is_there_to_be_notified() {
    let condvar = Condvar::default();
    assert!(!condvar.notify_one());
    assert_eq!(condvar.notify_all(), 0);
}

#[test]
fn one_at_a_time_is_woken_the_longest_waiting_first() {
    let pair = pair(Vec::new());
    let threads = [0, 1, 2].map(|number| waiter(&pair, number));
    for number in 0..3 {
        assert!(pair.1.notify_one());
        until("the wake", || pair.0.lock().len() > number);
        a_moment();
        assert_eq!(*pair.0.lock(), Vec::from_iter(0..=number as u32), "one, and the first");
    }
    assert!(!pair.1.notify_one());
    threads.into_iter().for_each(Watched::end);
}

#[test]
fn all_are_woken_and_counted() {
    let pair = pair(Vec::new());
    let threads = [0, 1, 2, 3, 4].map(|number| waiter(&pair, number));
    {
        // They need the mutex, which the notifier may hold.
        let list = pair.0.lock();
        assert_eq!(pair.1.notify_all(), 5);
        assert_eq!(pair.1.notify_all(), 0);
        assert!(list.is_empty());
    }
    threads.into_iter().for_each(Watched::end);
    assert_eq!(pair.0.lock().len(), 5);
}

#[test]
fn the_mutex_is_free_during_the_wait_and_held_after_it() {
    let (mutex, condvar) = (Mutex::new(0), Condvar::new());
    let mut guard = mutex.lock();
    for timeout in [Duration::ZERO, Duration::from_millis(5)] {
        let started = Instant::now();
        assert!(condvar.wait_for(&mut guard, timeout).timed_out());
        assert!(started.elapsed() >= timeout);
        assert!(mutex.is_locked());
        assert!(condvar.wait_until(&mut guard, started).timed_out(), "that is over");
        assert!(mutex.is_locked());
    }
    assert!(!condvar.notify_one(), "who gave up is not there");
    std::thread::scope(|scope| {
        let until = Instant::now() + Duration::from_secs(60);
        scope.spawn(|| {
            *mutex.lock() += 1;
            condvar.notify_one();
        });
        while *guard == 0 {
            assert!(!condvar.wait_until(&mut guard, until).timed_out());
        }
    });
    drop(guard);
    assert!(!mutex.is_locked());
}

#[test]
fn who_gives_up_does_not_take_the_others_along() {
    let pair = pair(Vec::new());
    let stays = waiter(&pair, 1);
    assert!(pair.1.wait_for(&mut pair.0.lock(), Duration::from_millis(1)).timed_out());
    assert!(pair.1.notify_one(), "the one that stays");
    stays.end();
}

#[test]
fn a_wait_of_centuries_can_be_notified() {
    for timeout in [Duration::MAX, Duration::from_secs(1 << 60), Duration::from_secs(1 << 33)] {
        let pair = pair(false);
        let other = pair.clone();
        let thread = start(move || {
            let mut is_set = other.0.lock();
            other.1.wait_while_for(&mut is_set, |is_set| !*is_set, timeout)
        });
        thread.until_it_waits(CondWait);
        *pair.0.lock() = true;
        assert!(pair.1.notify_one());
        assert!(!thread.end().timed_out());
    }
}

#[test]
fn a_condition_is_waited_for() {
    let pair = pair(0);
    let other = pair.clone();
    let thread = start(move || {
        let mut number = other.0.lock();
        other.1.wait_while(&mut number, |number| *number < 3);
        *number
    });
    for number in 1..=3 {
        thread.until_it_waits(CondWait);
        let mut guard = pair.0.lock();
        *guard = number;
        pair.1.notify_all();
        drop(guard);
    }
    assert_eq!(thread.end(), 3);

    let mut number = pair.0.lock();
    let waited = pair.1.wait_while_for(&mut number, |number| *number == 3, Duration::from_millis(3));
    assert!(waited.timed_out());
    let waited = pair.1.wait_while_until(&mut number, |number| *number != 3, Instant::now());
    assert!(!waited.timed_out(), "nothing to wait for");
}

#[test]
fn a_condition_that_panics_gives_up_the_mutex() {
    let pair = pair(0);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        pair.1.wait_while_for(
            &mut pair.0.lock(),
            |calls| {
                *calls += 1;
                // Once before a wait and once after it.
                assert!(*calls < 2, "on purpose");
                true
            },
            Duration::from_millis(1),
        );
    }));
    // It timed out after the first call: no second one, no panic.
    assert!(panicked.is_ok());
    let other = pair.clone();
    let thread = start(move || {
        other.1.wait_while(&mut other.0.lock(), |calls| {
            *calls += 1;
            assert!(*calls < 3, "on purpose");
            true
        });
    });
    thread.until_it_waits(CondWait);
    pair.1.notify_one();
    assert!(thread.result().is_err());
    assert_eq!(*pair.0.lock(), 3);
}

#[test]
fn threads_may_come_with_different_mutexes() {
    let shared = Arc::new((Mutex::new(0), Mutex::new(0), Condvar::new()));
    let threads = [0, 1].map(|number| {
        let shared = shared.clone();
        let thread = start(move || {
            let mutex = if number == 0 { &shared.0 } else { &shared.1 };
            let mut count = mutex.lock();
            shared.2.wait(&mut count);
            assert!(mutex.is_locked());
            *count += 1;
        });
        thread.until_it_waits(CondWait);
        thread
    });
    let held = shared.0.lock();
    assert_eq!(shared.2.notify_all(), 2);
    let [first, second] = threads;
    second.end();
    assert!(!first.has_ended(), "its mutex is held");
    drop(held);
    first.end();
    assert_eq!((*shared.0.lock(), *shared.1.lock()), (1, 1));
}

/// A queue of two places between many threads: a notification that is lost leaves somebody asleep for ever, since
/// each is for one thread. Some waits time out all the time, so that giving up meets being notified.
#[test]
fn no_notification_is_lost() {
    #[derive(Default)]
    struct Places {
        queue: Mutex<VecDeque<usize>>,
        filled: Condvar,
        emptied: Condvar,
        sum: AtomicUsize,
    }
    const STOP: usize = usize::MAX;
    let places = Arc::new(Places::default());
    let ends = Instant::now() + stress();
    let takers = [0, 1, 2].map(|number| {
        let places = places.clone();
        start(move || {
            loop {
                let mut queue = places.queue.lock();
                while queue.is_empty() {
                    if number == 0 {
                        let waited = places.filled.wait_for(&mut queue, Duration::from_micros(30));
                        if waited.timed_out() && !queue.is_empty() {
                            // The notification may have gone to somebody else: no more than one takes it.
                            continue;
                        }
                    } else {
                        places.filled.wait(&mut queue);
                    }
                }
                let taken = queue.pop_front().unwrap();
                drop(queue);
                places.emptied.notify_one();
                if taken == STOP {
                    return;
                }
                places.sum.fetch_add(taken, Relaxed);
            }
        })
    });
    let put = |places: &Places, value| {
        let mut queue = places.queue.lock();
        places.emptied.wait_while(&mut queue, |queue| queue.len() >= 2);
        queue.push_back(value);
        drop(queue);
        places.filled.notify_one();
    };
    let putters = [1, 2].map(|step| {
        let places = places.clone();
        start(move || {
            let mut sum = 0;
            while Instant::now() < ends {
                (0..50).for_each(|_| put(&places, step));
                sum += 50 * step;
            }
            sum
        })
    });
    let sum: usize = putters.map(Watched::end).iter().sum();
    takers.iter().for_each(|_| put(&places, STOP));
    takers.into_iter().for_each(Watched::end);
    assert_eq!(places.sum.load(Relaxed), sum);
    assert!(places.queue.lock().is_empty());
}
