//! Models of the locks: they exclude, no thread sleeps for ever, and both profiles have the same totals.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::time::Instant;

use crate::inner::model;
use crate::inner::mutex::QueueMutex;
use crate::inner::queue_condvar::QueueCondvar;
use crate::inner::rw_lock::QueueRwLock;
use crate::inner::rw_state::{self, Want};

/// A value under a lock; loom reports accesses that are not ordered.
struct Guarded<L> {
    lock: L,
    value: UnsafeCell<u32>,
}

// SAFETY: the lock under test; loom reports accesses that it does not exclude.
unsafe impl<L: Sync> Sync for Guarded<L> {}
// SAFETY: the value is a number.
unsafe impl<L: Send> Send for Guarded<L> {}

impl<L> Guarded<L> {
    fn new(lock: L) -> Arc<Self> {
        Arc::new(Self { lock, value: UnsafeCell::new(0) })
    }

    fn add_one(&self) {
        // SAFETY: the lock under test; loom reports accesses that it does not exclude.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn read(&self) -> u32 {
        // SAFETY: the lock under test; loom reports accesses that it does not exclude.
        self.value.with(|value| unsafe { *value })
    }
}

/// Runs all parts of a model in spawned threads, because loom does not explore the first steps of the main thread.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        model::reset();
        model();
    });
}

/// Checks a model in which no thread gave up: each tick and each wait is in both profiles.
fn assert_balanced() {
    let sums = model::sums();
    assert_eq!((sums.blocked, sums.waits), (sums.charged, sums.charged_waits), "waited and charged");
}

/// Checks a model in which a thread may have given up: what it waited after the last charge is charged to no thread.
fn assert_not_overcharged() {
    let sums = model::sums();
    assert!(sums.charged <= sums.blocked && sums.charged_waits <= sums.waits, "{sums:?}");
}

/// Any instant: in models a deadline may pass at any moment.
fn soon() -> Option<Instant> {
    Some(Instant::now())
}

type Mutex = Guarded<QueueMutex>;

fn increment(mutex: &Mutex, is_fair: bool) {
    mutex.lock.lock();
    mutex.add_one();
    // SAFETY: locked above.
    unsafe { if is_fair { mutex.lock.unlock_fair() } else { mutex.lock.unlock() } };
}

fn mutex_model(preemptions: usize, is_fair: bool) {
    explore(preemptions, move || {
        let mutex = Guarded::new(QueueMutex::new());
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let mutex = mutex.clone();
                thread::spawn(move || increment(&mutex, is_fair))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(mutex.read(), 3);
        assert!(mutex.lock.is_settled());
        assert_balanced();
    });
}

#[test]
fn loom_mutex_excludes_and_charges_every_tick() {
    mutex_model(2, false);
}

#[test]
fn loom_mutex_hands_over() {
    mutex_model(2, true);
}

#[test]
fn loom_mutex_is_taken_while_another_is_on_its_way() {
    explore(2, || {
        let mutex = Guarded::new(QueueMutex::new());
        let threads: Vec<_> = [3, 1, 1]
            .into_iter()
            .map(|times| {
                let mutex = mutex.clone();
                thread::spawn(move || (0..times).for_each(|_| increment(&mutex, false)))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(mutex.read(), 5);
        assert!(mutex.lock.is_settled());
        assert_balanced();
    });
}

#[test]
fn loom_mutex_settles_when_waiters_give_up() {
    explore(2, || {
        let mutex = Guarded::new(QueueMutex::new());
        let impatient = {
            let mutex = mutex.clone();
            thread::spawn(move || {
                let is_in = mutex.lock.lock_until(soon());
                if is_in {
                    mutex.add_one();
                    // SAFETY: locked above.
                    unsafe { mutex.lock.unlock() };
                }
                u32::from(is_in)
            })
        };
        let patient = {
            let mutex = mutex.clone();
            thread::spawn(move || increment(&mutex, false))
        };
        increment(&mutex, false);
        patient.join().unwrap();
        let sum = 2 + impatient.join().unwrap();
        assert_eq!(mutex.read(), sum);
        assert!(mutex.lock.is_settled());
        assert_not_overcharged();
    });
}

/// A condition variable for the condition that the value is not 0.
struct Signalled {
    mutex: Mutex,
    condvar: QueueCondvar,
}

impl Signalled {
    fn new() -> Arc<Self> {
        let mutex = Guarded { lock: QueueMutex::new(), value: UnsafeCell::new(0) };
        Arc::new(Self { mutex, condvar: QueueCondvar::new() })
    }

    /// Waits for the condition and adds one. Returns false if it gave up.
    fn await_and_add(&self, deadline: Option<Instant>) -> bool {
        self.mutex.lock.lock();
        let mut is_notified = true;
        while self.mutex.read() == 0 && is_notified {
            // SAFETY: locked above.
            is_notified = unsafe { self.condvar.wait(&self.mutex.lock, deadline) };
        }
        self.mutex.add_one();
        // SAFETY: `wait` locks it again.
        unsafe { self.mutex.lock.unlock() };
        is_notified
    }

    /// Makes the condition true and notifies.
    fn signal(&self, notify: fn(&QueueCondvar), notifies_in_lock: bool) {
        self.mutex.lock.lock();
        self.mutex.add_one();
        if notifies_in_lock {
            notify(&self.condvar);
        }
        // SAFETY: locked above.
        unsafe { self.mutex.lock.unlock() };
        if !notifies_in_lock {
            notify(&self.condvar);
        }
    }

    fn assert_settled(&self, value: u32) {
        assert_eq!(self.mutex.read(), value);
        assert!(self.mutex.lock.is_settled() && self.condvar.is_settled());
    }
}

fn condvar_model(notify: fn(&QueueCondvar), notifies_in_lock: bool, deadlines: [fn() -> Option<Instant>; 2]) {
    explore(2, move || {
        let shared = Signalled::new();
        let waiters = deadlines.map(|deadline| {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.await_and_add(deadline());
            })
        });
        let notifier = {
            let shared = shared.clone();
            thread::spawn(move || shared.signal(notify, notifies_in_lock))
        };
        for thread in waiters.into_iter().chain([notifier]) {
            thread.join().unwrap();
        }
        shared.assert_settled(3);
        if deadlines.iter().all(|deadline| deadline().is_none()) {
            assert_balanced();
        } else {
            assert_not_overcharged();
        }
        assert!(model::sums().condition_waits <= 2, "a wait is one");
    });
}

fn all(condvar: &QueueCondvar) {
    condvar.notify_all();
}

fn one_after_the_other(condvar: &QueueCondvar) {
    while condvar.notify_one() {}
}

fn never() -> Option<Instant> {
    None
}

#[test]
fn loom_condvar_moves_all_behind_the_notifier() {
    condvar_model(all, true, [never, never]);
}

#[test]
fn loom_condvar_wakes_one_and_moves_the_others() {
    condvar_model(all, false, [never, never]);
}

#[test]
fn loom_condvar_wakes_one_by_one() {
    condvar_model(one_after_the_other, false, [never, never]);
}

#[test]
fn loom_condvar_waiter_gives_up_before_or_after_it_is_moved() {
    condvar_model(all, true, [soon, never]);
    condvar_model(all, false, [never, soon]);
}

type RwLock = Guarded<QueueRwLock>;

fn write(lock: &RwLock) {
    assert!(lock.lock.enter_until(Want::Write, None));
    lock.add_one();
    // SAFETY: this thread is the writer.
    unsafe { lock.lock.leave_exclusive() };
}

fn read(lock: &RwLock) {
    assert!(lock.lock.enter_until(Want::Read, None));
    assert!(lock.read() <= 3);
    // SAFETY: this thread is a reader.
    unsafe { lock.lock.leave_shared() };
}

fn rw_model(preemptions: usize, parts: [fn(&RwLock); 3], balanced: bool) {
    explore(preemptions, move || {
        let lock = Guarded::new(QueueRwLock::new());
        let threads: Vec<_> = parts
            .into_iter()
            .map(|part| {
                let lock = lock.clone();
                thread::spawn(move || part(&lock))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(lock.lock.is_settled());
        if balanced {
            assert_balanced();
        } else {
            assert_not_overcharged();
        }
    });
}

#[test]
fn loom_rw_lock_readers_and_a_writer() {
    rw_model(2, [read, read, write], true);
}

#[test]
fn loom_rw_lock_writers_and_a_reader() {
    rw_model(2, [write, read, write], true);
}

fn upgrade(lock: &RwLock) {
    assert!(lock.lock.enter_until(Want::Upgradable, None));
    let seen = lock.read();
    // SAFETY: this thread is the upgradable reader, then the writer, then a reader.
    unsafe {
        assert!(lock.lock.upgrade_until(None));
        assert_eq!(lock.read(), seen, "no writer came between");
        lock.add_one();
        lock.lock.release(rw_state::WRITER, rw_state::READER);
        lock.lock.leave_shared();
    }
}

#[test]
fn loom_rw_lock_upgrades_among_others() {
    rw_model(2, [read, write, upgrade], true);
}

/// With two preemptions it takes as long as half of all other models.
#[test]
fn loom_rw_lock_upgrades_twice() {
    let preemptions = if std::env::var_os("RTPROF_LOOM_ALL").is_some() { 2 } else { 1 };
    rw_model(preemptions, [upgrade, read, upgrade], true);
}

fn write_or_give_up(lock: &RwLock) {
    if lock.lock.enter_until(Want::Write, soon()) {
        lock.add_one();
        // SAFETY: this thread is the writer.
        unsafe { lock.lock.leave_exclusive() };
    }
}

#[test]
fn loom_rw_lock_writer_gives_up_among_readers() {
    rw_model(2, [read, read, write_or_give_up], false);
}

#[test]
fn loom_rw_lock_writer_gives_up_beside_a_writer() {
    rw_model(2, [read, write, write_or_give_up], false);
}
