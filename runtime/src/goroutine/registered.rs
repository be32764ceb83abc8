//! A goroutine that ends with a scope.

use core::marker::PhantomData;

use super::Goroutine;
use crate::start::Start;
use crate::thread_create::ThreadBucket;

/// The current thread's goroutine, until it is dropped. For the first function of a thread.
#[must_use = "the goroutine ends when this is dropped"]
pub struct Registered {
    /// And its id: the slot may be another's by then.
    goroutine: Option<(&'static Goroutine, u64)>,
    _of_this_thread: PhantomData<*const ()>,
}

/// What a goroutine's creator has settled before there is a thread for it.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// Its number, from [`crate::goroutine_id::reserve`].
    pub goroutine: u64,
    /// The mark that its state word begins with; 0 without an observer.
    pub mark: u32,
}

/// Where a goroutine comes from, as far as its creator has told.
#[derive(Clone, Copy, Default)]
pub struct Origin {
    /// What [`crate::thread_create::stack`] returned to the creator.
    pub created_by: Option<&'static ThreadBucket>,
    /// The number of the goroutine that creates it; 0 where that is not known.
    pub creator: u64,
    /// What it runs, and the line that started it.
    pub start: Option<Start>,
    /// What the creator has settled.
    pub birth: Option<Birth>,
}

/// Begins the current thread's goroutine. A thread that hooks have found before is the same goroutine still,
/// under the new name, unless its creator has settled another number. Nothing, if there is no memory. Go: `newproc`.
///
/// `name` is kept up to 64 bytes.
pub fn register(name: Option<&str>, origin: Origin) -> Registered {
    let goroutine = super::enter_thread(name.unwrap_or_default(), origin);
    Registered {
        goroutine: goroutine.map(|goroutine| (goroutine, goroutine.id())),
        _of_this_thread: PhantomData,
    }
}

impl Registered {
    /// The goroutine ends when its thread has run its last destructor; at once, if that will not be noticed.
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
