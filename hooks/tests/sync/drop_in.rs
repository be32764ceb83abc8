//! What a program takes from parking_lot: the same source is compiled against it and against us.

use std::cell::Cell;
use std::panic::{RefUnwindSafe, UnwindSafe};

fn safe<T: UnwindSafe>() {}
fn ref_safe<T: RefUnwindSafe>() {}

macro_rules! program {
    ($name:ident, $library:path) => {
        mod $name {
            use super::*;
            use $library as library;

            use library::lock_api::RawMutex as _;
            use library::{
                ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockUpgradableReadGuard, ArcRwLockWriteGuard,
                Condvar, MappedMutexGuard, MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, MutexGuard,
                Once, OnceState, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
                WaitTimeoutResult, const_mutex, const_rwlock,
            };
            use std::sync::Arc;

            static COUNT: Mutex<u32> = const_mutex(1);
            static NAMES: RwLock<[&str; 2]> = const_rwlock(["a", "b"]);

            #[test]
            fn const_locks() {
                *COUNT.lock() += 1;
                NAMES.write()[1] = "c";
                assert_eq!((*COUNT.lock(), *NAMES.read()), (2, ["a", "c"]));
            }

            #[test]
            fn guards_that_share_ownership() {
                let lock = Arc::new(Mutex::new(1));
                let guard: ArcMutexGuard<_, i32> = lock.lock_arc();
                assert!(lock.try_lock_arc().is_none());
                drop(guard);
                let lock = Arc::new(RwLock::new(1));
                let guard: ArcRwLockUpgradableReadGuard<_, i32> = lock.upgradable_read_arc();
                let reader: ArcRwLockReadGuard<_, i32> = lock.read_arc();
                drop((guard, reader));
                let mut guard: ArcRwLockWriteGuard<_, i32> = lock.write_arc();
                *guard += 1;
                drop(guard);
                assert_eq!(Arc::into_inner(lock).map(RwLock::into_inner), Some(2));
            }

            /// A closure with any of them may be given to `catch_unwind`, or not, as it was.
            #[test]
            fn unwind_safety() {
                safe::<Mutex<Cell<u8>>>();
                safe::<RwLock<Cell<u8>>>();
                ref_safe::<Condvar>();
                ref_safe::<Once>();
                ref_safe::<OnceState>();
                ref_safe::<WaitTimeoutResult>();
                ref_safe::<MappedMutexGuard<'_, u8>>();
                ref_safe::<MappedRwLockReadGuard<'_, u8>>();
                ref_safe::<MappedRwLockWriteGuard<'_, u8>>();
                safe::<MappedRwLockReadGuard<'_, u8>>();
            }

            #[test]
            fn lock_api_is_at_hand() {
                fn lock<R: library::lock_api::RawMutex>(lock: &library::lock_api::Mutex<R, u8>) -> u8 {
                    *lock.lock()
                }
                let mutex = Mutex::new(7);
                assert_eq!(lock(&mutex), 7);
                // SAFETY: unlocked right after it was locked.
                unsafe {
                    assert!(mutex.raw().try_lock());
                    mutex.force_unlock();
                }
                let guard: MutexGuard<'_, u8> = mutex.lock();
                assert_eq!(*MutexGuard::map(guard, |value| value), 7);
                let lock = RwLock::new(7);
                let guard: RwLockUpgradableReadGuard<'_, u8> = lock.upgradable_read();
                let guard: RwLockWriteGuard<'_, u8> = RwLockUpgradableReadGuard::upgrade(guard);
                let guard: RwLockReadGuard<'_, u8> = RwLockWriteGuard::downgrade(guard);
                assert_eq!(*guard, 7);
            }
        }
    };
}

program!(theirs, parking_lot);
program!(ours, rtprof_hooks::sync);
