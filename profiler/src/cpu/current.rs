//! A value that signal handlers use, and its removal.
//!
//! Problem: a handler may begin at any moment, on any thread, and the value that it uses must be freed when the
//! sampling is over. Scheme: a handler increments a user count before it loads the value, and decrements it afterwards.
//! To remove the value, it is made unreachable first; then the remover waits until the count is zero:
//!
//! ```text
//!   handler                       end
//!   users += 1                    value = null
//!   ---- fence ----               ---- fence ----
//!   value?  null: nothing         users?  0: no handler uses it
//!   users -= 1                            else: wait
//! ```
//!
//! With a fence on either side at least one of the two sees the other. If a handler never returns, because a debugger
//! has stopped its thread, the memory is leaked.

use core::ops::Deref;
use core::ptr::null_mut;

use rtprof_runtime::primitive::{AtomicPtr, AtomicU32, Ordering, fence};

/// A value that handlers can load while it is set.
pub(super) struct Current<T> {
    value: AtomicPtr<T>,
    users: AtomicU32,
}

/// A value that handlers can no longer load.
pub(super) enum Ended<T: 'static> {
    /// No handler uses it.
    Unused(Box<T>),
    /// A handler may use it, for ever.
    InUse(&'static T),
}

impl<T> Current<T> {
    rtprof_runtime::const_fn! {
        pub(super) const fn new() -> Self {
            Self { value: AtomicPtr::new(null_mut()), users: AtomicU32::new(0) }
        }
    }

    /// Runs `f` with the value, if it is set. For handlers; `f` does not panic.
    pub(super) fn with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.users.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // SAFETY: `end` frees the value only after it was made unreachable and `users` was then 0.
        let result = unsafe { self.value.load(Ordering::Acquire).as_ref() }.map(f);
        // Not below 0: a signal handler may have interrupted this, forked, and returned here in the child, where the
        // count was reset (`forget`).
        let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
        let _ = self.users.fetch_update(release, relaxed, |users| users.checked_sub(1));
        result
    }

    /// Returns whether the value is set.
    pub(super) fn is_set(&self) -> bool {
        !self.value.load(Ordering::Relaxed).is_null()
    }

    /// Sets the value. No value is set before the call.
    pub(super) fn begin(&self, value: Box<T>) {
        self.value.store(Box::into_raw(value), Ordering::Release);
    }

    /// Removes the value. `wait` is called as long as a handler may use it, until `wait` returns `false`. Returns
    /// `None` if no value is set.
    pub(super) fn end(&self, mut wait: impl FnMut() -> bool) -> Option<Ended<T>> {
        let value = self.value.swap(null_mut(), Ordering::AcqRel);
        if value.is_null() {
            return None;
        }
        fence(Ordering::SeqCst);
        while self.users.load(Ordering::Acquire) != 0 {
            if !wait() {
                // SAFETY: the pointer comes from `Box::into_raw` in `begin`, and is never freed.
                return Some(Ended::InUse(unsafe { &*value }));
            }
        }
        // SAFETY: the pointer comes from `Box::into_raw` in `begin`; no handler uses it, and none can load it any more.
        Some(Ended::Unused(unsafe { Box::from_raw(value) }))
    }

    /// Removes the value in a forked child, which has none of the threads that use it.
    pub(super) fn forget(&self) {
        self.value.store(null_mut(), Ordering::Relaxed);
        self.users.store(0, Ordering::Relaxed);
    }
}

impl<T> Deref for Ended<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Unused(value) => value,
            Self::InUse(value) => value,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_a_handler_does_not_leave_is_not_freed() {
        let current = Current::new();
        assert!(current.end(|| true).is_none() && !current.is_set());
        current.begin(Box::new(7));
        assert_eq!(current.with(|value| *value), Some(7));
        current.with(|_| {
            let mut tries = 0;
            let ended = current.end(|| {
                tries += 1;
                tries < 3
            });
            assert!(matches!(ended, Some(Ended::InUse(&7))) && tries == 3);
        });
        assert_eq!(current.with(|value| *value), None);
        current.begin(Box::new(8));
        assert!(
            matches!(current.end(|| unreachable!("nobody has it")), Some(Ended::Unused(value)) if *value == 8)
        );
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    /// Freeing is a write in this model; loom checks that no handler's read overlaps it.
    #[test]
    fn loom_nothing_is_freed_under_a_handler() {
        loom::model(|| {
            let current: Arc<Current<UnsafeCell<u32>>> = Arc::new(Current::new());
            current.begin(Box::new(UnsafeCell::new(1)));
            let handler = {
                let current = current.clone();
                loom::thread::spawn(move || {
                    let read = |value: &UnsafeCell<u32>| value.with(|value| unsafe { *value });
                    assert_ne!(current.with(read), Some(2), "it was freed");
                })
            };
            let ended = current.end(|| {
                loom::thread::yield_now();
                true
            });
            if let Some(Ended::Unused(value)) = ended {
                value.with_mut(|value| unsafe { *value = 2 });
            }
            handler.join().unwrap();
        });
    }
}
