//! What signal handlers use, and how it is taken from them.
//!
//! Problem: a handler may begin at any moment, on any thread, and what it uses is to be freed when the sampling is over.
//! Scheme: a handler counts itself in before it looks, and out when it has done. To take it away is to make it
//! unreachable first, and then to wait until the count is zero:
//!
//! ```text
//!   handler                       end
//!   users += 1                    value = null
//!   ---- fence ----               ---- fence ----
//!   value?  null: nothing         users?  0: nobody has it
//!   users -= 1                            else: wait
//! ```
//!
//! With a fence on either side at least one of the two sees the other. A handler that never returns, because a debugger has
//! stopped its thread, costs the memory: it is leaked.

use core::ops::Deref;
use core::ptr::null_mut;

use rtprof_runtime::primitive::{AtomicPtr, AtomicU32, Ordering, fence};

/// A value that handlers find while there is one.
pub(super) struct Current<T> {
    value: AtomicPtr<T>,
    users: AtomicU32,
}

/// A value that handlers find no more.
pub(super) enum Ended<T: 'static> {
    /// No handler uses it.
    Unused(Box<T>),
    /// One may, for ever.
    InUse(&'static T),
}

impl<T> Current<T> {
    rtprof_runtime::const_fn! {
        pub(super) const fn new() -> Self {
            Self { value: AtomicPtr::new(null_mut()), users: AtomicU32::new(0) }
        }
    }

    /// Runs `f` with the value, if there is one. For handlers; `f` does not panic.
    pub(super) fn with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.users.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // SAFETY: `end` frees it only after it has seen `users` at 0 when it could not be found any more.
        let result = unsafe { self.value.load(Ordering::Acquire).as_ref() }.map(f);
        // Not below 0: a signal handler may have interrupted this, forked, and returned here in the child, where nobody is
        // counted (`forget`).
        let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
        let _ = self.users.fetch_update(release, relaxed, |users| users.checked_sub(1));
        result
    }

    /// Whether there is a value.
    pub(super) fn is_set(&self) -> bool {
        !self.value.load(Ordering::Relaxed).is_null()
    }

    /// Lets handlers find `value`. There is none before.
    pub(super) fn begin(&self, value: Box<T>) {
        self.value.store(Box::into_raw(value), Ordering::Release);
    }

    /// Takes the value from them. `wait` is called as long as one of them may have it, until it returns `false`. `None` if
    /// there is no value.
    pub(super) fn end(&self, mut wait: impl FnMut() -> bool) -> Option<Ended<T>> {
        let value = self.value.swap(null_mut(), Ordering::AcqRel);
        if value.is_null() {
            return None;
        }
        fence(Ordering::SeqCst);
        while self.users.load(Ordering::Acquire) != 0 {
            if !wait() {
                // SAFETY: from `begin`, and never freed.
                return Some(Ended::InUse(unsafe { &*value }));
            }
        }
        // SAFETY: from `begin`; no handler has it, and none finds it any more.
        Some(Ended::Unused(unsafe { Box::from_raw(value) }))
    }

    /// In a forked child, which has none of the threads that use the value.
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

    /// Freeing is a write here, which loom does not let a handler's read meet.
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
