//! The stacks of waits at channels and similar: the innermost function is the program's, even if an optimizer would
//! have dropped it.

use std::thread::scope;
use std::time::Duration;

use rtprof::sync::mpsc::{self, Receiver, SyncSender};
use rtprof::sync::{Barrier, Condvar, Mutex, Once, Semaphore};
use test_support::child;
use test_support::contention::{leaves, queue, record_everything, written};

/// Functions whose last act is the wait. With a tail call the wait would return to their callers, and the profile would
/// not contain these functions.
mod last_act {
    use super::*;
    use rtprof::sync::mpsc::{RecvError, RecvTimeoutError, SendError};
    use rtprof::sync::{BarrierWaitResult, MutexGuard, SemaphoreGuard, WaitTimeoutResult};

    const AGES: Duration = Duration::MAX;

    #[inline(never)]
    pub(super) fn receives(from: &Receiver<u8>) -> Result<u8, RecvError> {
        from.recv()
    }
    #[inline(never)]
    pub(super) fn receives_in_time(from: &Receiver<u8>) -> Result<u8, RecvTimeoutError> {
        from.recv_timeout(AGES)
    }
    #[inline(never)]
    pub(super) fn iterates(from: &mut mpsc::Iter<'_, u8>) -> Option<u8> {
        from.next()
    }
    #[inline(never)]
    pub(super) fn sends(to: &SyncSender<u8>) -> Result<(), SendError<u8>> {
        to.send(7)
    }
    #[inline(never)]
    pub(super) fn waits_for_a_change(condvar: &Condvar, guard: &mut MutexGuard<'_, ()>) {
        condvar.wait(guard);
    }
    #[inline(never)]
    pub(super) fn waits_in_time(condvar: &Condvar, guard: &mut MutexGuard<'_, ()>) -> WaitTimeoutResult {
        condvar.wait_for(guard, AGES)
    }
    #[inline(never)]
    pub(super) fn meets(barrier: &Barrier) -> BarrierWaitResult {
        barrier.wait()
    }
    #[inline(never)]
    pub(super) fn acquires(semaphore: &Semaphore) -> SemaphoreGuard<'_> {
        semaphore.acquire()
    }
    #[inline(never)]
    pub(super) fn acquires_in_time(semaphore: &Semaphore) -> Option<SemaphoreGuard<'_>> {
        semaphore.try_acquire_for(AGES)
    }
    #[inline(never)]
    pub(super) fn initialises(once: &Once) {
        once.call_once(|| ());
    }
}

#[test]
fn who_waits_last_of_all_is_named() {
    child::isolated("who_waits_last_of_all_is_named", || {
        record_everything();
        let mut names = Vec::new();
        let mut check = |name: &str| {
            names.push(name.to_owned());
            names.sort();
            let mut leaves = leaves(&written("block"));
            leaves.sort();
            assert_eq!(leaves, names);
        };
        let let_go = |wait: &(dyn Fn() + Sync), release: &dyn Fn()| {
            scope(|scope| {
                let waiter = queue(scope, wait);
                release();
                waiter.thread.join().expect("it ends well");
            });
        };
        // A receiver is used by one thread only, so a mutex passes it to the thread.
        let (sender, receiver) = mpsc::sync_channel(0);
        let receiver = Mutex::new(receiver);
        let send = || sender.send(7).unwrap();
        let_go(&|| assert_eq!(last_act::receives(&receiver.lock()), Ok(7)), &send);
        check("receives");
        let_go(&|| assert_eq!(last_act::receives_in_time(&receiver.lock()), Ok(7)), &send);
        check("receives_in_time");
        let_go(&|| assert_eq!(last_act::iterates(&mut receiver.lock().iter()), Some(7)), &send);
        check("iterates");
        let_go(&|| last_act::sends(&sender).unwrap(), &|| assert_eq!(receiver.lock().recv(), Ok(7)));
        check("sends");

        let (condvar, mutex) = (Condvar::new(), Mutex::new(()));
        let notify = || assert!(condvar.notify_one());
        let_go(&|| last_act::waits_for_a_change(&condvar, &mut mutex.lock()), &notify);
        check("waits_for_a_change");
        let_go(&|| assert!(!last_act::waits_in_time(&condvar, &mut mutex.lock()).timed_out()), &notify);
        check("waits_in_time");

        let barrier = Barrier::new(2);
        let_go(&|| assert!(!last_act::meets(&barrier).is_leader()), &|| assert!(barrier.wait().is_leader()));
        check("meets");

        let semaphore = Semaphore::new(0);
        let_go(&|| last_act::acquires(&semaphore).forget(), &|| semaphore.add_permits(1));
        check("acquires");
        let_go(&|| drop(last_act::acquires_in_time(&semaphore)), &|| semaphore.add_permits(1));
        check("acquires_in_time");

        let once = Once::new();
        scope(|scope| {
            once.call_once(|| drop(queue(scope, || last_act::initialises(&once))));
        });
        check("initialises");
    });
}
