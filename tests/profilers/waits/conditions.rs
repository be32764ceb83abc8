//! Threads that are notified all at once: they stay asleep, now for the mutex, and each part of their wait is recorded.

use std::hint::black_box;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use rtprof::sync::{Condvar, Mutex};
use test_support::contention::{About, Moment, Seen, Waiter, queue, record_everything};
use test_support::{child, until};

const HOLD: Duration = Duration::from_millis(20);

#[inline(never)]
fn awaits(mutex: &Mutex<u32>, changed: &Condvar) {
    let mut count = mutex.lock();
    changed.wait(&mut count);
    *count += 1;
    black_box(());
}

#[inline(never)]
fn awaits_for(mutex: &Mutex<u32>, changed: &Condvar, timeout: Duration) -> bool {
    let mut count = mutex.lock();
    *count += 1;
    let is_in_time = !changed.wait_for(&mut count, timeout).timed_out();
    black_box(is_in_time)
}

/// Notifies all, holds the mutex until then, and returns the number of threads and the times of both.
#[inline(never)]
fn notifies(mutex: &Mutex<u32>, changed: &Condvar, until: Instant) -> (usize, [Moment; 2]) {
    let guard = mutex.lock();
    let mut count = 0;
    let notified = Moment::of(|| count = changed.notify_all());
    sleep(until.saturating_duration_since(Instant::now()));
    let unlocked = Moment::of(|| drop(guard));
    black_box(());
    (count, [notified, unlocked])
}

/// The waiters were notified at that time, and have waited for the holder since.
#[test]
fn each_part_of_a_wait_is_charged() {
    child::isolated("each_part_of_a_wait_is_charged", || {
        record_everything();
        let (mutex, changed) = (&Mutex::new(0), &Condvar::new());
        let mut waited = About::default();
        let [notified, unlocked] = scope(|scope| {
            let waiters: Vec<Waiter<()>> = (0..4).map(|_| queue(scope, || awaits(mutex, changed))).collect();
            let (count, moments) = notifies(mutex, changed, Instant::now() + HOLD);
            assert_eq!(count, 4);
            waited = waiters.iter().map(|waiter| moments[1].since(waiter.began)).sum();
            moments
        });
        let ended = Moment::now();
        assert_eq!(*mutex.lock(), 4);
        let seen = Seen::now();
        let (by_holder, by_waiters, waits) =
            (seen.charged("notifies"), seen.charged("awaits"), seen.blocked("awaits"));
        assert_eq!(waits.count, 8, "four for the condition, four for the mutex");
        assert_eq!(by_holder.count, 4, "those for the mutex");
        (unlocked.since(notified) * 4).check("the notifier's charge", by_holder.nanos);
        // The last waiters wait for the first ones.
        let tail = About { least: Duration::ZERO, most: ended.since(unlocked).most * 3 };
        tail.check("what the waiters owe each other", by_waiters.nanos);
        (waited + tail).check("all waits", waits.nanos);
    });
}

/// A thread whose timeout expires while it waits for the mutex was notified all the same, and its wait goes on.
#[test]
fn a_deadline_that_passes_after_the_notification_is_none() {
    child::isolated("a_deadline_that_passes_after_the_notification_is_none", || {
        record_everything();
        let (mutex, changed) = (&Mutex::new(0), &Condvar::new());
        let mut timeout = Duration::from_millis(50);
        loop {
            let before = Seen::now();
            *mutex.lock() = 0;
            let (is_notified, [notified, unlocked]) = scope(|scope| {
                let waiter = scope.spawn(move || awaits_for(mutex, changed, timeout));
                until("it waits", || *mutex.lock() == 1);
                let (count, moments) = notifies(mutex, changed, Instant::now() + timeout + HOLD);
                let is_notified = waiter.join().expect("it ends well");
                assert_eq!(is_notified, count == 1, "the one that is counted is notified");
                (is_notified, moments)
            });
            if is_notified {
                let after = Seen::now();
                let waits = after.blocked("awaits_for").count - before.blocked("awaits_for").count;
                assert_eq!(waits, 2, "one for the condition, one for the mutex");
                let charged = after.charged("notifies").nanos - before.charged("notifies").nanos;
                return unlocked.since(notified).check("the notifier's charge", charged);
            }
            // The notifier must be in time, which a busy machine may prevent; so the test repeats with a longer
            // timeout.
            timeout *= 2;
        }
    });
}

/// Returns how often this thread has gone to sleep.
fn sleeps() -> i64 {
    // SAFETY: an all-zero `rusage` is valid; the call writes to a local.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_nvcsw
    }
}

/// The notifier holds the mutex, so waking all waiters would send them to sleep once more.
#[test]
fn each_sleeps_once() {
    const THREADS: usize = 8;
    child::isolated("each_sleeps_once", || {
        let (mutex, changed) = (&Mutex::new(0), &Condvar::new());
        let sum: i64 = scope(|scope| {
            // One after the other, so that no thread sleeps for the mutex before it waits.
            let waiters: Vec<_> = (0..THREADS)
                .map(|_| {
                    queue(scope, || {
                        let mut count = mutex.lock();
                        let before = sleeps();
                        changed.wait(&mut count);
                        sleeps() - before
                    })
                })
                .collect();
            assert_eq!(notifies(mutex, changed, Instant::now() + HOLD).0, THREADS);
            waiters.into_iter().map(|waiter| waiter.thread.join().expect("it ends well")).sum()
        });
        // Each thread sleeps once; a few may sleep for another reason too.
        assert!(
            (THREADS as i64..=THREADS as i64 * 3 / 2).contains(&sum),
            "{sum} sleeps of {THREADS} threads"
        );
    });
}
