//! An optional reference to a value that is never freed, in one atomic word.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// A reference to a `T` that is never freed, or none. Zeroed memory means none.
///
/// It uses core's atomics under loom too: the models explore other words.
pub struct AtomicRef<T: 'static>(AtomicPtr<T>);

impl<T: Sync> AtomicRef<T> {
    /// No reference.
    pub const fn none() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the reference that was set last. Safe to call in a hook.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null, or was made from the static reference that was passed to `set`, maybe by another
        // thread: `T` is `Sync`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the reference. Safe to call in a hook.
    #[inline]
    pub fn set(&self, reference: Option<&'static T>) {
        let address = reference.map_or(ptr::null_mut(), |reference| (&raw const *reference).cast_mut());
        // Release: a thread that reads the reference also reads the value behind it.
        self.0.store(address, Ordering::Release);
    }

    /// Stores a reference if there is none, and returns the one that is there afterwards.
    pub(crate) fn get_or_set(&self, reference: &'static T) -> &'static T {
        let address = (&raw const *reference).cast_mut();
        match self.0.compare_exchange(ptr::null_mut(), address, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => reference,
            // SAFETY: it is not null, and only references are stored.
            Err(other) => unsafe { &*other },
        }
    }
}

impl<T: Sync> Default for AtomicRef<T> {
    fn default() -> Self {
        Self::none()
    }
}
