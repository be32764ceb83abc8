//! Locks, channels and other places to wait, whose waits show up in the block and mutex profiles.
//!
//! Drop-in replacements: change the import, `use rtprof::sync::{Mutex, mpsc}` for `use std::sync::{Mutex, mpsc}` or
//! `use parking_lot::Mutex`. Until profiling is switched on
//! ([`set_block_profile_rate`](rtprof_profiler::contention::set_block_profile_rate),
//! [`set_mutex_profile_fraction`](rtprof_profiler::contention::set_mutex_profile_fraction)) a contended lock reads
//! the clock a few times, and an uncontended one does nothing that parking_lot's does not do.
//!
//! # What counts as a wait
//!
//! | | block profile: who waited | mutex profile: who made others wait |
//! |---|---|---|
//! | [`Mutex`], [`RwLock`] | a thread that slept for the lock | who unlocked, for all who slept meanwhile |
//! | [`Condvar`], [`Once`], [`Barrier`], [`Semaphore`] | a thread that slept | |
//! | [`mpsc`] | a receive on an empty channel, a send on a full one | contention of senders and receiver for the channel itself |
//! | [`thread`](crate::thread) | a join, a scope's end, a park; not a sleep | |
//!
//! A thread that gets its lock within the first microseconds (3, for a [`Mutex`] up to 15), still spinning, has not
//! waited, as in Go. A wait
//! is over when the thread is woken; that it runs only when the kernel finds it a core is not the lock's fault.
//! A wait with a timeout counts whether it was in vain or not.
//!
//! The time of a mutex event is the waiting of all threads together since an unlock was charged last, or since they
//! came: a holder that keeps three others waiting for 10 ms is charged 30 ms. A wait is counted at the first unlock
//! that is charged for it. (While a thread that was woken has not taken the [`Mutex`] yet, unlocks that follow a charge by
//! less than some 16 µs leave theirs to the next one.) So the delays of both profiles have the same totals, but for waiters that gave up. An unlock
//! whose waiters were all counted before shows one wait all the same: no record has a count of 0.
//!
//! # Not like `std`
//!
//! No poisoning: a panic in a critical section unlocks. So what std wraps into a `Result` comes as it is:
//!
//! | `std::sync` | here |
//! |---|---|
//! | `lock().unwrap()`, `read().unwrap()`, `write().unwrap()` | `lock()`, `read()`, `write()` |
//! | `if let Ok(guard) = lock.try_lock()` | `if let Some(guard) = lock.try_lock()` |
//! | `into_inner().unwrap()`, `get_mut().unwrap()` | `into_inner()`, `get_mut()` |
//! | `guard = condvar.wait(guard).unwrap()` | `condvar.wait(&mut guard)` |
//! | `condvar.wait_while(guard, condition)` | `condvar.wait_while(&mut guard, condition)` |
//! | `condvar.wait_timeout(guard, timeout)` | `condvar.wait_for(&mut guard, timeout)` |
//! | `condvar.wait_timeout_while(guard, timeout, condition)` | `condvar.wait_while_for(&mut guard, condition, timeout)` |
//! | `once.call_once_force(\|state\| state.is_poisoned())` | `once.call_once_force(\|state\| state.poisoned())` |
//! | `is_poisoned`, `clear_poison`, `PoisonError`, `LockResult`, `TryLockError`, `TryLockResult`, `Once::wait` | nothing |
//! | what std has deprecated: `ONCE_INIT`, `Condvar::wait_timeout_ms` | nothing |
//!
//! - Look at locks of an `Option` or a `Result` that is `Copy` (`Mutex<Option<u32>>`): `lock().unwrap()` still
//!   compiles, and unwraps what is in the lock.
//! - A lock of these is not `RefUnwindSafe`: `catch_unwind` wants an `AssertUnwindSafe` around a closure that has one.
//! - Guards are invariant in the type of the data, as parking_lot's are: a `RwLockReadGuard<'_, &'static str>` does not
//!   stand for a `RwLockReadGuard<'_, &'a str>`, as std's does.
//! - [`Once`] still poisons, as parking_lot's does.
//! - [`mpsc`] is std's to the letter, errors included.
//! - [`Arc`], [`OnceLock`], [`LazyLock`] and [`atomic`] are std's own: who waits for a `OnceLock` to be initialised is
//!   in no profile.
//! - A lock's memory is larger: see below.
//!
//! # Not like `parking_lot`
//!
//! - [`Mutex`] and [`RwLock`] take 32 bytes beside their data, for the account of who waits; parking_lot's take 1
//!   and 8. A [`Condvar`] takes 32, for the list of those who wait; parking_lot's takes 8.
//! - A [`Condvar`] may be used with several mutexes.
//! - [`RawMutex`] and [`RawRwLock`] are adapters for another raw lock, and take it as a parameter. What stands below
//!   [`Mutex`] and [`RwLock`] is [`QueueMutex`] and [`QueueRwLock`]: `lock_api::Mutex<rtprof::sync::QueueMutex, T>` for
//!   `lock_api::Mutex<parking_lot::RawMutex, T>`.
//! - [`lock_api`]'s `arc_lock` is on: `lock_arc` and its like are there. Its `serde` works on these locks as on
//!   parking_lot's; a program that had it by parking_lot's `serde` asks for `lock_api/serde`.
//! - Contended locks spin for some microseconds (a [`Mutex`] for up to 15) and then sleep; they do not yield in between.
//! - Guards are not `Send`. No deadlock detection, no hardware lock elision, no `FairMutex`, no `ReentrantMutex`:
//!   put [`RawMutex`]`<parking_lot::RawFairMutex>` under `lock_api` for these.
//!
//! # Your responsibilities
//!
//! As with parking_lot: no lock of this module in a signal handler or inside a `#[global_allocator]`; a guard that
//! is leaked leaves its lock locked for ever. After a `fork` without `exec` the child has one thread: a lock that another
//! thread held stays held, one that others waited for may be handed to them, who are gone, when the child unlocks it,
//! and a thread of the child that waits may do so for ever.

#[cfg(all(test, loom))]
mod models;
mod mutex;
mod mutex_state;
#[cfg(not(loom))]
mod mutex_traits;
mod queue_condvar;
mod rw_lock;
mod rw_state;
mod waiters;

#[cfg(not(loom))]
mod barrier;
#[cfg(not(loom))]
mod condvar;
#[cfg(not(loom))]
mod foreign_lock_account;
#[cfg(not(loom))]
mod locks;
#[cfg(not(loom))]
pub mod mpsc;
#[cfg(not(loom))]
mod once;
#[cfg(not(loom))]
mod raw_mutex;
#[cfg(not(loom))]
mod raw_rw_lock;
#[cfg(not(loom))]
mod rw_lock_traits;
#[cfg(not(loom))]
mod semaphore;

#[cfg(not(loom))]
pub use self::{
    barrier::{Barrier, BarrierWaitResult},
    condvar::{Condvar, WaitTimeoutResult},
    locks::{
        MappedMutexGuard, MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, MutexGuard, RwLock,
        RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard, const_mutex, const_rwlock,
    },
    mutex::QueueMutex,
    once::{Once, OnceState},
    raw_mutex::RawMutex,
    raw_rw_lock::RawRwLock,
    rw_lock::QueueRwLock,
    semaphore::{Semaphore, SemaphoreGuard},
};

/// What [`Mutex`] and [`RwLock`] are made with, as parking_lot passes it on.
#[cfg(not(loom))]
pub use lock_api;
#[cfg(not(loom))]
pub use lock_api::{ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockUpgradableReadGuard, ArcRwLockWriteGuard};

// What else a program imports from `std::sync`, so that changing one path is enough. None of it waits visibly.
#[cfg(not(loom))]
#[expect(clippy::disallowed_types, reason = "passed on to programs; no hook uses them")]
pub use std::sync::{Arc, LazyLock, OnceLock, Weak, atomic};
