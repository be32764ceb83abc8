//! Which waits are events, on whose stack and under which labels; and that the two profiles agree.

use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::Duration;

use rtprof::pprof::{do_with, labels};
use rtprof::sync::{Mutex, MutexGuard, RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};
use test_support::child;
use test_support::contention::{Moment, NONE, Seen, leaves, queue, record_everything, written};
use test_support::random::Random;

const HOLD: Duration = Duration::from_millis(20);

fn sum(records: &[rtprof::BlockProfileRecord]) -> (i64, i64) {
    (records.iter().map(|record| record.count).sum(), records.iter().map(|record| record.cycles).sum())
}

/// Asserts that both profiles have the same ticks, if no thread times out: a wait ends at the tick that is charged.
///
/// They are not quite equal: a wait of no time is one tick in the block profile. And if the counters of two cores
/// differ, a wait that would be negative counts 0, while a sum of waits takes it as it is. So a wait may be off by this
/// difference; 200 ticks are far more than that, and far less than a wait takes.
#[track_caller]
fn assert_totals_agree(least: i64) {
    let (blocked, charged) = (rtprof::block_profile(), rtprof::mutex_profile());
    let ((waits, waited), (counted, charged_for)) = (sum(&blocked), sum(&charged));
    println!("{waits} waits of {waited} ticks; {counted} charged with {charged_for}");
    assert!(waits >= least, "{waits} waits prove little");
    assert!((waited - charged_for).abs() <= 200 * waits, "{waited} ticks waited, {charged_for} charged");
    // A record without a new wait shows one wait.
    let most = waits + charged.len() as i64;
    assert!((waits..=most).contains(&counted), "{waits} waits, {counted} counted in the mutex profile");
}

const THREADS: u64 = 8;

fn play(lock: &Mutex<u64>, random: &mut Random) {
    let mut guard = lock.lock();
    *guard += 1;
    pause(random);
    match random.below(8) {
        0 => MutexGuard::unlock_fair(guard),
        1 => MutexGuard::bump(&mut guard),
        2 => MutexGuard::unlocked(&mut guard, || pause(&mut Random::new(5))),
        _ => {}
    }
}

fn play_rw(lock: &RwLock<u64>, random: &mut Random) {
    match random.below(8) {
        0 => *lock.write() += 1,
        1 => {
            let guard = lock.write();
            pause(random);
            let guard = RwLockWriteGuard::downgrade(guard);
            black_box(*guard);
        }
        2 => {
            let guard = lock.upgradable_read();
            pause(random);
            *RwLockUpgradableReadGuard::upgrade(guard) += 1;
        }
        3 => RwLockWriteGuard::unlock_fair(lock.write()),
        _ => {
            let guard = lock.read();
            pause(random);
            black_box(*guard);
        }
    }
}

/// Pauses for no time, a moment, or a sleep, so that waits are of every length.
fn pause(random: &mut Random) {
    match random.below(16) {
        0 => sleep(Duration::from_micros(random.below(300) as u64)),
        1..4 => (0..random.below(3000)).for_each(|_| black_box(())),
        4 => std::thread::yield_now(),
        _ => {}
    }
}

fn with_threads(rounds: usize, play: impl Fn(&mut Random) + Sync) {
    record_everything();
    scope(|scope| {
        for seed in 0..THREADS {
            let play = &play;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                (0..rounds).for_each(|_| play(&mut random));
            });
        }
    });
}

#[test]
fn totals_of_a_contended_mutex_agree() {
    child::isolated("totals_of_a_contended_mutex_agree", || {
        let lock = Mutex::new(0);
        with_threads(1500, |random| play(&lock, random));
        assert_totals_agree(100);
        assert_eq!(*lock.lock(), 1500 * THREADS);
    });
}

#[test]
fn totals_of_a_contended_reader_writer_lock_agree() {
    child::isolated("totals_of_a_contended_reader_writer_lock_agree", || {
        let lock = RwLock::new(0);
        with_threads(1500, |random| play_rw(&lock, random));
        assert_totals_agree(100);
    });
}

/// Many locks share the wait queue's buckets, but have separate accounts.
#[test]
fn totals_of_many_locks_agree() {
    child::isolated("totals_of_many_locks_agree", || {
        let locks: Vec<_> = (0..40).map(|_| (Mutex::new(0), RwLock::new(0))).collect();
        with_threads(3000, |random| {
            let (mutex, rw) = &locks[random.below(4) * random.below(13)];
            if random.below(2) == 0 { play(mutex, random) } else { play_rw(rw, random) }
        });
        assert_totals_agree(50);
    });
}

#[inline(never)]
fn every_way_without_contention(mutex: &Mutex<u64>, rw: &RwLock<u64>) {
    *mutex.lock() += 1;
    assert!(mutex.try_lock().is_some());
    assert!(mutex.try_lock_for(Duration::ZERO).is_some());
    MutexGuard::unlock_fair(mutex.lock());
    MutexGuard::bump(&mut mutex.lock());
    black_box((*rw.read(), *rw.read_recursive()));
    let both = (rw.read(), rw.read());
    assert!(rw.try_write().is_none(), "trying is not waiting");
    drop(both);
    *rw.write() += 1;
    let guard = RwLockUpgradableReadGuard::upgrade(rw.upgradable_read());
    drop(RwLockWriteGuard::downgrade_to_upgradable(guard));
    assert!(rw.try_write_for(HOLD).is_some());
}

#[test]
fn uncontended_use_is_no_event() {
    child::isolated("uncontended_use_is_no_event", || {
        record_everything();
        let (mutex, rw) = (Mutex::new(0), RwLock::new(0));
        for _ in 0..20 {
            // One thread after the other.
            scope(|scope| {
                scope.spawn(|| (0..200).for_each(|_| every_way_without_contention(&mutex, &rw)));
            });
        }
        let held = mutex.lock();
        assert!(mutex.try_lock().is_none(), "neither is trying");
        drop(held);
        assert_eq!((rtprof::block_profile().len(), rtprof::mutex_profile().len()), (0, 0));
        let seen = Seen::now();
        assert_eq!((seen.blocked(""), seen.charged("")), (NONE, NONE));
    });
}

/// Each way to wait and each way to unlock, in a separate function.
mod user {
    use super::{
        Duration, Mutex, MutexGuard, RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard, black_box,
    };

    macro_rules! users {
        ($($name:ident($($argument:ident: $type:ty),*) $body:expr;)*) => {
            $(#[inline(never)]
            pub(super) fn $name($($argument: $type),*) {
                $body;
                // Prevents a tail call, and merging with another function.
                black_box(stringify!($name));
            })*
        };
    }

    users! {
        locks(lock: &Mutex<u64>) black_box(*lock.lock());
        tries_to_lock(lock: &Mutex<u64>) black_box(lock.try_lock_for(Duration::MAX).is_some());
        reads(lock: &RwLock<u64>) black_box(*lock.read());
        reads_again(lock: &RwLock<u64>) black_box(*lock.read_recursive());
        writes(lock: &RwLock<u64>) black_box(*lock.write());
        reads_to_upgrade(lock: &RwLock<u64>) black_box(*lock.upgradable_read());
        drops(guard: MutexGuard<'_, u64>) drop(guard);
        unlocks_fair(guard: MutexGuard<'_, u64>) MutexGuard::unlock_fair(guard);
        bumps(guard: &mut MutexGuard<'_, u64>) MutexGuard::bump(guard);
        steps_out(guard: &mut MutexGuard<'_, u64>) MutexGuard::unlocked(guard, || ());
        drops_writer(guard: RwLockWriteGuard<'_, u64>) drop(guard);
        downgrades(guard: RwLockWriteGuard<'_, u64>) drop(RwLockWriteGuard::downgrade(guard));
        drops_upgradable(guard: RwLockUpgradableReadGuard<'_, u64>) drop(guard);
    }
}

/// The first function of every stack is the user's own, by name.
#[test]
fn the_first_frame_is_the_users() {
    child::isolated("the_first_frame_is_the_users", || {
        record_everything();
        let (mutex, rw) = (&Mutex::new(0), &RwLock::new(0));
        let behind = |wait: &(dyn Fn() + Sync), unlock: &dyn Fn()| {
            scope(|scope| {
                queue(scope, wait);
                unlock();
            });
        };
        let guards = || std::cell::RefCell::new(Some(mutex.lock()));
        for (wait, unlock) in [
            (user::locks as fn(&Mutex<u64>), user::drops as fn(MutexGuard<'_, u64>)),
            (user::tries_to_lock, user::unlocks_fair),
            (user::locks, |mut guard| user::bumps(&mut guard)),
            (user::locks, |mut guard| user::steps_out(&mut guard)),
        ] {
            let guard = guards();
            behind(&move || wait(mutex), &|| unlock(guard.take().expect("it is there")));
        }
        for (wait, unlock) in [
            (user::reads as fn(&RwLock<u64>), user::drops_writer as fn(RwLockWriteGuard<'_, u64>)),
            (user::reads_again, user::downgrades),
            (user::writes, user::drops_writer),
            (user::reads_to_upgrade, user::downgrades),
        ] {
            let guard = std::cell::RefCell::new(Some(rw.write()));
            behind(&move || wait(rw), &|| unlock(guard.take().expect("it is there")));
        }
        let guard = std::cell::RefCell::new(Some(rw.upgradable_read()));
        behind(&|| user::writes(rw), &|| user::drops_upgradable(guard.take().expect("it is there")));
        // A bump waits for the mutex too, because the thread that it let in may be slow.
        let waiters = ["locks", "reads", "reads_again", "reads_to_upgrade", "tries_to_lock", "writes"];
        let unlockers =
            ["bumps", "downgrades", "drops", "drops_upgradable", "drops_writer", "steps_out", "unlocks_fair"];
        let names = |profile: &str| {
            let mut names = leaves(&written(profile));
            names.sort();
            names.dedup();
            names.retain(|name| profile != "block" || !["bumps", "steps_out"].contains(&name.as_str()));
            names.retain(|name| profile != "mutex" || !waiters.contains(&name.as_str()));
            names
        };
        assert_eq!(names("block"), waiters);
        assert_eq!(names("mutex"), unlockers);
    });
}

/// Samples have the labels of the thread that waited, and of the thread that unlocked.
#[test]
fn labels_tell_who() {
    child::isolated("labels_tell_who", || {
        record_everything();
        let lock = Mutex::new(());
        scope(|scope| {
            let guard = lock.lock();
            for tenant in ["a", "a", "b"] {
                queue(scope, || do_with(labels(&[("tenant", tenant)]), || drop(lock.lock())));
            }
            do_with(labels(&[("tenant", "holder"), ("request", "7")]), || drop(guard));
        });
        let count = |profile: &str, key: &str, value: &str| -> i64 {
            let samples = written(profile).samples();
            let samples = samples.iter().filter(|sample| sample.labels.get(key).is_some_and(|v| v == value));
            samples.map(|sample| sample.values[0]).sum()
        };
        assert_eq!((count("block", "tenant", "a"), count("block", "tenant", "b")), (2, 1));
        assert_eq!((count("mutex", "tenant", "holder"), count("mutex", "request", "7")), (3, 3));
        assert_eq!((count("block", "tenant", "holder"), count("block", "request", "7")), (0, 0));
    });
}

#[inline(never)]
fn panics_while_holding(lock: &Mutex<i64>, held: &AtomicI64) {
    let _guard = lock.lock();
    held.fetch_add(1, Relaxed);
    sleep(HOLD);
    panic!("on purpose");
}

/// A panic in the critical section unlocks; it is charged like any unlock, and the next unlock is not affected.
#[test]
fn a_panic_unlocks_and_leaves_nothing_behind() {
    child::isolated("a_panic_unlocks_and_leaves_nothing_behind", || {
        record_everything();
        std::panic::set_hook(Box::new(|_| {}));
        let (lock, held) = (Mutex::new(0), AtomicI64::new(0));
        scope(|scope| {
            let guard = lock.lock();
            // The threads panic right after their waits, while they hold the lock, one after the other.
            let dying: Vec<_> = (0..3).map(|_| queue(scope, || panics_while_holding(&lock, &held))).collect();
            drop(guard);
            dying.into_iter().for_each(|waiter| assert!(waiter.thread.join().is_err(), "it panics"));
        });
        assert_eq!(held.load(Relaxed), 3, "each had the lock");
        assert!(!lock.is_locked(), "a panic unlocks");
        assert_totals_agree(3);
        let seen = Seen::now();
        let (charge, waits) = (seen.charged("panics_while_holding"), seen.blocked("panics_while_holding"));
        assert_eq!(waits.count, 3);
        // The second thread has waited for the first, the third for both.
        assert!(charge.nanos >= 3 * HOLD.as_nanos() as i64, "{charge:?}");
        let before = sum(&rtprof::mutex_profile());
        drop(lock.lock());
        assert_eq!(sum(&rtprof::mutex_profile()), before, "nobody waits any more");
    });
}

/// A leaked guard keeps its lock locked, and waiters time out. When another thread unlocks by force, the lock works as
/// before.
#[test]
fn a_leaked_guard_is_survived() {
    child::isolated("a_leaked_guard_is_survived", || {
        record_everything();
        let lock = Mutex::new(());
        std::mem::forget(lock.lock());
        let began = Moment::now();
        for _ in 0..3 {
            assert!(lock.try_lock_for(HOLD).is_none());
        }
        let longest = Moment::now().since(began);
        let seen = Seen::now();
        assert_eq!((seen.blocked("").count, seen.charged("")), (3, NONE));
        assert!(seen.blocked("").nanos as u128 <= longest.most.as_nanos(), "{:?}", seen.blocked(""));
        // SAFETY: the guard was forgotten, so no other code unlocks the lock.
        unsafe { lock.force_unlock() };
        assert_eq!(Seen::now().charged(""), NONE, "nobody waited any more");
        let waited = scope(|scope| {
            let guard = lock.lock();
            let waiter = queue(scope, || drop(lock.lock()));
            Moment::of(|| drop(guard)).since(waiter.began)
        });
        waited.check("the next contention", Seen::now().charged("").nanos);
    });
}
