//! Work beside a test's own.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Work for threads beside a test's own; ends with the test.
#[derive(Default)]
pub struct Background {
    stop: AtomicBool,
}

impl Background {
    /// Repeats `work` until the guard of [`Background::ends_here`] is dropped.
    pub fn repeat(&self, work: impl Fn()) {
        while !self.stop.load(Relaxed) {
            work();
        }
    }

    /// Returns a guard that ends the work when dropped, by a panic too, so that a failure is reported instead of a
    /// hang.
    pub fn ends_here(&self) -> impl Drop {
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        Ends(&self.stop)
    }
}
