//! An optional reference to something that lives for ever, in one atomic word.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// A reference to a `T` that is never freed, or none. Zeroed memory is none.
///
/// It is made of core's atomics under loom too: the models are about other words.
pub struct AtomicRef<T: 'static>(AtomicPtr<T>);

impl<T> AtomicRef<T> {
    /// No reference.
    pub const fn none() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// What was set last. For hooks.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or from the static reference that `set` was given.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets it. For hooks.
    #[inline]
    pub fn set(&self, reference: Option<&'static T>) {
        let address = reference.map_or(ptr::null_mut(), |reference| (&raw const *reference).cast_mut());
        // Release: a thread that reads the reference reads what it leads to as well.
        self.0.store(address, Ordering::Release);
    }
}

impl<T> Default for AtomicRef<T> {
    fn default() -> Self {
        Self::none()
    }
}
