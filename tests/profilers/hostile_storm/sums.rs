//! What is counted exactly, whatever else goes on.

use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::thread::{scope, yield_now};

use rtprof::sync::{Condvar, Mutex};
use test_support::contention::Seen;
use test_support::profile::{ALLOC_OBJECTS, ALLOC_SPACE, INUSE_OBJECTS, INUSE_SPACE, Profile};
use test_support::until;

/// No other object of the process has this size.
const SIZE: usize = 7_919;
static OBJECTS: AtomicI64 = AtomicI64::new(0);
static WAITS: AtomicI64 = AtomicI64::new(0);

/// Makes objects, and frees them on another thread.
pub(super) fn objects() {
    const COUNT: usize = 200;
    let made: Vec<_> = (0..COUNT).map(|_| black_box(Vec::<u8>::with_capacity(SIZE))).collect();
    std::thread::spawn(move || drop(made)).join().expect("it ends well");
    OBJECTS.fetch_add(COUNT as i64, Relaxed);
}

#[inline(never)]
fn waits_for(condition: &Condvar) {
    let own = Mutex::new(());
    let mut guard = own.lock();
    condition.wait(&mut guard);
    WAITS.fetch_add(1, Relaxed);
    black_box("a frame");
}

/// Waits a few times to be notified. Nothing but a notification ends such a wait.
pub(super) fn some_waits() {
    const COUNT: usize = 5;
    let condition = Condvar::new();
    scope(|scope| {
        scope.spawn(|| (0..COUNT).for_each(|_| until("it waits", || condition.notify_one())));
        (0..COUNT).for_each(|_| waits_for(&condition));
    });
}

#[inline(never)]
fn plays(lock: &Mutex<u64>) {
    let mut guard = lock.lock();
    *guard += 1;
    // The other thread comes to the lock now.
    yield_now();
    drop(guard);
    black_box("a frame");
}

/// Waits, some to be notified and some for a lock.
pub(super) fn waits() {
    some_waits();
    let lock = &Mutex::new(0);
    scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..50).for_each(|_| plays(lock)));
        }
    });
    assert_eq!(*lock.lock(), 100);
}

/// Compares the profiles with what was done. Called after the storm.
pub(super) fn check() {
    let made = OBJECTS.load(Relaxed);
    let totals = Profile::heap().totals_of_size(SIZE);
    assert_eq!((totals[ALLOC_OBJECTS], totals[ALLOC_SPACE]), (made, made * SIZE as i64));
    assert_eq!((totals[INUSE_OBJECTS], totals[INUSE_SPACE]), (0, 0));

    let seen = Seen::now();
    let (waited, missing) = (WAITS.load(Relaxed), seen.blocked("stack_not_captured"));
    let found = seen.blocked("waits_for").count;
    assert!(
        found <= waited && found + missing.count >= waited,
        "{found} of {waited}, {missing:?} without a stack"
    );

    // What one waits for is charged to the other.
    let (blocked, charged) = (seen.blocked("plays"), seen.charged("plays"));
    println!("{made} objects, {waited} waits to be notified, {blocked:?} for a lock, {charged:?}");
    assert!(blocked.count > 0, "they met");
    let unnamed = missing.nanos + seen.charged("stack_not_captured").nanos;
    let slack = 200 * blocked.count + unnamed;
    assert!(
        (blocked.nanos - charged.nanos).abs() <= slack,
        "{blocked:?} {charged:?}, {unnamed} ns without a stack"
    );
}
