//! Data behind a [`ForkLock`], and data that each process makes for itself: the replacements of `Mutex` and `LazyLock`
//! in code that a forked child may run.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::hook::{outside_workspace, own_process};
use crate::lock::fork_lock::{ForkGuard, ForkLock};

/// A value behind a lock. It is not accessible any more in a forked child whose parent was changing it at the instant
/// of the fork: it may be half changed.
pub struct ForkMutex<T> {
    lock: ForkLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only accessed through the lock, by one thread at a time.
unsafe impl<T: Send> Sync for ForkMutex<T> {}

/// Access to the value; ends when dropped.
pub struct ForkMutexGuard<'a, T> {
    mutex: &'a ForkMutex<T>,
    _held: ForkGuard<'a>,
}

impl<T> ForkMutex<T> {
    /// An open lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { lock: ForkLock::new(), value: UnsafeCell::new(value) }
    }

    /// Waits for the value. Returns `None` in a forked child that has lost it. A panic of the holder releases the lock.
    pub fn lock(&self) -> Option<ForkMutexGuard<'_, T>> {
        Some(ForkMutexGuard { _held: self.lock.lock_whole()?, mutex: self })
    }
}

impl<T> Deref for ForkMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for ForkMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, and is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

/// A value that is made at its first use, and made again in a forked child: locks inside the parent's value may be held
/// by threads that do not exist in the child. The parent's value is leaked in the child.
pub struct PerProcess<T> {
    current: AtomicPtr<(u32, T)>,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// An empty cell; the value is not made yet.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { current: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Returns this process's value, made by `make` if it does not exist. Threads that race make several values, of
    /// which one is kept.
    pub fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        let me = own_process();
        let seen = self.current.load(Ordering::Acquire);
        // SAFETY: installed values are never freed.
        match unsafe { seen.as_ref() } {
            Some((process, value)) if *process == me => return value,
            _ => {}
        }
        // The value is kept beyond the work for which it is made.
        let made = outside_workspace(|| Box::into_raw(Box::new((me, make()))));
        match self.current.compare_exchange(seen, made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the value was installed just now, and is never freed.
            Ok(_) => unsafe { &(*made).1 },
            Err(theirs) => {
                // SAFETY: `made` was not installed, so only this thread has it; the other thread's value was installed
                // and is never freed.
                unsafe {
                    drop(Box::from_raw(made));
                    &(*theirs).1
                }
            }
        }
    }
}

#[cfg(all(test, rtprof_supported, not(loom)))]
mod tests {
    use super::*;

    static VALUE: PerProcess<u32> = PerProcess::new();
    static LIST: ForkMutex<Vec<u32>> = ForkMutex::new(Vec::new());

    #[test]
    fn a_child_makes_its_own_and_is_refused_what_a_ghost_holds() {
        assert_eq!(*VALUE.get(|| 1), 1);
        assert_eq!(*VALUE.get(|| 2), 1);
        let mut held = LIST.lock().unwrap();
        held.push(7);
        // SAFETY: the child only reads both values and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let right = *VALUE.get(|| 3) == 3 && LIST.lock().is_none();
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = -1;
        // SAFETY: waits for our own child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        drop(held);
        assert_eq!(*LIST.lock().unwrap(), [7]);
    }
}
