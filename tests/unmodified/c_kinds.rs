//! Mutexes of C of all kinds, and threads and processes that end while they hold one.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::io::Error;
use std::mem::{transmute, zeroed};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::{Builder, Scope, ScopedJoinHandle, scope, sleep};

use rtprof_trace_check::{Event, EventType};
use test_support::contention::{
    About, Moment, NONE, Seen, queue, record_everything, sleep_number, thread_id, wait_until_asleep,
};
use test_support::recording::{Trace, has, record};
use test_support::{PATIENCE, child, fork, until};

use crate::c_lock::{By, CLock};
use crate::c_locks::unlocks;
use crate::locks::{Ends, HOLD, scripted, waiter};

fn all_kinds() -> impl Iterator<Item = Box<CLock>> {
    let mut kinds =
        vec![libc::PTHREAD_MUTEX_NORMAL, libc::PTHREAD_MUTEX_RECURSIVE, libc::PTHREAD_MUTEX_ERRORCHECK];
    if cfg!(target_env = "gnu") {
        const PTHREAD_MUTEX_ADAPTIVE_NP: c_int = 3;
        kinds.push(PTHREAD_MUTEX_ADAPTIVE_NP);
    }
    kinds.into_iter().map(CLock::of_kind).chain([CLock::robust(), CLock::inheriting()])
}

fn set_errno(value: c_int) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = value };
}

/// A wait for any of them is recorded, charged, and does not change `errno`.
#[test]
fn mutexes_of_all_kinds() {
    for (at, lock) in all_kinds().enumerate() {
        child::isolated_as("mutexes_of_all_kinds", &at.to_string(), || {
            record_everything();
            lock.lock();
            let errno_after = |call: &dyn Fn() -> c_int| {
                set_errno(4000);
                assert_eq!(call(), 0);
                Error::last_os_error().raw_os_error()
            };
            let wait = || {
                let errno = errno_after(&|| lock.lock());
                assert_eq!((errno, lock.unlock()), (Some(4000), 0));
            };
            scripted("pthread_mutex_lock", Ends::Unlock, wait, || {
                assert_eq!(errno_after(&|| lock.unlock()), Some(4000));
            });
            let seen = Seen::unmodified();
            assert_eq!((seen.blocked("waiter").count, seen.charged("waker").count), (1, 1));
        });
    }
}

/// Starts a thread of this name, and returns when the thread waits for the lock; the thread then calls `once_in` and
/// unlocks. Also returns the kernel's id of the thread.
fn waits_for<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    lock: &'scope CLock,
    once_in: impl FnOnce() + Send + 'scope,
) -> (i32, ScopedJoinHandle<'scope, ()>) {
    let (tx, rx) = mpsc::channel();
    let waits = move || {
        tx.send(thread_id()).expect("the test listens");
        assert_eq!(lock.lock(), 0);
        once_in();
        assert_eq!(lock.unlock(), 0);
    };
    let thread = Builder::new().name(name).spawn_scoped(scope, waits).expect("there are threads");
    let id = rx.recv().expect("the thread has begun");
    wait_until_asleep(id);
    (id, thread)
}

/// Returns the events that woke the goroutine of this name.
fn wakes<'trace>(trace: &'trace Trace, name: &str) -> Vec<Event<'trace>> {
    let goroutine = trace.goroutine(name);
    let is_wake =
        |event: &Event<'_>| event.event_type() == EventType::GoUnblock && event.target() == Some(goroutine);
    trace.parsed.events().filter(is_wake).collect()
}

/// In a trace the unlock wakes the thread.
#[test]
fn traces_have_mutexes_of_all_kinds() {
    for (at, lock) in all_kinds().enumerate() {
        child::isolated_as("traces_have_mutexes_of_all_kinds", &at.to_string(), || {
            let trace = record(|| {
                lock.lock();
                scope(|scope| {
                    let _ends = lock.unlocked_by_panic();
                    waits_for(scope, "waits".into(), &lock, || ());
                    unlocks(&lock);
                });
            });
            trace.assert_whole();
            trace.assert_in_order();
            let wakes = wakes(&trace, "waits");
            assert!(wakes.len() == 1 && has(wakes[0], "unlocks"), "{wakes:#?}");
        });
    }
}

/// Unlocks the mutex twice while three threads wait for it, and takes it again each time. Returns whether the kernel
/// has woken one of them, and none has got the mutex. In that case checks that the trace shows only that thread as
/// runnable.
fn one_was_woken() -> bool {
    let (lock, has_served, mut woken) = (CLock::new(), AtomicBool::new(false), Vec::new());
    let name = |at: usize| format!("waits {at}");
    let serve = || has_served.store(true, Relaxed);
    lock.lock();
    let trace = scope(|scope| {
        let _ends = lock.unlocked_by_panic();
        let mut is_held = false;
        let trace = record(|| {
            let ids = [0, 1, 2].map(|at| waits_for(scope, name(at), &lock, serve).0);
            let before = ids.map(sleep_number);
            // The woken thread takes microseconds to arrive, and sleeps again.
            is_held = (0..2).all(|_| (lock.unlock(), lock.try_lock()) == (0, 0));
            if is_held && !has_served.load(Relaxed) {
                ids.iter().for_each(|id| wait_until_asleep(*id));
                woken = (0..3).filter(|&at| sleep_number(ids[at]) != before[at]).collect();
            }
        });
        if is_held {
            lock.unlock();
        }
        trace
    });
    if woken.len() != 1 {
        return false;
    }
    let can_run: Vec<_> = (0..3).filter(|&at| !wakes(&trace, &name(at)).is_empty()).collect();
    assert_eq!(can_run, woken);
    true
}

#[test]
fn who_was_not_woken_waits_in_a_trace() {
    child::isolated("who_was_not_woken_waits_in_a_trace", || until("one is woken", one_was_woken));
}

/// An unlock that fails unlocks nothing, and does not prolong others' waits.
#[test]
fn what_fails_is_not_charged() {
    let kinds = [libc::PTHREAD_MUTEX_RECURSIVE, libc::PTHREAD_MUTEX_ERRORCHECK].map(CLock::of_kind);
    for (at, lock) in kinds.into_iter().chain([CLock::robust(), CLock::inheriting()]).enumerate() {
        child::isolated_as("what_fails_is_not_charged", &at.to_string(), || {
            record_everything();
            lock.lock();
            let wait = || assert_eq!((lock.lock(), lock.unlock()), (0, 0));
            // Not started by the waker, where a lock of std's would be charged to it.
            let (is_asked, is_denied) = (AtomicBool::new(false), AtomicBool::new(false));
            scope(|scope| {
                scope.spawn(|| {
                    until("it is asked", || is_asked.load(Relaxed));
                    denied(&lock);
                    is_denied.store(true, Relaxed);
                });
                scripted("pthread_mutex_lock", Ends::Unlock, wait, || {
                    is_asked.store(true, Relaxed);
                    until("it is denied", || is_denied.load(Relaxed));
                    assert_eq!(lock.unlock(), 0);
                });
            });
            let seen = Seen::unmodified();
            assert_eq!((seen.charged("waker").count, seen.charged("denied")), (1, NONE));
        });
    }
}

#[inline(never)]
fn denied(lock: &CLock) {
    black_box("denied");
    assert_eq!(lock.unlock(), libc::EPERM);
    black_box("denied");
}

/// A thread ends while it holds a mutex, which others then get: they have waited, and no unlock has ended their wait.
#[test]
fn who_held_it_has_ended() {
    child::isolated("who_held_it_has_ended", || {
        let ended_with_it = |lock: &CLock| scope(|scope| scope.spawn(|| lock.lock()).join().unwrap());
        let outcomes = || {
            let lock = CLock::robust();
            let first = [ended_with_it(&lock), lock.lock(), lock.is_consistent(), lock.unlock()];
            let second = [ended_with_it(&lock), lock.lock(), lock.unlock()];
            // It cannot be locked ever again, however often it is tried.
            let (again, by) = ([lock.lock(), lock.lock()], lock.lock_by(By::Set, PATIENCE));
            let elsewhere = scope(|scope| scope.spawn(|| lock.lock()).join().unwrap());
            (first, second, again, by, elsewhere)
        };
        let (dead, lost) = (libc::EOWNERDEAD, libc::ENOTRECOVERABLE);
        let expected = ([0, dead, 0, 0], [0, dead, 0], [lost; 2], lost, lost);
        assert_eq!(outcomes(), expected, "while nothing is recorded");
        record_everything();
        record(|| assert_eq!(outcomes(), expected, "while all is")).assert_whole();

        let lock = CLock::robust();
        let (tx, rx) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let lock = &lock;
        scope(|scope| {
            let end = end;
            let holder = scope.spawn(move || {
                assert_eq!(lock.lock(), 0);
                tx.send(()).unwrap();
                // Waits until the other end is dropped.
                assert!(ends.recv().is_err());
            });
            rx.recv().unwrap();
            let waiting = queue(scope, || waiter(|| assert_eq!(lock.lock(), libc::EOWNERDEAD)));
            sleep(HOLD);
            let least = Moment::now().since(waiting.began).least;
            drop(end);
            holder.join().unwrap();
            waiting.thread.join().unwrap();
            let waited = About { least, most: Moment::now().since(waiting.began).most };
            let seen = Seen::unmodified();
            waited.check("the wait", seen.blocked("waiter").nanos);
            assert_eq!(seen.charged("pthread_mutex_unlock"), NONE);
        });
    });
}

/// The function of a thread of C, with an argument.
type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Starts a thread of C.
fn start(run: Start, lock: &CLock) -> libc::pthread_t {
    // SAFETY: the argument is a lock that outlives the thread, as all callers join the thread. Cancellation unwinds out
    // of the function, as the C library intends.
    unsafe {
        let mut thread = zeroed();
        let run = transmute::<Start, extern "C" fn(*mut c_void) -> *mut c_void>(run);
        let argument = (&raw const *lock).cast_mut().cast();
        assert_eq!(libc::pthread_create(&raw mut thread, null(), run, argument), 0);
        thread
    }
}

/// Cancels a thread, and checks that this ends it.
fn cancel(thread: libc::pthread_t) {
    let mut value = null_mut();
    // SAFETY: the thread was not joined before, and has nothing to drop.
    unsafe {
        assert_eq!(libc::pthread_cancel(thread), 0);
        assert_eq!(libc::pthread_join(thread, &raw mut value), 0);
    }
    assert_eq!(value.addr(), usize::MAX, "it was cancelled");
}

static THREAD: AtomicI32 = AtomicI32::new(0);

/// Waits for the condition, for ever.
extern "C-unwind" fn waits_for_ever(lock: *mut c_void) -> *mut c_void {
    // SAFETY: `start` passes a pointer to a lock that outlives the thread.
    let lock = unsafe { &*lock.cast::<CLock>() };
    lock.lock();
    THREAD.store(thread_id(), Relaxed);
    lock.wait();
    null_mut()
}

/// A thread that is cancelled while it waits for a condition holds its mutex again, and may unlock it.
#[test]
fn threads_are_cancelled_in_conditions() {
    child::isolated("threads_are_cancelled_in_conditions", || {
        record_everything();
        let lock = CLock::new();
        let trace = record(|| {
            let thread = start(waits_for_ever, &lock);
            until("the thread has begun", || THREAD.load(Relaxed) != 0);
            wait_until_asleep(THREAD.load(Relaxed));
            cancel(thread);
            assert_eq!(lock.try_lock(), libc::EBUSY, "it has ended with the mutex");
        });
        trace.assert_in_order();
        until("it has ended", || rtprof::goroutine_profile().len() == 2);
    });
}

/// However many threads were cancelled in their waits, the waits of other threads are recorded from begin to end.
#[test]
fn many_threads_are_cancelled() {
    child::isolated("many_threads_are_cancelled", || {
        record_everything();
        // More than the slots for waiting threads (hooks/src/inner/sleepers.rs).
        for _ in 0..(1 << 12) + 100 {
            let lock = CLock::new();
            cancel(start(waits_for_ever, &lock));
        }
        let lock = CLock::new();
        lock.lock();
        let wait = || assert_eq!((lock.lock(), lock.unlock()), (0, 0));
        scripted("pthread_mutex_lock", Ends::Unlock, wait, || assert_eq!(lock.unlock(), 0));
    });
}

fn locks_in_a_child(inherited: &CLock) {
    unlocks(inherited);
    assert_eq!(Seen::unmodified().charged("unlocks"), NONE, "no thread here has waited");
    let own = CLock::new();
    scope(|scope| {
        scope.spawn(|| own.set(libc::pthread_cond_broadcast));
        own.wait_until_set(CLock::wait);
    });
}

/// A child has the locks of its parent, and none of the threads that wait for them.
#[test]
fn children_lock_mutexes_of_c() {
    fork::isolated("children_lock_mutexes_of_c", "", || {
        record_everything();
        let lock = CLock::new();
        lock.lock();
        scope(|scope| {
            let _ends = lock.unlocked_by_panic();
            for _ in 0..2 {
                queue(scope, || assert_eq!((lock.lock(), lock.unlock()), (0, 0)));
            }
            for make in [fork::fork, fork::bare_fork] {
                (0..5).for_each(|_| fork::in_a_child_by(make, "unlocks it", || locks_in_a_child(&lock)));
            }
            unlocks(&lock);
        });
        assert_eq!(Seen::unmodified().charged("unlocks").count, 2, "they have waited here");
    });
}
