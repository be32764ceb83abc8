//! Truth of reader-writer locks: every pair of a holder and a waiter is recorded (go#18496), and charged to the thread
//! that ended the wait. As in truth.rs, profiles are compared with the times that the threads have measured.

use std::hint::black_box;
use std::sync::mpsc;
use std::thread::{scope, sleep};
use std::time::Duration;

use lock_api::RwLockUpgradableReadGuard as Upgradable;
use rtprof::sync::{QueueRwLock, RawRwLock, RwLock};
use test_support::child;
use test_support::contention::{
    About, Moment, NONE, Seen, in_vain, queue, record_everything, thread_id, wait_until_asleep,
};

const HOLD: Duration = Duration::from_millis(40);

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

roles! { early_reader last_reader late_reader writer next_writer upgrader next_upgrader }

type Any<R> = lock_api::RwLock<R, ()>;
type Adapter = RawRwLock<parking_lot::RawRwLock>;

fn new<R: lock_api::RawRwLock>() -> Any<R> {
    lock_api::RwLock::new(())
}

fn writer_behind_readers<R: lock_api::RawRwLock + Sync>() -> (About, About) {
    record_everything();
    let lock = new::<R>();
    scope(|scope| {
        let (early, last) = (lock.read(), lock.read());
        let waiter = queue(scope, || writer(|| drop(lock.write())));
        sleep(HOLD);
        let left = early_reader(|| Moment::of(|| drop(early)));
        sleep(HOLD);
        let unlocked = last_reader(|| Moment::of(|| drop(last)));
        (left.since(waiter.began), unlocked.since(waiter.began))
    })
}

#[test]
fn a_writer_behind_readers_is_charged_to_the_last_one() {
    child::isolated("a_writer_behind_readers_is_charged_to_the_last_one", || {
        let (_, waited) = writer_behind_readers::<QueueRwLock>();
        let seen = Seen::now();
        let (charge, wait) = (seen.charged("last_reader"), seen.blocked("writer"));
        assert_eq!((charge.count, wait.count), (1, 1));
        waited.check("the last reader's charge", charge.nanos);
        waited.check("the writer's wait", wait.nanos);
        assert_eq!(seen.charged("early_reader"), NONE, "the writer would have waited without it as well");
        assert_eq!(seen.charged(""), charge);
    });
}

/// An adapter cannot know which reader is the last: each is charged its part.
#[test]
fn a_writer_behind_readers_of_an_adapter_is_charged_to_them_in_turn() {
    child::isolated("a_writer_behind_readers_of_an_adapter_is_charged_to_them_in_turn", || {
        let (until_early, waited) = writer_behind_readers::<Adapter>();
        let seen = Seen::now();
        until_early.check("the early reader's charge", seen.charged("early_reader").nanos);
        let rest = About {
            least: waited.least.saturating_sub(until_early.most),
            most: waited.most.saturating_sub(until_early.least),
        };
        rest.check("the last reader's charge", seen.charged("last_reader").nanos);
        waited.check("the writer's wait", seen.blocked("writer").nanos);
        assert_eq!(seen.blocked("writer").count, 1);
    });
}

/// Returns how long the readers waited until the unlock, and how long they then took to enter and leave.
fn readers_behind_a_writer<R: lock_api::RawRwLock + Sync>() -> (About, About) {
    record_everything();
    let lock = new::<R>();
    let (waited, unlocked) = scope(|scope| {
        let guard = lock.write();
        let wait = || late_reader(|| drop(lock.read()));
        let begun = [(); 3].map(|()| queue(scope, wait).began);
        sleep(HOLD);
        let unlocked = writer(|| Moment::of(|| drop(guard)));
        (begun.map(|began| unlocked.since(began)).into_iter().sum(), unlocked)
    });
    (waited, Moment::now().since(unlocked))
}

#[test]
fn readers_behind_a_writer_are_charged_to_it() {
    child::isolated("readers_behind_a_writer_are_charged_to_it", || {
        let (waited, _) = readers_behind_a_writer::<QueueRwLock>();
        let seen = Seen::now();
        let (charge, waits) = (seen.charged("writer"), seen.blocked("late_reader"));
        assert_eq!((charge.count, waits.count), (3, 3));
        waited.check("the writer's charge", charge.nanos);
        waited.check("the readers' waits", waits.nanos);
        assert!(charge.nanos >= 3 * HOLD.as_nanos() as i64, "{charge:?}");
        assert_eq!(seen.charged(""), charge);
    });
}

/// A reader that leaves before another reader runs looks like the holder for which that reader waited.
#[test]
fn readers_behind_a_writer_of_an_adapter_are_charged_to_it() {
    child::isolated("readers_behind_a_writer_of_an_adapter_are_charged_to_it", || {
        let (waited, rest) = readers_behind_a_writer::<Adapter>();
        let seen = Seen::now();
        let (charge, waits) = (seen.charged("writer"), seen.blocked("late_reader"));
        assert_eq!((charge.count, waits.count), (3, 3));
        waited.check("the writer's charge", charge.nanos);
        let longest = About { most: waited.most + 2 * rest.most, ..waited };
        longest.check("the readers' waits", waits.nanos);
    });
}

/// The reader is charged for the writer and for the reader behind that writer; the writer, after its turn, is charged
/// for the rest of that reader's wait (go#18496).
#[test]
fn a_reader_behind_a_waiting_writer_behind_a_reader() {
    child::isolated("a_reader_behind_a_waiting_writer_behind_a_reader", || {
        record_everything();
        let lock = RwLock::new(());
        let (begun, left, unlocked) = scope(|scope| {
            let guard = lock.read();
            let waiting = queue(scope, || {
                writer(|| {
                    let guard = lock.write();
                    sleep(HOLD);
                    Moment::of(|| drop(guard))
                })
            });
            let late = queue(scope, || late_reader(|| drop(lock.read())));
            sleep(HOLD);
            let left = last_reader(|| Moment::of(|| drop(guard)));
            ([waiting.began, late.began], left, waiting.thread.join().expect("it ends well"))
        });
        let seen = Seen::now();
        let [of_writer, of_reader] = begun.map(|began| left.since(began));
        assert_eq!(seen.charged("last_reader").count, 2, "both have waited for it");
        (of_writer + of_reader).check("the first reader's charge", seen.charged("last_reader").nanos);
        unlocked.since(left).check("the writer's charge", seen.charged("writer").nanos);
        of_writer.check("the writer's wait", seen.blocked("writer").nanos);
        unlocked.since(begun[1]).check("the late reader's wait", seen.blocked("late_reader").nanos);
        let counts = ["writer", "late_reader"].map(|role| seen.blocked(role).count);
        assert_eq!(counts, [1, 1], "a wait in two parts is one");
    });
}

/// A writer behind a writer that waits itself.
#[test]
fn writers_behind_a_reader_drain_in_turn() {
    child::isolated("writers_behind_a_reader_drain_in_turn", || {
        record_everything();
        let lock = RwLock::new(());
        let (begun, left, unlocked) = scope(|scope| {
            let guard = lock.read();
            let first = queue(scope, || {
                writer(|| {
                    let guard = lock.write();
                    sleep(HOLD);
                    Moment::of(|| drop(guard))
                })
            });
            let next = queue(scope, || next_writer(|| drop(lock.write())));
            sleep(HOLD);
            let left = last_reader(|| Moment::of(|| drop(guard)));
            ([first.began, next.began], left, first.thread.join().expect("it ends well"))
        });
        let seen = Seen::now();
        let parts = begun.map(|began| left.since(began));
        (parts[0] + parts[1]).check("the reader's charge", seen.charged("last_reader").nanos);
        unlocked.since(left).check("the writer's charge", seen.charged("writer").nanos);
        unlocked.since(begun[1]).check("the next writer's wait", seen.blocked("next_writer").nanos);
        assert_eq!(seen.charged("next_writer"), NONE);
        assert_eq!(seen.charged("last_reader").count, 2);
    });
}

/// An upgrade waits for readers; another upgradable reader waits for the upgrade.
#[test]
fn an_upgrade_waits_for_readers_and_is_waited_for() {
    child::isolated("an_upgrade_waits_for_readers_and_is_waited_for", || {
        record_everything();
        let lock = &RwLock::new(());
        let (go, start) = mpsc::channel();
        let (begun, left, unlocked) = scope(|scope| {
            let reader = lock.read();
            let (have, held) = mpsc::channel();
            let upgrading = scope.spawn(move || {
                upgrader(|| {
                    let guard = lock.upgradable_read();
                    have.send(thread_id()).expect("the test listens");
                    start.recv().expect("the test says when");
                    have.send(thread_id()).expect("the test listens");
                    let guard = Upgradable::upgrade(guard);
                    sleep(HOLD);
                    Moment::of(|| drop(guard))
                })
            });
            held.recv().expect("it is in beside the reader");
            let next = queue(scope, || next_upgrader(|| drop(lock.upgradable_read())));
            let began = Moment::of(|| {
                go.send(()).expect("it waits for this");
                wait_until_asleep(held.recv().expect("it is about to upgrade"));
            });
            sleep(HOLD);
            let left = last_reader(|| Moment::of(|| drop(reader)));
            ([began, next.began], left, upgrading.join().expect("it ends well"))
        });
        let seen = Seen::now();
        let parts = begun.map(|began| left.since(began));
        (parts[0] + parts[1]).check("the reader's charge", seen.charged("last_reader").nanos);
        assert_eq!(seen.charged("last_reader").count, 2, "the upgrade and who waits for it");
        unlocked.since(left).check("the upgrader's charge", seen.charged("upgrader").nanos);
        parts[0].check("the upgrade's wait", seen.blocked("upgrader").nanos);
        unlocked.since(begun[1]).check("the next one's wait", seen.blocked("next_upgrader").nanos);
    });
}

/// A writer that becomes a reader lets readers in, which is an unlock for those readers.
#[test]
fn a_downgrade_is_charged_for_the_readers_it_lets_in() {
    child::isolated("a_downgrade_is_charged_for_the_readers_it_lets_in", || {
        record_everything();
        let lock = RwLock::new(());
        let waited = scope(|scope| {
            let guard = lock.write();
            let waiter = queue(scope, || late_reader(|| drop(lock.read())));
            sleep(HOLD);
            let mut guard = Some(guard);
            let mut reader = None;
            let unlocked = writer(|| {
                Moment::of(|| reader = guard.take().map(rtprof::sync::RwLockWriteGuard::downgrade))
            });
            // The waiter is inside while the downgraded reader still is.
            waiter.thread.join().expect("it ends well");
            drop(reader);
            unlocked.since(waiter.began)
        });
        let seen = Seen::now();
        waited.check("the writer's charge", seen.charged("writer").nanos);
        waited.check("the reader's wait", seen.blocked("late_reader").nanos);
        assert_eq!((seen.charged("").count, seen.blocked("").count), (1, 1));
    });
}

/// A writer that times out has kept readers out meanwhile, and is charged for that.
#[test]
fn a_writer_that_gives_up_is_charged_for_who_waited_behind_it() {
    child::isolated("a_writer_that_gives_up_is_charged_for_who_waited_behind_it", || {
        record_everything();
        let lock = RwLock::new(());
        // Long enough for both to be seen asleep.
        let timeout = Duration::from_secs(2);
        let (gave_up, began) = scope(|scope| {
            let guard = lock.read();
            let hopeful = queue(scope, || {
                in_vain(timeout, |timeout| writer(|| assert!(lock.try_write_for(timeout).is_none())))
            });
            let late = queue(scope, || late_reader(|| drop(lock.read())));
            late.thread.join().expect("it is in when the writer has given up");
            let gave_up = hopeful.thread.join().expect("the reader stays");
            drop(guard);
            (gave_up, late.began)
        });
        let seen = Seen::now();
        gave_up.check("the writer's wait", seen.blocked("writer").nanos);
        let (charge, wait) = (seen.charged("writer"), seen.blocked("late_reader"));
        assert_eq!((charge.count, wait.count), (1, 1));
        assert_eq!(charge.nanos, wait.nanos, "the same ticks");
        let longest = Moment::now().since(began);
        assert!(charge.nanos as u128 <= longest.most.as_nanos(), "{charge:?} in {longest:?}");
        assert_eq!(seen.charged(""), charge, "the reader that was in is charged for nobody");
    });
}
