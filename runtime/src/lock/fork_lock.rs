//! A lock for the work outside the hooks that a forked child can take even though its holder does not exist there.
//!
//! Problem: a thread writes a profile while another forks. The child inherits the lock as held by a thread that it does
//! not have, and its first profile would wait for ever.
//!
//! Scheme: the lock word is the holder's process id. If the word names another process, the holder is a ghost: the
//! child takes the lock over ([`ForkLock::lock`]) or reports it (`ForkLock::lock_whole`).
//!
//! Never taken in a hook that runs in the program's code. Waiters yield and sleep: most holders work for milliseconds,
//! rarely.

use core::sync::atomic::AtomicU32;
use std::time::Duration;

use crate::hook::hidden::{self, Calls};
use crate::hook::own_process;
use crate::lock::holder_lock::HolderLock;

/// The lock. It guards nothing by itself; the owner's documentation says what it protects.
pub struct ForkLock {
    holder: HolderLock,
}

/// Releases the lock when dropped.
pub struct ForkGuard<'a> {
    lock: &'a ForkLock,
}

impl ForkLock {
    /// An open lock.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { holder: HolderLock::new(AtomicU32::new(0)) }
    }

    /// Takes the lock, also from a ghost. For state that is consistent at every instant (atomics).
    pub fn lock(&self) -> ForkGuard<'_> {
        let me = own_process();
        self.holder.take(me, |tries, holder| {
            let is_ghost = holder != me;
            if !is_ghost {
                wait(tries);
            }
            is_ghost && self.holder.try_take_from(holder, me).is_ok()
        });
        ForkGuard { lock: self }
    }

    /// Takes the lock. Returns `None` when a ghost holds it: then the protected state may be half written and must not
    /// be accessed in this process.
    pub(crate) fn lock_whole(&self) -> Option<ForkGuard<'_>> {
        let me = own_process();
        let is_taken = self.holder.take(me, |tries, holder| {
            let is_ghost = holder != me;
            if !is_ghost {
                wait(tries);
            }
            is_ghost
        });
        is_taken.then(|| ForkGuard { lock: self })
    }

    /// Takes the lock if it is open or held by a ghost. Never waits, so it is safe to call in a hook.
    pub fn try_lock(&self) -> Option<ForkGuard<'_>> {
        let me = own_process();
        let holder = self.holder.holder();
        if holder == me {
            return None;
        }
        self.holder.try_take_from(holder, me).ok()?;
        Some(ForkGuard { lock: self })
    }
}

fn wait(tries: u32) {
    hidden::hiding(Calls::WAITS, || match tries {
        ..64 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(100)),
    });
}

impl Drop for ForkGuard<'_> {
    fn drop(&mut self) {
        self.lock.holder.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ghost_is_taken_over_or_reported() {
        let lock = ForkLock::new();
        lock.holder.try_take(u32::MAX).unwrap();
        assert!(lock.lock_whole().is_none());
        drop(lock.lock());
        assert!(lock.lock_whole().is_some());
    }

    #[test]
    fn it_excludes() {
        let lock = ForkLock::new();
        let mut total = 0u64;
        let shared = &raw mut total as usize;
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..500 {
                        let _held = lock.lock();
                        let p = shared as *mut u64;
                        // SAFETY: the lock under test makes the accesses exclusive.
                        unsafe { p.write_volatile(p.read_volatile() + 1) };
                    }
                });
            }
        });
        assert_eq!(total, 2000);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
    }
}
