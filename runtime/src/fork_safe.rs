//! Data behind a [`ForkLock`], and data that each process makes for itself: what stands in for `Mutex` and
//! `LazyLock` in code that a forked child may run.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::fork_lock::{ForkGuard, ForkLock};
use crate::hook::{outside_workspace, own_process};

/// A value behind a lock. In a forked child whose parent was changing it at the instant of the fork it
/// cannot be reached any more: it may be half changed.
pub struct ForkMutex<T> {
    lock: ForkLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through the lock, by one thread at a time.
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

    /// Waits for the value. `None` in a forked child that has lost it. A panic of its holder releases
    /// it.
    pub fn lock(&self) -> Option<ForkMutexGuard<'_, T>> {
        Some(ForkMutexGuard { _held: self.lock.lock_whole()?, mutex: self })
    }
}

impl<T> Deref for ForkMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held by this guard.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for ForkMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held by this guard, which is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

/// A value that is made at its first use, and made again in a forked child: whatever locks are inside
/// may be held there by threads that do not exist. The parent's is leaked in the child.
pub struct PerProcess<T> {
    current: AtomicPtr<(u32, T)>,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// Not made yet.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { current: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// This process's value, made by `make` if there is none. Threads that race make several, of which
    /// one stays.
    pub fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        let me = own_process();
        let seen = self.current.load(Ordering::Acquire);
        // SAFETY: installed values are never freed.
        match unsafe { seen.as_ref() } {
            Some((process, value)) if *process == me => return value,
            _ => {}
        }
        // It stays, whatever work it is made for.
        let made = outside_workspace(|| Box::into_raw(Box::new((me, make()))));
        match self.current.compare_exchange(seen, made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: installed just now, never freed.
            Ok(_) => unsafe { &(*made).1 },
            Err(theirs) => {
                // SAFETY: ours alone: another thread's was installed, which is never freed.
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
        // SAFETY: the child only asks and exits.
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
