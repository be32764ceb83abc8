//! Contended locks and memory: an allocation inside a lock's slow path aborts, and an address-space limit takes the
//! memory away that records need.
//!
//! A hook that allocates deadlocks when the lock is the allocator's own, but only there. So the allocator here
//! aborts at any call while its thread is inside a lock or an unlock, with every event and every allocation sampled.
//! (parking_lot_core allocates at the first wait of a thread, for the thread; each has had that before.)
#![cfg(feature = "pprof")]

mod support;

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use rtprof::StackMode;
use rtprof::sync::{
    Condvar, Mutex, MutexGuard, RawMutex, RawRwLock, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard,
    RwLockWriteGuard, Semaphore,
};
use support::address_space::{limit_address_space, limited_to, mapped};
use support::child;
use support::contention::{Seen, record_everything};
use support::profile::{ALLOC_OBJECTS, Profile};
use support::random::Random;

/// Aborts when called while this thread has promised not to.
struct Strict(rtprof::ProfAlloc);

#[global_allocator]
static ALLOC: Strict = Strict(rtprof::ProfAlloc::system());

const COMPLAINT: &str = "the global allocator was called from inside a lock\n";

thread_local! {
    static IN_A_LOCK: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, which locks or unlocks and does nothing else.
fn strictly<T>(f: impl FnOnce() -> T) -> T {
    IN_A_LOCK.set(true);
    let result = f();
    IN_A_LOCK.set(false);
    result
}

fn check() {
    if IN_A_LOCK.get() {
        // SAFETY: a pointer and length of a constant; nothing here allocates.
        unsafe { libc::write(2, COMPLAINT.as_ptr().cast(), COMPLAINT.len()) };
        std::process::abort();
    }
}

// SAFETY: every call is handed on unchanged.
unsafe impl GlobalAlloc for Strict {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check();
        // SAFETY: the caller's promises are ours.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check();
        // SAFETY: the caller's promises are ours.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        check();
        // SAFETY: the caller's promises are ours.
        unsafe { self.0.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        check();
        // SAFETY: the caller's promises are ours.
        unsafe { self.0.dealloc(pointer, layout) }
    }
}

/// The detector itself: without this, one that never aborts would pass everything below.
#[test]
fn detector_detects() {
    child::aborts("detector_detects", COMPLAINT, || drop(strictly(|| black_box(vec![1_u8; 100]))));
}

struct Locks {
    mutex: Mutex<u64>,
    rw: RwLock<u64>,
    changed: Condvar,
    permits: Semaphore,
    foreign: lock_api::Mutex<RawMutex<parking_lot::RawMutex>, u64>,
    foreign_rw: lock_api::RwLock<RawRwLock<parking_lot::RawRwLock>, u64>,
}

const SHORT: Duration = Duration::from_micros(50);

impl Locks {
    fn new() -> Self {
        Self {
            mutex: Mutex::new(0),
            rw: RwLock::new(0),
            changed: Condvar::new(),
            permits: Semaphore::new(0),
            foreign: lock_api::Mutex::new(0),
            foreign_rw: lock_api::RwLock::new(0),
        }
    }

    /// Waits and unlocks in every way that is ours. What is done meanwhile allocates.
    #[inline(never)]
    fn every_way(&self, random: &mut Random) {
        match random.below(15) {
            0 => used(strictly(|| self.mutex.lock())),
            1 => strictly(|| self.mutex.try_lock_for(SHORT)).map_or((), used),
            2 => {
                let mut guard = strictly(|| self.mutex.lock());
                strictly(|| MutexGuard::bump(&mut guard));
                strictly(|| MutexGuard::unlock_fair(guard));
            }
            3 => used(strictly(|| self.rw.read())),
            4 => used(strictly(|| self.rw.write())),
            5 => strictly(|| self.rw.try_write_for(SHORT)).map_or((), used),
            6 => {
                let guard = strictly(|| self.rw.upgradable_read());
                let guard = strictly(|| RwLockUpgradableReadGuard::upgrade(guard));
                used(strictly(|| RwLockWriteGuard::downgrade(guard)));
            }
            7 => {
                let mut guard = strictly(|| self.rw.read());
                strictly(|| RwLockReadGuard::bump(&mut guard));
                used(guard);
            }
            8 => used(strictly(|| self.foreign.lock())),
            9 => strictly(|| self.foreign.try_lock_for(SHORT)).map_or((), used),
            10 => used(strictly(|| self.foreign_rw.read())),
            11 => used(strictly(|| self.foreign_rw.write())),
            12 => {
                let mut guard = strictly(|| self.mutex.lock());
                strictly(|| self.changed.wait_for(&mut guard, SHORT));
                used(guard);
                strictly(|| self.changed.notify_all());
            }
            13 => {
                strictly(|| drop(self.permits.try_acquire_for(SHORT)));
                strictly(|| self.permits.add_permits(1));
                strictly(|| self.permits.acquire_many(1)).forget();
            }
            _ => strictly(|| rtprof::thread::park_timeout(SHORT)),
        }
    }
}

/// Holds a lock for a while, and gives it up.
fn used<G: std::ops::Deref<Target = u64>>(guard: G) {
    black_box(vec![*guard; 20]);
    std::thread::yield_now();
    strictly(|| drop(guard));
}

fn run(mode: StackMode) {
    rtprof::set_stack_mode(mode);
    rtprof::set_mem_profile_rate(1);
    record_everything();
    let (locks, ready) = (Locks::new(), Barrier::new(8));
    scope(|scope| {
        for seed in 0..8 {
            let (locks, ready) = (&locks, &ready);
            scope.spawn(move || {
                wait_in_vain(&Mutex::new(0));
                // std makes a thread's handle when it is first asked for.
                black_box(std::thread::current());
                // Nobody comes later, for whom parking_lot_core would make room.
                ready.wait();
                let (mut random, started, mut rounds) = (Random::new(seed), Instant::now(), 0);
                while started.elapsed() < support::stress() / 6 || rounds < 300 {
                    locks.every_way(&mut random);
                    rounds += 1;
                }
            });
        }
    });
    let seen = Seen::now();
    assert!(seen.blocked("").count > 50 && seen.charged("").count > 50, "{:?}", seen.blocked(""));
    assert!(Profile::heap().totals_of("used")[ALLOC_OBJECTS] > 50, "allocations are sampled as well");
}

/// By frame pointers, where there are some.
#[test]
fn the_usual_capture_does_not_allocate() {
    child::isolated("the_usual_capture_does_not_allocate", || run(StackMode::Auto));
}

#[test]
fn unwinding_does_not_allocate() {
    child::isolated("unwinding_does_not_allocate", || run(StackMode::Unwind));
}

/// Waits for a lock that the same thread holds, in vain.
#[inline(never)]
fn wait_in_vain(lock: &Mutex<u64>) {
    let held = lock.lock();
    assert!(lock.try_lock_for(Duration::from_micros(1)).is_none(), "it is held");
    drop(held);
    black_box(());
}

/// A stack for each path.
#[inline(never)]
fn on_many_stacks(depth: u32, lock: &Mutex<u64>) {
    if depth == 0 {
        return wait_in_vain(lock);
    }
    on_many_stacks(depth - 1, lock);
    black_box(depth);
    on_many_stacks(depth - 1, lock);
    black_box(lock);
}

const DEPTH: u32 = 13;

/// Limited while it runs: locks go on, what cannot be recorded is counted, and the profile says so.
#[test]
fn limited_while_it_runs() {
    child::isolated("limited_while_it_runs", || {
        record_everything();
        let lock = Mutex::new(0);
        wait_in_vain(&lock);
        let unlimited = limit_address_space(mapped());
        on_many_stacks(DEPTH, &lock);
        *lock.lock() += 1;
        limit_address_space(unlimited);

        let profile = support::contention::written("block");
        let [waits, ..] = profile.totals_of("on_many_stacks");
        println!("{waits} waits\n{}", profile.comments());
        assert!(waits < 1 << DEPTH, "the limit was felt, or this test tests nothing");
        assert!(profile.comments().contains("dropped"), "the profile says so: {}", profile.comments());

        // With memory again, recording goes on.
        on_many_stacks(4, &lock);
        let [after, ..] = support::contention::written("block").totals_of("on_many_stacks");
        assert_eq!(after - waits, 1 << 4);
        assert_eq!(*lock.lock(), 1);
    });
}

/// Started under the limit, with threads whose stacks the limit must hold.
#[test]
fn limited_from_the_start() {
    let test = "limited_from_the_start";
    for megabytes in [40_u64, 100, 1000] {
        let scenario = megabytes.to_string();
        if child::is(test, &scenario) {
            record_everything();
            let lock = Mutex::new(0);
            scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..200 {
                            *lock.lock() += 1;
                            sleep(Duration::from_micros(10));
                            wait_in_vain(&Mutex::new(0));
                        }
                    });
                }
            });
            assert_eq!(*lock.lock(), 800);
            for record in rtprof::block_profile().iter().chain(&rtprof::mutex_profile()) {
                assert!(record.count > 0 && record.cycles >= 0);
            }
        } else if !child::any() {
            let output = child::output(test, &scenario, limited_to(megabytes));
            assert!(output.status.success(), "{megabytes} MB: {}", child::report(&output));
        }
    }
}
