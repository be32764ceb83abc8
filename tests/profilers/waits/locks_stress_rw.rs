//! Many threads use one reader-writer lock, in every way, with profiles off, on, and switched meanwhile, as
//! locks_stress.rs does for the mutex.

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};
use std::thread::scope;
use std::time::{Duration, Instant};

use lock_api::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RawRwLockDowngrade, RawRwLockFair,
    RawRwLockRecursiveTimed, RawRwLockTimed, RawRwLockUpgradeDowngrade, RawRwLockUpgradeFair,
    RawRwLockUpgradeTimed, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
};
use rtprof::sync::{QueueRwLock, RawRwLock};
use test_support::contention::{
    Moment, charged_in_all, queue, record_everything, record_nothing, recorded, switched,
};
use test_support::random::Random;
use test_support::{child, stress};

const TESTS: u32 = 6;

/// The numbers of readers inside, counted beside the lock, and data that only one thread at a time may change.
#[derive(Default)]
struct Protected {
    readers: AtomicI32,
    upgradable: AtomicI32,
    writers: AtomicI32,
    writes: (u64, u64),
}

impl Protected {
    fn read(&self, random: &mut Random) {
        self.readers.fetch_add(1, SeqCst);
        assert_eq!(self.writers.load(SeqCst), 0, "a reader and a writer are in");
        assert_eq!(self.writes.0, self.writes.1, "the writer is halfway");
        pause(random);
        assert_eq!(self.writers.load(SeqCst), 0, "a writer has come in");
        self.readers.fetch_sub(1, SeqCst);
    }

    /// Acts as a reader that excludes others of its kind.
    fn read_alone(&self, random: &mut Random) {
        assert_eq!(self.upgradable.fetch_add(1, SeqCst), 0, "two upgradable readers are in");
        self.read(random);
        self.upgradable.fetch_sub(1, SeqCst);
    }

    fn write(&mut self, random: &mut Random) {
        assert_eq!(self.writers.fetch_add(1, SeqCst), 0, "two writers are in");
        assert_eq!(self.readers.load(SeqCst), 0, "a writer and a reader are in");
        assert_eq!(self.upgradable.load(SeqCst), 0, "a writer and an upgradable reader are in");
        self.writes.0 += 1;
        pause(random);
        self.writes.1 += 1;
        assert_eq!(self.readers.load(SeqCst), 0, "a reader has come in");
        self.writers.fetch_sub(1, SeqCst);
    }
}

fn pause(random: &mut Random) {
    match random.below(32) {
        0 => std::thread::yield_now(),
        1 => std::thread::sleep(Duration::from_micros(random.below(100) as u64)),
        some => (0..some).for_each(|_| black_box(())),
    }
}

/// The operations that our lock and parking_lot's share.
trait Raw:
    RawRwLockFair
    + RawRwLockDowngrade
    + RawRwLockTimed<Duration = Duration, Instant = Instant>
    + RawRwLockRecursiveTimed
    + RawRwLockUpgradeFair
    + RawRwLockUpgradeDowngrade
    + RawRwLockUpgradeTimed
    + Send
    + Sync
{
}

impl<R> Raw for R where
    R: RawRwLockFair
        + RawRwLockDowngrade
        + RawRwLockTimed<Duration = Duration, Instant = Instant>
        + RawRwLockRecursiveTimed
        + RawRwLockUpgradeFair
        + RawRwLockUpgradeDowngrade
        + RawRwLockUpgradeTimed
        + Send
        + Sync
{
}

type Any<R> = lock_api::RwLock<R, Protected>;

const YEARS: Duration = Duration::from_secs(1 << 33);

fn short(random: &mut Random) -> Duration {
    Duration::from_micros(random.below(200) as u64)
}

fn any_read<R: Raw>(lock: &Any<R>, random: &mut Random) {
    let guard = match random.below(9) {
        0 => lock.try_read(),
        1 => lock.try_read_for(Duration::ZERO),
        2 => lock.try_read_for(short(random)),
        3 => Some(lock.try_read_for(Duration::MAX).expect("it waits for ever")),
        4 => Some(lock.try_read_recursive_for(YEARS).expect("it waits for ages")),
        5 => lock.try_read_until(Instant::now() + short(random)),
        _ => Some(lock.read()),
    };
    let Some(mut guard) = guard else { return };
    guard.read(random);
    match random.below(6) {
        0 => RwLockReadGuard::unlock_fair(guard),
        1 => {
            RwLockReadGuard::bump(&mut guard);
            guard.read(random);
        }
        2 => RwLockReadGuard::unlocked(&mut guard, || black_box(())),
        3 => {
            // A recursive read overtakes a waiting writer, which in turn waits for this reader.
            let again = lock.read_recursive();
            again.read(random);
            drop(guard);
            again.read(random);
        }
        4 => MappedRwLockReadGuard::unlock_fair(RwLockReadGuard::map(guard, |protected| &protected.writes)),
        _ => drop(guard),
    }
}

/// Returns how often it has written.
fn any_write<R: Raw>(lock: &Any<R>, random: &mut Random) -> u64 {
    let guard = match random.below(9) {
        0 => lock.try_write(),
        1 => lock.try_write_for(Duration::ZERO),
        2 => lock.try_write_for(short(random)),
        3 => Some(lock.try_write_for(Duration::MAX).expect("it waits for ever")),
        4 => Some(lock.try_write_for(YEARS).expect("it waits for ages")),
        5 => lock.try_write_until(Instant::now() + short(random)),
        _ => Some(lock.write()),
    };
    let Some(mut guard) = guard else { return 0 };
    guard.write(random);
    match random.below(7) {
        0 => RwLockWriteGuard::unlock_fair(guard),
        1 => {
            RwLockWriteGuard::bump(&mut guard);
            guard.write(random);
            return 2;
        }
        2 => RwLockWriteGuard::unlocked_fair(&mut guard, || black_box(())),
        3 => RwLockWriteGuard::downgrade(guard).read(random),
        4 => RwLockWriteGuard::downgrade_to_upgradable(guard).read_alone(random),
        5 => drop::<MappedRwLockWriteGuard<'_, _, _>>(RwLockWriteGuard::map(guard, |all| &mut all.writes.0)),
        _ => drop(guard),
    }
    1
}

fn any_upgradable<R: Raw>(lock: &Any<R>, random: &mut Random) -> u64 {
    let guard = match random.below(7) {
        0 => lock.try_upgradable_read(),
        1 => lock.try_upgradable_read_for(short(random)),
        2 => Some(lock.try_upgradable_read_for(Duration::MAX).expect("it waits for ever")),
        _ => Some(lock.upgradable_read()),
    };
    let Some(mut guard) = guard else { return 0 };
    guard.read_alone(random);
    let upgraded = match random.below(8) {
        0 => RwLockUpgradableReadGuard::try_upgrade(guard),
        1 => RwLockUpgradableReadGuard::try_upgrade_for(guard, Duration::ZERO),
        2 => RwLockUpgradableReadGuard::try_upgrade_for(guard, short(random)),
        3 => RwLockUpgradableReadGuard::try_upgrade_for(guard, Duration::MAX),
        4 => {
            RwLockUpgradableReadGuard::downgrade(guard).read(random);
            return 0;
        }
        5 => {
            RwLockUpgradableReadGuard::bump(&mut guard);
            guard.read_alone(random);
            Err(guard)
        }
        _ => Ok(RwLockUpgradableReadGuard::upgrade(guard)),
    };
    match upgraded {
        Ok(mut guard) => {
            guard.write(random);
            1
        }
        Err(guard) => {
            guard.read_alone(random);
            RwLockUpgradableReadGuard::unlock_fair(guard);
            0
        }
    }
}

/// Runs all uses on 6 threads for a part of the time; returns the lock.
fn all_uses<R: Raw>(also: impl Fn(&Any<R>, &mut Random) -> u64 + Sync) -> Any<R> {
    let (lock, writes, started) = (Any::<R>::default(), AtomicU64::new(0), Instant::now());
    scope(|scope| {
        for seed in 0..6 {
            let (lock, writes, also) = (&lock, &writes, &also);
            scope.spawn(move || {
                let (mut random, mut rounds, mut own) = (Random::new(seed), 0, 0);
                while started.elapsed() < stress() / TESTS || rounds < 200 {
                    own += match random.below(8) {
                        0 | 1 => any_write(lock, &mut random),
                        2 | 3 => any_upgradable(lock, &mut random),
                        4 => also(lock, &mut random),
                        _ => {
                            any_read(lock, &mut random);
                            0
                        }
                    };
                    rounds += 1;
                }
                assert!(own > 0, "thread {seed} was never in");
                writes.fetch_add(own, SeqCst);
            });
        }
    });
    println!("{writes:?} writes");
    assert!(!lock.is_locked() && !lock.is_locked_exclusive(), "everybody is out");
    assert_eq!(lock.read().writes, (writes.load(SeqCst), writes.load(SeqCst)));
    lock
}

fn nothing<R>(_: &Any<R>, _: &mut Random) -> u64 {
    0
}

/// Asserts that the next waits are charged correctly, whatever happened before.
fn assert_settled<R: Raw>(lock: &Any<R>) {
    record_everything();
    for is_read in [true, false] {
        let before = charged_in_all();
        let waited = scope(|scope| {
            let guard = lock.write();
            let wait = || if is_read { drop(lock.read()) } else { drop(lock.write()) };
            let waiter = queue(scope, wait);
            std::thread::sleep(Duration::from_millis(10));
            Moment::of(|| drop(guard)).since(waiter.began)
        });
        let after = charged_in_all();
        waited.check("the wait after all that", after.nanos - before.nanos);
    }
    record_nothing();
}

#[test]
fn every_use_of_a_reader_writer_lock() {
    child::isolated("every_use_of_a_reader_writer_lock", || {
        assert_settled(&all_uses::<QueueRwLock>(nothing));
    });
}

#[test]
fn every_use_of_an_adapter() {
    child::isolated("every_use_of_an_adapter", || {
        assert_settled(&all_uses::<RawRwLock<parking_lot::RawRwLock>>(nothing));
    });
}

#[test]
fn every_use_with_everything_recorded() {
    child::isolated("every_use_with_everything_recorded", || {
        assert_settled(&recorded(6, || all_uses::<QueueRwLock>(nothing)));
    });
}

#[test]
fn every_use_of_an_adapter_with_everything_recorded() {
    child::isolated("every_use_of_an_adapter_with_everything_recorded", || {
        assert_settled(&recorded(6, || all_uses::<RawRwLock<parking_lot::RawRwLock>>(nothing)));
    });
}

#[test]
fn profiles_are_switched_all_the_time() {
    child::isolated("profiles_are_switched_all_the_time", || {
        assert_settled(&switched(6, || all_uses::<QueueRwLock>(nothing)));
    });
}

/// Critical sections that end in a panic, as reader and as writer, also right after an upgrade.
#[test]
fn critical_sections_panic() {
    child::isolated("critical_sections_panic", || {
        std::panic::set_hook(Box::new(|_| {}));
        record_everything();
        let panics = AtomicU64::new(0);
        let lock = all_uses::<QueueRwLock>(|lock, random| {
            let kind = random.below(3);
            let result = catch_unwind(AssertUnwindSafe(|| match kind {
                0 => {
                    let guard = lock.read();
                    guard.read(random);
                    panic!("on purpose");
                }
                1 => {
                    let mut guard = lock.write();
                    guard.write(random);
                    panic!("on purpose");
                }
                _ => {
                    let guard = lock.upgradable_read();
                    guard.read_alone(random);
                    let _guard = RwLockUpgradableReadGuard::upgrade(guard);
                    panic!("on purpose");
                }
            }));
            let panic = result.expect_err("it always panics");
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"), "nothing else has panicked");
            panics.fetch_add(1, SeqCst);
            u64::from(kind == 1)
        });
        drop(std::panic::take_hook());
        assert!(panics.load(SeqCst) > 30);
        assert_settled(&lock);
    });
}
