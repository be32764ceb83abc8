//! Truth: profiles of waiters and holders agree with the times that the threads have measured.
//!
//! Everything is recorded (rate and fraction 1), so nothing is left to chance: each number lies in an interval that
//! follows from the instants around the lock's own (`test_support::contention`). A test's threads are identified by the
//! function in which they do everything: `holder`, `second`, ..

use std::hint::black_box;
use std::sync::mpsc;
use std::thread::{scope, sleep};
use std::time::Duration;

use rtprof::sync::{Mutex, QueueMutex, RawMutex};
use test_support::child;
use test_support::contention::{
    About, Moment, NONE, Seen, Waiter, in_vain, queue, record_everything, record_nothing,
};

const HOLD: Duration = Duration::from_millis(60);

/// Functions that the optimizer cannot merge.
macro_rules! roles {
    ($($role:ident)*) => {
        $(#[inline(never)]
        fn $role<T>(play: impl FnOnce() -> T) -> T {
            black_box(stringify!($role));
            black_box(play())
        })*
    };
}

roles! { holder second third fourth }

/// A lock under test: ours, or an adapter over a foreign lock.
trait Lock: lock_api::RawMutex + lock_api::RawMutexTimed<Duration = Duration> + Sync {}

impl<R: lock_api::RawMutex + lock_api::RawMutexTimed<Duration = Duration> + Sync> Lock for R {}

type Any<R> = lock_api::Mutex<R, ()>;
type Adapter = RawMutex<parking_lot::RawMutex>;

fn new<R: Lock>() -> Any<R> {
    lock_api::Mutex::new(())
}

fn join<T>(waiter: Waiter<'_, T>) -> T {
    waiter.thread.join().expect("the thread ends well")
}

/// Checks one holder and four waiters: four waits and their whole time are charged to the holder (go#61015). The time
/// that the mutex then takes to go through the four is charged to them.
fn four_behind_one<R: Lock>() {
    record_everything();
    let lock = new::<R>();
    let (begun, unlocked) = scope(|scope| {
        let guard = lock.lock();
        let wait = || second(|| drop(black_box(lock.lock())));
        let waiters: Vec<_> = (0..4).map(|_| queue(scope, wait)).collect();
        sleep(HOLD);
        let unlocked = holder(|| Moment::of(|| drop(guard)));
        (waiters.iter().map(|waiter| waiter.began).collect::<Vec<_>>(), unlocked)
    });
    let ended = Moment::now();
    let waited: About = begun.iter().map(|&began| unlocked.since(began)).sum();
    let seen = Seen::now();
    let (by_holder, by_waiters, waits) =
        (seen.charged("holder"), seen.charged("second"), seen.blocked("second"));
    assert_eq!((by_holder.count, waits.count), (4, 4), "each wait is one");
    waited.check("the holder's charge", by_holder.nanos);
    let tail = About { least: Duration::ZERO, most: ended.since(unlocked).most * 3 };
    tail.check("what the waiters owe each other", by_waiters.nanos);
    (waited + tail).check("the waits", waits.nanos);
    assert!(waits.nanos >= 4 * HOLD.as_nanos() as i64, "{waits:?}");
    assert_eq!(seen.blocked(""), waits, "nobody else has waited");
    assert_eq!(seen.blocked("holder"), NONE);
}

#[test]
fn a_holder_is_charged_for_all_who_wait() {
    child::isolated("a_holder_is_charged_for_all_who_wait", four_behind_one::<QueueMutex>);
}

#[test]
fn a_holder_of_an_adapter_is_charged_for_all_who_wait() {
    child::isolated("a_holder_of_an_adapter_is_charged_for_all_who_wait", four_behind_one::<Adapter>);
}

/// Checks a queue that drains through four holders: each is charged for the threads behind it, from when it took over
/// or they came until it unlocked (go#73760).
fn drain<R: Lock>() {
    record_everything();
    let lock = new::<R>();
    let mut waits = Vec::new();
    let mut unlocks = Vec::new();
    scope(|scope| {
        let hold = |length| {
            let guard = lock.lock();
            sleep(Duration::from_millis(length));
            Moment::of(|| drop(guard))
        };
        let guard = lock.lock();
        let queued = [
            queue(scope, move || second(|| hold(30))),
            queue(scope, move || third(|| hold(20))),
            queue(scope, move || fourth(|| hold(25))),
        ];
        sleep(HOLD);
        unlocks.push(holder(|| Moment::of(|| drop(guard))));
        for waiter in queued {
            waits.push(waiter.began);
            unlocks.push(join(waiter));
        }
    });
    let seen = Seen::now();
    let held = |number: usize| unlocks[number].since(unlocks[number - 1]);
    let first = waits.iter().map(|&began| unlocks[0].since(began)).sum::<About>();
    first.check("the first holder's charge", seen.charged("holder").nanos);
    (held(1) * 2).check("the second's, for two", seen.charged("second").nanos);
    held(2).check("the third's, for one", seen.charged("third").nanos);
    assert_eq!(seen.charged("fourth"), NONE, "nobody waited for the last one");
    assert_eq!(seen.charged("holder").count, 3, "each wait is counted once, where it is charged first");
    for (number, role) in ["second", "third", "fourth"].into_iter().enumerate() {
        let waited = seen.blocked(role);
        unlocks[number].since(waits[number]).check(role, waited.nanos);
        assert_eq!(waited.count, 1, "{role}");
    }
}

#[test]
fn a_draining_queue_charges_each_holder_his_part() {
    child::isolated("a_draining_queue_charges_each_holder_his_part", drain::<QueueMutex>);
}

#[test]
fn a_draining_queue_of_an_adapter_charges_each_holder_his_part() {
    child::isolated("a_draining_queue_of_an_adapter_charges_each_holder_his_part", drain::<Adapter>);
}

/// Lets one waiter wait behind the current thread for `HOLD`.
fn contend<R: Lock>(lock: &Any<R>, wait: impl FnOnce() + Send) -> About {
    scope(|scope| {
        let guard = lock.lock();
        let waiter = queue(scope, wait);
        sleep(HOLD);
        Moment::of(|| drop(guard)).since(waiter.began)
    })
}

/// Checks that a thread that times out is in the block profile with its time, and that no thread is charged for it; it
/// leaves nothing behind that a later holder would be charged for.
fn give_up<R: Lock>() {
    record_everything();
    let lock = new::<R>();
    scope(|scope| {
        let guard = lock.lock();
        let wait = || in_vain(HOLD, |timeout| second(|| assert!(lock.try_lock_for(timeout).is_none())));
        let length = scope.spawn(wait).join().expect("the lock is held");
        holder(|| drop(guard));
        let seen = Seen::now();
        assert_eq!(seen.blocked("second").count, 1);
        length.check("the wait", seen.blocked("second").nanos);
        assert_eq!(seen.charged(""), NONE, "nobody waited any more");

        // One thread times out beside one that gets the lock.
        let guard = lock.lock();
        let patient = queue(scope, || third(|| drop(lock.lock())));
        scope.spawn(wait).join().expect("the lock is held");
        let unlocked = holder(|| Moment::of(|| drop(guard)));
        let charge = Seen::now().charged("holder");
        assert_eq!(charge.count, 1);
        unlocked.since(patient.began).check("for the patient one alone", charge.nanos);
    });
    let before = Seen::now().charged("holder");
    let waited = holder(|| contend(&lock, || third(|| drop(lock.lock()))));
    let after = Seen::now().charged("holder");
    assert_eq!(after.count - before.count, 1);
    waited.check("the next contention", after.nanos - before.nanos);
}

#[test]
fn who_gives_up_leaves_nothing_behind() {
    child::isolated("who_gives_up_leaves_nothing_behind", give_up::<QueueMutex>);
}

#[test]
fn who_gives_up_on_an_adapter_leaves_nothing_behind() {
    child::isolated("who_gives_up_on_an_adapter_leaves_nothing_behind", give_up::<Adapter>);
}

/// If a wait began under one holder and times out under the next one, the first holder is charged its part.
#[test]
fn a_wait_given_up_later_is_charged_to_who_unlocked_before() {
    child::isolated("a_wait_given_up_later_is_charged_to_who_unlocked_before", || {
        record_everything();
        let lock = &Mutex::new(());
        let (given_up, release) = mpsc::channel();
        // Long enough for the thread to be seen asleep, and the first holder to unlock.
        let timeout = 20 * HOLD;
        let (waits, unlocked, length) = scope(|scope| {
            let guard = lock.lock();
            let next = queue(scope, move || {
                second(|| {
                    let guard = lock.lock();
                    release.recv().expect("the test says when");
                    drop(guard);
                })
            });
            let waiter = queue(scope, || {
                in_vain(timeout, |timeout| third(|| assert!(lock.try_lock_for(timeout).is_none())))
            });
            let begun = [next.began, waiter.began];
            let unlocked = holder(|| Moment::of(|| drop(guard)));
            let length = waiter.thread.join().expect("the second holder keeps the lock");
            given_up.send(()).expect("the second holder waits");
            (begun, unlocked, length)
        });
        let seen = Seen::now();
        let parts = waits.map(|began| unlocked.since(began));
        (parts[0] + parts[1]).check("the first holder's charge", seen.charged("holder").nanos);
        assert_eq!(seen.charged("holder").count, 2);
        assert_eq!(seen.charged("second"), NONE, "when the second one unlocked nobody waited");
        parts[0].check("the second's wait", seen.blocked("second").nanos);
        length.check("the third's wait", seen.blocked("third").nanos);
    });
}

/// Profiles are switched on and off while the lock is held and threads wait: waits are recorded whole.
#[test]
fn profiles_are_switched_while_threads_wait() {
    child::isolated("profiles_are_switched_while_threads_wait", || {
        let lock = Mutex::new(());
        let wait = || second(|| drop(lock.lock()));
        let scene = |switch: &dyn Fn()| {
            scope(|scope| {
                let guard = lock.lock();
                let waiter = queue(scope, wait);
                sleep(HOLD);
                switch();
                holder(|| Moment::of(|| drop(guard))).since(waiter.began)
            })
        };
        let both = || {
            let seen = Seen::now();
            [("the holder", seen.charged("holder")), ("the waiter", seen.blocked("second"))]
        };
        let on = scene(&record_everything);
        let seen = both();
        for (who, waits) in seen {
            assert_eq!(waits.count, 1, "{who}: it was on when the wait ended");
            on.check(who, waits.nanos);
        }
        scene(&record_nothing);
        assert_eq!(both(), seen, "it was off when the wait ended");

        record_everything();
        let again = scene(&|| {
            record_nothing();
            record_everything();
        });
        for (who, waits) in both() {
            assert_eq!(waits.count, 2, "{who}: off and on again, and it goes on");
            (on + again).check(who, waits.nanos);
        }
    });
}
