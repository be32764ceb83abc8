//! `lock_api`'s locks and guards over our raw ones, under parking_lot's names.

use crate::inner::mutex::QueueMutex;
use crate::inner::rw_lock::QueueRwLock;

/// Mutual exclusion, without poisoning. Its methods are `lock_api`'s, which are parking_lot's.
///
/// ```
/// # use rtprof_hooks as rtprof;
/// use rtprof::sync::Mutex;
///
/// static TOTAL: Mutex<u64> = Mutex::new(0);
/// *TOTAL.lock() += 1;
/// assert_eq!(*TOTAL.lock(), 1);
/// ```
///
/// Only the thread that locked it can unlock it: a guard cannot be sent to another thread.
///
/// ```compile_fail
/// # use rtprof_hooks as rtprof;
/// # use rtprof::sync::Mutex;
/// # static TOTAL: Mutex<u64> = Mutex::new(0);
/// let guard = TOTAL.lock();
/// std::thread::spawn(move || drop(guard));
/// ```
pub type Mutex<T> = lock_api::Mutex<QueueMutex, T>;

/// As [`Mutex::new`](lock_api::Mutex::new). `parking_lot::const_mutex`.
pub const fn const_mutex<T>(value: T) -> Mutex<T> {
    Mutex::new(value)
}

/// Holds a [`Mutex`] until it is dropped.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, QueueMutex, T>;

/// Holds a [`Mutex`], and gives access to a part of its data.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, QueueMutex, T>;

/// Any number of readers or one writer, without poisoning. Its methods are `lock_api`'s, which are parking_lot's.
///
/// A waiting writer keeps new readers out. So a thread that already reads must not call
/// [`read`](lock_api::RwLock::read) again: it may wait for a writer that waits for this thread.
/// [`read_recursive`](lock_api::RwLock::read_recursive) does not wait for a waiting writer.
///
/// ```
/// # use rtprof_hooks as rtprof;
/// use rtprof::sync::RwLock;
///
/// static NAMES: RwLock<Vec<String>> = RwLock::new(Vec::new());
/// NAMES.write().push("one".into());
/// assert_eq!(NAMES.read().len(), 1);
/// ```
pub type RwLock<T> = lock_api::RwLock<QueueRwLock, T>;

/// As [`RwLock::new`](lock_api::RwLock::new). `parking_lot::const_rwlock`.
pub const fn const_rwlock<T>(value: T) -> RwLock<T> {
    RwLock::new(value)
}

/// Reads a [`RwLock`] until it is dropped.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, QueueRwLock, T>;

/// Writes a [`RwLock`] until it is dropped.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, QueueRwLock, T>;

/// Reads a [`RwLock`], and can become the writer. A lock has one such reader at a time.
pub type RwLockUpgradableReadGuard<'a, T> = lock_api::RwLockUpgradableReadGuard<'a, QueueRwLock, T>;

/// Reads a [`RwLock`], and gives access to a part of its data.
pub type MappedRwLockReadGuard<'a, T> = lock_api::MappedRwLockReadGuard<'a, QueueRwLock, T>;

/// Writes a [`RwLock`], and gives access to a part of its data.
pub type MappedRwLockWriteGuard<'a, T> = lock_api::MappedRwLockWriteGuard<'a, QueueRwLock, T>;
