//! The mechanism of [`Condvar`](crate::sync::Condvar): the waiting threads, and the mutexes that they take again.
//!
//! Problem: `notify_all` makes n threads runnable, and each wants the mutex at once. If all are woken, one gets it, and
//! the others go to sleep again: n wakes and n sleeps without progress, while the notifier often holds the mutex
//! anyway.
//!
//! Scheme (parking_lot's): at most one is woken, and only if the mutex is free. The others are moved from the
//! condition's queue to the mutex's, asleep as they are, and each unlock wakes one of them.
//!
//! ```text
//!   wait                 notify_all          unlock            the wait ends for
//!   |---- condition -----|                                     the one that is woken
//!   |---- condition -----|---- mutex --------|                 those that are moved
//! ```
//!
//! The reason of the wait changes with the move, so that each part is in the right profile: a moved thread was notified
//! at the move, and waits for the mutex from then on, in the mutex's account. It learns this when it wakes, from its
//! [`Waiter`], which lies on its stack. The waiters are a list beside the queue, in the same order, because the queue
//! gives no access to data of its sleepers.
//!
//! In a forked child the parent's waiters do not exist, and their stacks may be used again. So the list notes its
//! process, and counts as empty in any other.
//!
//! Locks: the list is only accessed with the condition's queue locked. A moved waiter leaves the list; its `moved` is
//! written before that, with both queues locked, and read by its thread when it has left the mutex's queue.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::time::Instant;

use crate::inner::mutex::QueueMutex;
use crate::inner::primitive::{AtomicPtr, Ordering, UnsafeCell};
use crate::inner::queue::{self, Move, Sleep};
use crate::inner::wait::{Wait, WaitReason, process};
use crate::inner::waiters::{List, Waiter};

pub(crate) struct QueueCondvar {
    /// The mutex of the first waiter; null without a waiter. Written with the queue locked.
    mutex: AtomicPtr<QueueMutex>,
    list: UnsafeCell<List>,
}

// SAFETY: the list is only reached with the lock of the queue at this address held; see `with_list`. Its waiters stay
// where they are while they are in it, and are read and written by other threads only then.
unsafe impl Sync for QueueCondvar {}
// SAFETY: nothing in it is bound to a thread; while it is moved no thread waits.
unsafe impl Send for QueueCondvar {}
// No code of the program runs with the list locked.
impl RefUnwindSafe for QueueCondvar {}
impl UnwindSafe for QueueCondvar {}

impl QueueCondvar {
    rtprof_runtime::const_fn! {
        pub(crate) const fn new() -> Self {
            Self { mutex: AtomicPtr::new(ptr::null_mut()), list: UnsafeCell::new(List::EMPTY) }
        }
    }

    fn key(&self) -> usize {
        &raw const *self as usize
    }

    /// Runs `f` with the list of the process `process`, which is the current one, and updates the mutex of the first
    /// waiter.
    ///
    /// # Safety
    /// The queue at [`QueueCondvar::key`] is locked: the caller is a closure that `queue` runs.
    unsafe fn with_list<T>(&self, process: u32, f: impl FnOnce(&mut List) -> T) -> T {
        self.list.with_mut(|list| {
            // SAFETY: the caller holds the queue's lock, so this access is the only one.
            let list = unsafe { &mut *list };
            list.claim(process);
            let result = f(list);
            let mutex = list.iter().next().map_or(ptr::null(), |first| first.mutex);
            self.mutex.store(mutex.cast_mut(), Ordering::Relaxed);
            result
        })
    }

    /// Wakes the thread that waits longest, and returns whether there was one. While none waits, this is one load.
    #[inline]
    pub(crate) fn notify_one(&self) -> bool {
        // Relaxed: the thread that changed the condition has held the mutex after any waiter gave it up, and the waiter
        // had joined the queue before that.
        !self.mutex.load(Ordering::Relaxed).is_null() && self.wake_one()
    }

    /// Notifies all waiting threads, and returns how many.
    #[inline]
    pub(crate) fn notify_all(&self) -> usize {
        if self.mutex.load(Ordering::Relaxed).is_null() { 0 } else { self.notify_all_slow() }
    }

    #[cold]
    fn wake_one(&self) -> bool {
        let process = process::number();
        let mut is_woken = false;
        let decide = |woken: &queue::Woken| {
            is_woken = woken.count != 0;
            if is_woken {
                // SAFETY: the queue is locked. The first in the queue is the first in the list, if the list has one: in
                // a forked child it may be a waiter of the parent.
                unsafe {
                    self.with_list(process, |list| {
                        if let Some(first) = list.first.as_ref() {
                            list.remove(first);
                        }
                    });
                }
            }
            false
        };
        // SAFETY: the key is the address of this object, and the closures neither panic nor park nor wake.
        unsafe { queue::wake(self.key(), queue::first(), decide) };
        is_woken
    }

    #[cold]
    fn notify_all_slow(&self) -> usize {
        let process = process::number();
        loop {
            let mutex = self.mutex.load(Ordering::Relaxed);
            if mutex.is_null() {
                return 0;
            }
            let mut count = None;
            let mut is_mixed = false;
            let choose = |now| {
                // If the first waiter's mutex has changed, the wrong queue is locked.
                if self.mutex.load(Ordering::Relaxed) != mutex {
                    return Move::None;
                }
                // SAFETY: both queues are locked. A waiter borrows the mutex, so it is valid.
                unsafe {
                    self.with_list(process, |list| {
                        is_mixed = list.iter().any(|waiter| !ptr::eq(waiter.mutex, mutex));
                        if is_mixed {
                            return Move::None;
                        }
                        count = Some(list.iter().count());
                        // The waiters were the parent's.
                        if count == Some(0) {
                            return Move::None;
                        }
                        Self::move_all(list, &*mutex, now)
                    })
                }
            };
            // SAFETY: one key is the address of this object. The other is used as an address only, until `choose` has
            // found that a waiter borrows the mutex there. `choose` neither panics nor parks nor wakes.
            unsafe { queue::requeue(self.key(), mutex as usize, choose) };
            if let Some(count) = count {
                return count;
            }
            if is_mixed {
                return self.wake_all(process);
            }
        }
    }

    /// Empties the list, whose waiters all wait with `mutex`.
    ///
    /// # Safety
    /// The condition's queue and the mutex's are locked, and there is a waiter.
    unsafe fn move_all(list: &mut List, mutex: &QueueMutex, now: u64) -> Move {
        let List { first, .. } = *list;
        // SAFETY: the mutex's queue is locked, and the waiters will be in it.
        let is_held = unsafe { mutex.park_behind_holder() };
        // If the mutex is free, the first waiter is woken to take it.
        for waiter in list.iter().skip(usize::from(!is_held)) {
            // SAFETY: the mutex's queue is locked.
            waiter.moved.set(Some((now, unsafe { mutex.join_queue(now) })));
        }
        // SAFETY: there is a first one, and it sleeps.
        let (token, has_more) = unsafe { ((*first).token, list.iter().nth(1).is_some()) };
        list.clear();
        if is_held {
            return Move::All;
        }
        if has_more {
            // SAFETY: the others will be in its queue, and the first waiter, which is woken, will take it.
            unsafe { mutex.park_behind_next() };
        }
        Move::AllButFirst { token }
    }

    /// Wakes all threads, when they wait with several mutexes.
    fn wake_all(&self, process: u32) -> usize {
        let mut count = 0;
        let decide = |woken: &queue::Woken| {
            count = woken.count;
            // SAFETY: the queue is locked. No thread is left in it.
            unsafe { self.with_list(process, List::clear) };
            false
        };
        // SAFETY: the key is the address of this object, and the closures neither panic nor park nor wake.
        unsafe { queue::wake(self.key(), queue::everybody, decide) };
        count
    }

    /// Gives up the mutex, waits to be notified, no longer than until `deadline`, and takes the mutex again. Returns
    /// whether it was notified.
    ///
    /// # Safety
    /// The caller holds `mutex`.
    pub(crate) unsafe fn wait(&self, mutex: &QueueMutex, deadline: Option<Instant>) -> bool {
        let process = process::number();
        let mut wait = Wait::prepare(WaitReason::CondWait);
        let waiter = Waiter::new(mutex, wait.token());
        let validate = |wait: &mut Wait| {
            // SAFETY: validation runs with the queue locked. The waiter stays on this stack until it was woken or has
            // given up, and is removed from the list before.
            unsafe { self.with_list(process, |list| list.push(&raw const waiter)) };
            wait.run();
            true
        };
        // Only when this thread is in the queue: the next holder of the mutex that notifies finds it there. SAFETY: the
        // caller holds the mutex.
        let before_sleep = || unsafe { mutex.unlock() };
        let mut for_mutex = None;
        let timed_out = |wait: &mut Wait, was_last| {
            // SAFETY: the queue that this thread is in is locked.
            unsafe {
                match waiter.moved.get() {
                    Some((now, stake)) => {
                        let mut rest = wait.split(now, stake);
                        mutex.leave_queue(was_last, |account| rest.leave_place(account));
                        for_mutex = Some(rest);
                    }
                    None => self.with_list(process, |list| list.remove(&waiter)),
                }
            }
        };
        // SAFETY: the key is this object's own address, and the closures neither panic nor park; unlocking may wake.
        let sleep =
            unsafe { queue::park(self.key(), 0, &mut wait, validate, before_sleep, timed_out, deadline) };
        let is_woken = matches!(sleep, Sleep::Woken { .. });
        if let (true, Some((now, stake))) = (is_woken, waiter.moved.get()) {
            for_mutex = Some(wait.split(now, stake));
        }
        // The wait is reported before the mutex is taken, so that no thread waits for the report.
        if is_woken || for_mutex.is_some() {
            wait.end();
        } else {
            wait.end_now();
            mutex.lock();
            return false;
        }
        let has_mutex = sleep == (Sleep::Woken { is_handed_over: true });
        match for_mutex {
            Some(wait) if has_mutex => wait.end(),
            Some(wait) => {
                mutex.lock_queued(wait, is_woken, None);
            }
            // A condition is never handed over. But in a forked child that has moved waiters of its parent too, a moved
            // thread may not know that it was moved.
            None if has_mutex => {}
            None => mutex.lock(),
        }
        true
    }

    #[cfg(all(test, loom))]
    pub(crate) fn is_settled(&self) -> bool {
        // SAFETY: the tests ask when no other thread uses it.
        self.mutex.load(Ordering::Relaxed).is_null()
            && unsafe { self.with_list(process::number(), |list| list.iter().next().is_none()) }
    }
}
