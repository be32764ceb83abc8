//! Many threads use one mutex, in every way, with profiles off, on, and switched meanwhile.
//!
//! Each thread accesses the protected data exclusively, no thread waits for ever, and nothing is lost. Each test runs
//! for its part of `RTPROF_STRESS_SECS`, in a separate process, where a hang is noticed.

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::scope;
use std::time::{Duration, Instant};

use lock_api::{MappedMutexGuard, MutexGuard, RawMutexFair, RawMutexTimed};
use rtprof::sync::{Mutex, QueueMutex, RawMutex};
use test_support::contention::{
    Moment, Seen, assert_plausible, charged_in_all, queue, record_everything, record_nothing, recorded,
    switched,
};
use test_support::random::Random;
use test_support::{Background, child, stress, until};

/// Returns the time of one test: in the worst case the tests of this file run one after the other.
fn part() -> Duration {
    stress() / 9
}

/// Two numbers that are equal unless two threads are inside at once, and a flag that shows this sooner.
#[derive(Default)]
struct Protected {
    is_in: bool,
    one: u64,
    other: u64,
}

impl Protected {
    fn use_it(&mut self, random: &mut Random) {
        assert!(!self.is_in, "two threads have the lock");
        assert_eq!(self.one, self.other, "somebody was in halfway");
        self.is_in = true;
        self.one += 1;
        // Sometimes long enough for others to arrive.
        match random.below(32) {
            0 => std::thread::yield_now(),
            1 => std::thread::sleep(Duration::from_micros(random.below(100) as u64)),
            some => (0..some).for_each(|_| black_box(())),
        }
        self.other += 1;
        self.is_in = false;
    }
}

/// The operations of a mutex of lock_api.
trait Raw: RawMutexFair + RawMutexTimed<Duration = Duration, Instant = Instant> + Send + Sync {}

impl<R: RawMutexFair + RawMutexTimed<Duration = Duration, Instant = Instant> + Send + Sync> Raw for R {}

/// Uses the lock in a way chosen at random; returns how often it was inside.
fn any_use<R: Raw>(lock: &lock_api::Mutex<R, Protected>, random: &mut Random) -> u64 {
    let mut times = 1;
    let years = Duration::from_secs(u64::from(u32::MAX));
    let short = Duration::from_micros(random.below(200) as u64);
    let guard = match random.below(12) {
        0 => lock.try_lock(),
        1 => lock.try_lock_for(Duration::ZERO),
        2 => lock.try_lock_for(short),
        3 => lock.try_lock_until(Instant::now() + short),
        // A deadline in the past.
        4 => Instant::now().checked_sub(short).and_then(|past| lock.try_lock_until(past)),
        5 => Some(lock.try_lock_for(Duration::MAX).expect("it waits for ever")),
        6 => Some(lock.try_lock_for(years).expect("it waits for ages")),
        _ => Some(lock.lock()),
    };
    let Some(mut guard) = guard else { return 0 };
    guard.use_it(random);
    match random.below(9) {
        0 => MutexGuard::unlock_fair(guard),
        1 => {
            MutexGuard::bump(&mut guard);
            guard.use_it(random);
            times += 1;
        }
        2 => {
            MutexGuard::unlocked(&mut guard, std::thread::yield_now);
            guard.use_it(random);
            times += 1;
        }
        3 => {
            MutexGuard::unlocked_fair(&mut guard, || black_box(()));
            guard.use_it(random);
            times += 1;
        }
        4 => drop(MutexGuard::map(guard, |protected| &mut protected.one)),
        5 => MappedMutexGuard::unlock_fair(MutexGuard::map(guard, |protected| &mut protected.other)),
        6 => drop(MutexGuard::try_map(guard, |_| None::<&mut u64>)),
        _ => drop(guard),
    }
    times
}

/// Repeats `work` on `threads` threads, each with different random numbers, until the time is over; returns the sum of
/// the results.
fn on_threads(threads: u64, work: impl Fn(&mut Random) -> u64 + Sync) -> u64 {
    let (sum, started) = (AtomicU64::new(0), Instant::now());
    scope(|scope| {
        for seed in 0..threads {
            let (work, sum) = (&work, &sum);
            scope.spawn(move || {
                let (mut random, mut rounds, mut own) = (Random::new(seed), 0, 0);
                while started.elapsed() < part() || rounds < 100 {
                    own += work(&mut random);
                    rounds += 1;
                }
                assert!(own > 0, "thread {seed} was never in");
                sum.fetch_add(own, Ordering::Relaxed);
            });
        }
    });
    println!("{} uses", sum.load(Ordering::Relaxed));
    sum.into_inner()
}

fn all_uses<R: Raw>() -> lock_api::Mutex<R, Protected> {
    let lock = lock_api::Mutex::<R, Protected>::default();
    let uses = on_threads(6, |random| any_use(&lock, random));
    assert_eq!(lock.lock().one, uses);
    lock
}

/// Asserts that the next wait is charged correctly, whatever happened before.
fn assert_settled<R: Raw, T: Send>(lock: &lock_api::Mutex<R, T>) {
    record_everything();
    let before = charged_in_all();
    let waited = scope(|scope| {
        let guard = lock.lock();
        let waiter = queue(scope, || drop(lock.lock()));
        std::thread::sleep(Duration::from_millis(10));
        Moment::of(|| drop(guard)).since(waiter.began)
    });
    let after = charged_in_all();
    waited.check("the wait after all that", after.nanos - before.nanos);
    record_nothing();
}

#[test]
fn every_use_of_a_mutex() {
    child::isolated("every_use_of_a_mutex", || assert_settled(&all_uses::<QueueMutex>()));
}

#[test]
fn every_use_of_an_adapter() {
    child::isolated("every_use_of_an_adapter", || {
        assert_settled(&all_uses::<RawMutex<parking_lot::RawMutex>>());
    });
}

#[test]
fn every_use_with_everything_recorded() {
    child::isolated("every_use_with_everything_recorded", || {
        assert_settled(&recorded(6, all_uses::<QueueMutex>));
    });
}

#[test]
fn profiles_are_switched_all_the_time() {
    child::isolated("profiles_are_switched_all_the_time", || {
        assert_settled(&switched(6, all_uses::<QueueMutex>));
    });
}

/// Rates of every size, which scale the events, and snapshots at every moment.
#[test]
fn rates_are_turned_all_the_time() {
    child::isolated("rates_are_turned_all_the_time", || {
        let background = Background::default();
        scope(|scope| {
            let _ends = background.ends_here();
            scope.spawn(|| {
                let random = std::cell::RefCell::new(Random::new(2));
                background.repeat(|| {
                    let mut random = random.borrow_mut();
                    let rates = [0, 1, 2, 1000, 1_000_000, 1 << 40, i64::MAX as u64, u64::MAX];
                    rtprof::set_block_profile_rate(rates[random.below(8)]);
                    let fractions = [0, 1, 2, 10, 1000, i64::MAX, -1, i64::MIN];
                    rtprof::set_mutex_profile_fraction(fractions[random.below(8)]);
                    for record in rtprof::block_profile().iter().chain(&rtprof::mutex_profile()) {
                        assert!(record.count > 0 && record.cycles >= 0 && !record.stack().is_empty());
                    }
                });
            });
            let lock = lock_api::Mutex::<QueueMutex, Protected>::default();
            let uses = on_threads(6, |random| any_use(&lock, random));
            assert_eq!(lock.lock().one, uses);
        });
    });
}

/// A lock that the whole program shares.
static EVERYBODYS: Mutex<u64> = Mutex::new(0);

#[test]
fn sixty_four_threads_on_a_static() {
    child::isolated("sixty_four_threads_on_a_static", || {
        record_everything();
        let started = Instant::now();
        let mut uses = 0;
        // A use is so short that in one round perhaps no thread has to sleep for another.
        until("threads wait for one another", || {
            uses += on_threads(64, |_| {
                *EVERYBODYS.lock() += 1;
                1
            });
            let seen = Seen::now();
            seen.blocked("").count > 0 && seen.charged("").count > 0
        });
        assert_eq!(*EVERYBODYS.lock(), uses);
        assert!(uses >= 6400);
        assert_plausible(64, started.elapsed());
        assert_settled(&EVERYBODYS);
    });
}

/// Critical sections that end in a panic, often while others wait.
#[test]
fn critical_sections_panic() {
    child::isolated("critical_sections_panic", || {
        std::panic::set_hook(Box::new(|_| {}));
        record_everything();
        let lock = Mutex::new(Protected::default());
        let panics = AtomicU32::new(0);
        let uses = on_threads(6, |random| {
            let does_panic = random.below(4) == 0;
            let section = AssertUnwindSafe(|| {
                let mut guard = lock.lock();
                guard.use_it(random);
                assert!(!does_panic, "on purpose");
            });
            let result = catch_unwind(section);
            assert_eq!(result.is_err(), does_panic, "nothing else has panicked");
            panics.fetch_add(u32::from(does_panic), Ordering::Relaxed);
            1
        });
        drop(std::panic::take_hook());
        assert!(panics.load(Ordering::Relaxed) > 50);
        assert!(!lock.is_locked());
        assert_eq!(lock.lock().other, uses);
        assert_settled(&lock);
    });
}

const BYTES: usize = size_of::<Mutex<[u64; 4]>>();

/// Reuses the memory of a lock that was just dropped, and returns whether no thread still writes to it.
fn is_left_alone(random: &mut Random) -> bool {
    let memory = black_box(vec![0xA5_u8; BYTES]);
    (0..random.below(2000)).for_each(|_| black_box(()));
    black_box(memory).iter().all(|&byte| byte == 0xA5)
}

/// A mutex may be dropped by the last thread that has unlocked it, while the thread before is still returning from its
/// own unlock (as with glibc's).
#[test]
fn a_lock_is_dropped_while_the_one_before_leaves() {
    child::isolated("a_lock_is_dropped_while_the_one_before_leaves", || {
        record_everything();
        let shared = AtomicPtr::<Mutex<[u64; 4]>>::new(std::ptr::null_mut());
        let (turn, is_damaged) = (Barrier::new(2), AtomicBool::new(false));
        scope(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(3);
                loop {
                    turn.wait();
                    let Some(lock) = NonNull::new(shared.load(Ordering::Acquire)) else { break };
                    // SAFETY: the other thread has leaked the box for this one, and does not use it after its unlock.
                    let lock = unsafe { Box::from_raw(lock.as_ptr()) };
                    *lock.lock() = [7; 4];
                    drop(lock);
                    is_damaged.fetch_or(!is_left_alone(&mut random), Ordering::Relaxed);
                    turn.wait();
                }
            });
            let (mut random, mut rounds, started) = (Random::new(4), 0, Instant::now());
            while started.elapsed() < part() || rounds < 100 {
                let lock: *mut Mutex<_> = Box::into_raw(Box::new(Mutex::new([0; 4])));
                // SAFETY: the other thread frees the box only when it has had the lock after this guard.
                let guard = unsafe { &*lock }.lock();
                shared.store(lock, Ordering::Release);
                turn.wait();
                (0..random.below(60_000)).for_each(|_| black_box(()));
                drop(guard);
                turn.wait();
                rounds += 1;
            }
            shared.store(std::ptr::null_mut(), Ordering::Release);
            turn.wait();
            println!("{rounds} locks");
        });
        assert!(!is_damaged.into_inner(), "a dropped lock was written to");
        assert!(rtprof::mutex_profile().iter().any(|record| record.count > 10), "it was contended");
    });
}

/// The same with reference counts, which need no such guarantee.
#[test]
fn the_last_of_many_drops_the_lock() {
    child::isolated("the_last_of_many_drops_the_lock", || {
        record_everything();
        on_threads(2, |random| {
            let lock = Arc::new(Mutex::new([0_u64; 4]));
            scope(|scope| {
                for _ in 0..3 {
                    let (lock, seed) = (lock.clone(), random.number());
                    scope.spawn(move || {
                        lock.lock()[0] += 1;
                        drop(lock);
                        assert!(is_left_alone(&mut Random::new(seed)), "a dropped lock was written to");
                    });
                }
                drop(lock);
            });
            1
        });
    });
}
