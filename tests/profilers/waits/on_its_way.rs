//! A thread that an unlock has woken, but that does not run yet.
//!
//! Until it runs, further unlocks wake no other thread (hooks/src/inner/mutex_state.rs). Here it is kept from running
//! for as long as a test needs: a signal reaches it while it sleeps for the mutex, and its handler does not return. On
//! a busy machine the kernel may take as long to run a thread.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use rtprof::sync::{Mutex, MutexGuard};
use test_support::contention::{Moment, Seen, queue, record_everything, thread_id};
use test_support::{child, until};

static IS_HELD_UP: AtomicBool = AtomicBool::new(false);
static MAY_GO_ON: AtomicBool = AtomicBool::new(false);

extern "C" fn hold_up(_: libc::c_int) {
    IS_HELD_UP.store(true, Ordering::Release);
    while !MAY_GO_ON.load(Ordering::Acquire) {
        // SAFETY: a plain system call; the interrupted code does not read errno.
        unsafe { libc::sched_yield() };
    }
}

/// Lets the thread go on when dropped, also if the test fails.
struct HeldUp;

impl Drop for HeldUp {
    fn drop(&mut self) {
        MAY_GO_ON.store(true, Ordering::Release);
    }
}

/// Interrupts `thread`, and returns when it runs the handler.
fn interrupt(thread: i32) -> HeldUp {
    // SAFETY: an all-zero `sigaction` is valid; its handler only calls functions that a handler may call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = hold_up as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
        assert_eq!(libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1), 0);
    }
    let held_up = HeldUp;
    until("the signal arrives", || IS_HELD_UP.load(Ordering::Acquire));
    held_up
}

/// Holds the mutex for a while.
#[inline(never)]
fn next_holder(mutex: &Mutex<()>, length: Duration) -> Moment {
    let guard = mutex.try_lock().expect("the thread on its way has not taken it");
    sleep(length);
    give_up(guard)
}

#[inline(never)]
fn give_up(guard: MutexGuard<'_, ()>) -> Moment {
    let unlocked = Moment::of(|| drop(guard));
    black_box(());
    unlocked
}

#[test]
fn a_late_thread_holds_up_neither_charges_nor_others() {
    child::isolated("a_late_thread_holds_up_neither_charges_nor_others", || {
        record_everything();
        let mutex = Mutex::new(());
        let late = AtomicI32::new(0);
        scope(|scope| {
            let guard = mutex.lock();
            let first = queue(scope, || {
                late.store(thread_id(), Ordering::Relaxed);
                drop(mutex.lock());
            });
            let second = queue(scope, || drop(mutex.lock()));
            let held_up = interrupt(late.load(Ordering::Relaxed));
            // Wakes the first waiter, which is held up by the handler.
            let woken = give_up(guard);
            let given_up = next_holder(&mutex, Duration::from_millis(3));
            // The second waiter has waited all that time, for this holder.
            given_up.since(woken).check("the next holder's charge", Seen::now().charged("next_holder").nanos);
            // If the mutex is used on, the second waiter gets it.
            until("another thread is woken", || {
                drop(mutex.try_lock());
                second.thread.is_finished()
            });
            assert!(!first.thread.is_finished());
            drop(held_up);
        });
        let (waited, charged) = (Seen::now().blocked(""), Seen::now().charged("").nanos);
        assert_eq!(waited.count, 2, "each wait is one");
        // Each record is cut off to nanoseconds.
        assert!((waited.nanos - charged).abs() <= 6, "waited {} ns, charged {charged}", waited.nanos);
    });
}
