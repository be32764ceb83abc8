//! Contended locks and memory: an allocation inside a lock's slow path aborts, and under an address-space limit records
//! get no memory.
//!
//! A hook that allocates deadlocks when the lock is the allocator's own, but only there. So the allocator here aborts
//! at any call while its thread is inside a lock or an unlock, with every event and every allocation sampled.
//! (parking_lot_core allocates at the first wait of a thread; each thread has made this wait before.)
#![cfg(feature = "pprof")]

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
use test_support::address_space::{limit_address_space, limited_to, mapped};
use test_support::child;
use test_support::contention::{Seen, record_everything};
use test_support::profile::{ALLOC_OBJECTS, Profile};
use test_support::random::Random;

/// An allocator that aborts when called while this thread is inside a lock or an unlock.
struct Strict(rtprof::ProfAlloc);

#[global_allocator]
static ALLOC: Strict = Strict(rtprof::ProfAlloc::system());

const COMPLAINT: &str = "the global allocator was called from inside a lock\n";

thread_local! {
    static IN_A_LOCK: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, which only locks or unlocks.
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

// SAFETY: every call is passed on unchanged.
unsafe impl GlobalAlloc for Strict {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check();
        // SAFETY: the caller passes a `layout` that is valid for the inner allocator.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check();
        // SAFETY: the caller passes a `layout` that is valid for the inner allocator.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        check();
        // SAFETY: the caller passes a pointer from the inner allocator with its layout, and a valid size.
        unsafe { self.0.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        check();
        // SAFETY: the caller passes a pointer from the inner allocator with its layout.
        unsafe { self.0.dealloc(pointer, layout) }
    }
}

/// Tests the detector itself: a detector that never aborts would pass all tests below.
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

    /// Waits and unlocks in every way that we offer. The code under the lock allocates.
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

/// Holds a lock for a while, and releases it.
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
                // std allocates a thread's handle at its first use.
                black_box(std::thread::current());
                // All threads have started, so parking_lot_core need not grow its table for a later one.
                ready.wait();
                let (mut random, started, mut rounds) = (Random::new(seed), Instant::now(), 0);
                while started.elapsed() < test_support::stress() / 6 || rounds < 300 {
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

/// Captures along frame pointers, if the build has them.
#[test]
fn the_usual_capture_does_not_allocate() {
    child::isolated("the_usual_capture_does_not_allocate", || run(StackMode::Auto));
}

#[test]
fn unwinding_does_not_allocate() {
    child::isolated("unwinding_does_not_allocate", || run(StackMode::Unwind));
}

/// Waits in vain for a lock that the same thread holds.
#[inline(never)]
fn wait_in_vain(lock: &Mutex<u64>) {
    let held = lock.lock();
    assert!(lock.try_lock_for(Duration::from_micros(1)).is_none(), "it is held");
    drop(held);
    black_box(());
}

/// Waits on a distinct stack for each path.
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

/// The limit is set while the program runs: locks work, waits that cannot be recorded are counted, and the profile says
/// so.
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

        let profile = test_support::contention::written("block");
        let [waits, ..] = profile.totals_of("on_many_stacks");
        println!("{waits} waits\n{}", profile.comments());
        assert!(waits < 1 << DEPTH, "the limit was felt, or this test tests nothing");
        assert!(profile.comments().contains("dropped"), "the profile says so: {}", profile.comments());

        // With memory again, recording goes on.
        on_many_stacks(4, &lock);
        let [after, ..] = test_support::contention::written("block").totals_of("on_many_stacks");
        assert_eq!(after - waits, 1 << 4);
        assert_eq!(*lock.lock(), 1);
    });
}

/// The process starts under the limit, which must hold the stacks of its threads too.
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
