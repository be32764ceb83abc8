//! Locks, channels and other synchronisation whose waits show up in the block and mutex profiles.
//!
//! Drop-in replacements: change the import, `use rtprof::sync::{Mutex, mpsc}` for `use std::sync::{Mutex, mpsc}` or
//! `use parking_lot::Mutex`. Until profiling is switched on
//! ([`set_block_profile_rate`](rtprof_profiler::contention::set_block_profile_rate),
//! [`set_mutex_profile_fraction`](rtprof_profiler::contention::set_mutex_profile_fraction)) a contended lock reads the
//! clock a few times, and an uncontended lock does no more than parking_lot's.
//!
//! # What counts as a wait
//!
//! | | block profile: who waited | mutex profile: who made others wait |
//! |---|---|---|
//! | [`Mutex`], [`RwLock`] | a thread that slept for the lock | the thread that unlocked, for all threads that slept until then |
//! | [`Condvar`], [`Once`], [`Barrier`], [`Semaphore`] | a thread that slept | |
//! | [`mpsc`] | a receive on an empty channel, a send on a full one | contention of senders and receiver for the channel itself |
//! | [`thread`](crate::thread) | a join, a scope's end, a park; not a sleep | |
//!
//! A thread that gets its lock within the first microseconds (3, for a [`Mutex`] up to 14), while it spins, has not
//! waited, as in Go. A wait ends when the thread is woken; the time until the kernel runs it does not count. A wait
//! with a timeout counts whether the thread got the lock or not.
//!
//! The time of a mutex event is what all waiters together have waited since the last charge, or since they arrived: a
//! holder that keeps three others waiting for 10 ms is charged 30 ms. A wait is counted at the first unlock that is
//! charged for it. (Until a woken thread has taken the [`Mutex`], an unlock within some 16 µs of a charge leaves its
//! own charge to the next unlock.) So the delays of both profiles have the same totals, except for waiters that gave
//! up. An unlock whose waiters were all counted before still shows one wait, because no record has a count of 0.
//!
//! # Not like `std`
//!
//! No poisoning: a panic in a critical section unlocks. So functions return the value that std wraps into a `Result`:
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
//! - Check locks of an `Option` or a `Result` that is `Copy` (`Mutex<Option<u32>>`): `lock().unwrap()` still compiles,
//!   and unwraps the data of the lock.
//! - These locks are not `RefUnwindSafe`: `catch_unwind` needs an `AssertUnwindSafe` around a closure that captures
//!   one.
//! - Guards are invariant in the type of the data, as parking_lot's are: a `RwLockReadGuard<'_, &'static str>` does not
//!   coerce to a `RwLockReadGuard<'_, &'a str>`, as std's does.
//! - [`Once`] still poisons, as parking_lot's does.
//! - [`mpsc`] has std's interface exactly, errors included.
//! - [`Arc`], [`OnceLock`], [`LazyLock`] and [`atomic`] are std's: a wait for the initialisation of a `OnceLock` is in
//!   no profile.
//! - A lock's memory is larger: see below.
//!
//! # Not like `parking_lot`
//!
//! - [`Mutex`] and [`RwLock`] take 32 bytes beside their data, for the account of waiters; parking_lot's take 1 and 8.
//!   A [`Condvar`] takes 32, for the list of waiters; parking_lot's takes 8.
//! - A [`Condvar`] may be used with several mutexes.
//! - [`RawMutex`] and [`RawRwLock`] are adapters for another raw lock, which is their type parameter. The raw locks of
//!   [`Mutex`] and [`RwLock`] are [`QueueMutex`] and [`QueueRwLock`]: `lock_api::Mutex<rtprof::sync::QueueMutex, T>`
//!   for `lock_api::Mutex<parking_lot::RawMutex, T>`.
//! - [`lock_api`]'s feature `arc_lock` is on, so `lock_arc` and the related methods exist. Its `serde` works on these
//!   locks as on parking_lot's; a program that enabled it by parking_lot's `serde` enables `lock_api/serde` instead.
//! - Contended locks spin for some microseconds (a [`Mutex`] for up to 15) and then sleep; they do not yield in between.
//! - Guards are not `Send`. No deadlock detection, no hardware lock elision, no `FairMutex`, no `ReentrantMutex`:
//!   put [`RawMutex`]`<parking_lot::RawFairMutex>` under `lock_api` for these.
//!
//! # Your responsibilities
//!
//! As with parking_lot: do not use a lock of this module in a signal handler or inside a `#[global_allocator]`; a
//! leaked guard leaves its lock locked for ever. After a `fork` without `exec` the child has one thread: a lock that
//! another thread held stays held. When the child unlocks a lock that other threads waited for, the lock may be handed
//! to one of these threads, which does not exist in the child. A thread of the child that waits may wait for ever, or
//! crash the child: parking_lot's table of waiting threads, which is used here too, still refers to the parent's
//! threads. Use std's locks in such a child.

mod condvar;
mod foreign_lock_account;
mod locks;
pub mod mpsc;
mod once;
mod raw_mutex;
mod raw_rw_lock;

pub use self::{
    condvar::{Condvar, WaitTimeoutResult},
    locks::{
        MappedMutexGuard, MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, MutexGuard, RwLock,
        RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard, const_mutex, const_rwlock,
    },
    once::{Once, OnceState},
    raw_mutex::RawMutex,
    raw_rw_lock::RawRwLock,
};
pub use crate::inner::{
    barrier::{Barrier, BarrierWaitResult},
    mutex::QueueMutex,
    rw_lock::QueueRwLock,
    semaphore::{Semaphore, SemaphoreGuard},
};

/// The crate that [`Mutex`] and [`RwLock`] are made with, re-exported as parking_lot does.
pub use lock_api;
pub use lock_api::{ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockUpgradableReadGuard, ArcRwLockWriteGuard};

// The rest of `std::sync`, so that changing one path is enough. Its waits are not recorded.
#[expect(clippy::disallowed_types, reason = "passed on to programs; no hook uses them")]
pub use std::sync::{Arc, LazyLock, OnceLock, Weak, atomic};
