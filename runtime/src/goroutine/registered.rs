//! The guard of a goroutine that ends with a scope.

use core::marker::PhantomData;

use super::origin::Origin;
use super::slot::Goroutine;

/// Guard of the current thread's goroutine, for the first function of a thread. Dropping it ends the goroutine.
#[must_use = "the goroutine ends when this is dropped"]
pub struct Registered {
    /// The goroutine and its id: the slot may hold another goroutine at the drop.
    goroutine: Option<(&'static Goroutine, u64)>,
    _of_this_thread: PhantomData<*const ()>,
}

/// Begins the current thread's goroutine. A thread that a hook has already registered keeps its goroutine, with the new
/// name, unless its creator has reserved another id. Does nothing if there is no memory. Go: `newproc`.
///
/// The first 64 bytes of `name` are kept.
pub fn register(name: Option<&str>, origin: Origin) -> Registered {
    let goroutine = super::enter_thread(name.unwrap_or_default(), origin);
    Registered {
        goroutine: goroutine.map(|goroutine| (goroutine, goroutine.id())),
        _of_this_thread: PhantomData,
    }
}

impl Registered {
    /// Lets the goroutine end when its thread has run its last destructor; ends it at once if that would not be
    /// noticed.
    pub fn end_with_thread(self) {
        if super::exit::arm() {
            core::mem::forget(self);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some((goroutine, id)) = self.goroutine {
            super::end(goroutine, id);
        }
    }
}
