//! A mutex and a condition of C, for tests.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::zeroed;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::Duration;

/// The function for a wait with a deadline, by its clock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// By the real-time clock, which can be set.
    Set,
    #[cfg(target_env = "gnu")]
    Chosen(libc::clockid_t),
}

impl By {
    fn clock(self) -> libc::clockid_t {
        match self {
            Self::Set => libc::CLOCK_REALTIME,
            #[cfg(target_env = "gnu")]
            Self::Chosen(clock) => clock,
        }
    }

    fn deadline(self, timeout: Duration) -> libc::timespec {
        // SAFETY: the call writes to a local.
        let now = unsafe {
            let mut now = zeroed();
            assert_eq!(libc::clock_gettime(self.clock(), &raw mut now), 0);
            now
        };
        let nanos = now.tv_nsec + i64::from(timeout.subsec_nanos());
        libc::timespec {
            tv_sec: now.tv_sec + timeout.as_secs() as i64 + nanos / 1_000_000_000,
            tv_nsec: nanos % 1_000_000_000,
        }
    }
}

unsafe extern "C-unwind" {
    fn pthread_mutexattr_setrobust(attributes: *mut libc::pthread_mutexattr_t, robust: c_int) -> c_int;
    fn pthread_mutexattr_setprotocol(attributes: *mut libc::pthread_mutexattr_t, protocol: c_int) -> c_int;
    fn pthread_mutex_consistent(mutex: *mut libc::pthread_mutex_t) -> c_int;
    #[cfg(target_env = "gnu")]
    pub(crate) fn pthread_mutex_clocklock(
        mutex: *mut libc::pthread_mutex_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> c_int;
    #[cfg(target_env = "gnu")]
    fn pthread_cond_clockwait(
        condition: *mut libc::pthread_cond_t,
        mutex: *mut libc::pthread_mutex_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> c_int;
}

/// A mutex of C, and its condition.
pub(crate) struct CLock {
    pub(crate) mutex: UnsafeCell<libc::pthread_mutex_t>,
    pub(crate) condition: UnsafeCell<libc::pthread_cond_t>,
    is_set: AtomicI32,
}

// SAFETY: many threads may use the mutex and the condition at the same time.
unsafe impl Sync for CLock {}

// SAFETY: for all methods: the mutex and the condition live as long as the lock, and do not move while it is borrowed.
impl CLock {
    pub(crate) fn new() -> Box<Self> {
        Self::of_kind(libc::PTHREAD_MUTEX_NORMAL)
    }

    pub(crate) fn of_kind(kind: c_int) -> Box<Self> {
        // SAFETY: `with` passes valid attributes.
        Self::with(|attributes| unsafe { libc::pthread_mutexattr_settype(attributes, kind) })
    }

    /// Makes a mutex that another thread gets when its holder has ended.
    pub(crate) fn robust() -> Box<Self> {
        // SAFETY: `with` passes valid attributes.
        Self::with(|attributes| unsafe {
            pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST)
        })
    }

    /// Makes a mutex whose holder has the priority of its waiters.
    pub(crate) fn inheriting() -> Box<Self> {
        // SAFETY: `with` passes valid attributes.
        Self::with(|attributes| unsafe {
            pthread_mutexattr_setprotocol(attributes, libc::PTHREAD_PRIO_INHERIT)
        })
    }

    fn with(set: impl FnOnce(*mut libc::pthread_mutexattr_t) -> c_int) -> Box<Self> {
        // SAFETY: the initialisers of both libraries are all zeros.
        let lock: Box<Self> =
            unsafe { Box::new(Self { mutex: zeroed(), condition: zeroed(), is_set: AtomicI32::new(0) }) };
        // SAFETY: the attributes are a local, and the mutex is not in use yet.
        unsafe {
            let mut attributes = zeroed();
            assert_eq!(libc::pthread_mutexattr_init(&raw mut attributes), 0);
            assert_eq!(set(&raw mut attributes), 0);
            assert_eq!(libc::pthread_mutex_init(lock.mutex.get(), &raw const attributes), 0);
        }
        lock
    }

    pub(crate) fn lock(&self) -> c_int {
        // SAFETY: the mutex is valid and does not move while `self` is borrowed.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) }
    }

    pub(crate) fn try_lock(&self) -> c_int {
        // SAFETY: the mutex is valid and does not move while `self` is borrowed.
        unsafe { libc::pthread_mutex_trylock(self.mutex.get()) }
    }

    pub(crate) fn lock_by(&self, by: By, timeout: Duration) -> c_int {
        let deadline = by.deadline(timeout);
        // SAFETY: the mutex is valid and does not move while `self` is borrowed; the deadline is a local.
        unsafe {
            match by {
                By::Set => libc::pthread_mutex_timedlock(self.mutex.get(), &raw const deadline),
                #[cfg(target_env = "gnu")]
                By::Chosen(clock) => pthread_mutex_clocklock(self.mutex.get(), clock, &raw const deadline),
            }
        }
    }

    pub(crate) fn unlock(&self) -> c_int {
        // SAFETY: the mutex is valid and does not move while `self` is borrowed.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) }
    }

    pub(crate) fn is_consistent(&self) -> c_int {
        // SAFETY: the mutex is valid and does not move while `self` is borrowed.
        unsafe { pthread_mutex_consistent(self.mutex.get()) }
    }

    /// Returns a guard that unlocks the mutex if the test panics: then waiting threads end, and the test fails.
    pub(crate) fn unlocked_by_panic(&self) -> impl Drop {
        UnlockedByPanic(self)
    }

    pub(crate) fn wait(&self) -> c_int {
        // SAFETY: the mutex and the condition are valid and do not move while `self` is borrowed.
        unsafe { libc::pthread_cond_wait(self.condition.get(), self.mutex.get()) }
    }

    pub(crate) fn wait_by(&self, by: By, timeout: Duration) -> c_int {
        let deadline = by.deadline(timeout);
        let (condition, mutex) = (self.condition.get(), self.mutex.get());
        // SAFETY: the mutex and the condition are valid and do not move while `self` is borrowed; the deadline is a
        // local.
        unsafe {
            match by {
                By::Set => libc::pthread_cond_timedwait(condition, mutex, &raw const deadline),
                #[cfg(target_env = "gnu")]
                By::Chosen(clock) => pthread_cond_clockwait(condition, mutex, clock, &raw const deadline),
            }
        }
    }

    pub(crate) fn wait_until_set(&self, mut wait: impl FnMut(&Self) -> c_int) {
        assert_eq!(self.lock(), 0);
        while self.is_set.load(Relaxed) == 0 {
            assert_eq!(wait(self), 0);
        }
        assert_eq!(self.unlock(), 0);
    }

    pub(crate) fn set(&self, signal: unsafe extern "C" fn(*mut libc::pthread_cond_t) -> c_int) {
        assert_eq!(self.lock(), 0);
        self.is_set.store(1, Relaxed);
        // SAFETY: the condition is valid and does not move while `self` is borrowed.
        assert_eq!(unsafe { signal(self.condition.get()) }, 0);
        assert_eq!(self.unlock(), 0);
    }
}

struct UnlockedByPanic<'a>(&'a CLock);

impl Drop for UnlockedByPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.unlock();
        }
    }
}
