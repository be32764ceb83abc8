//! Threads with a name or a stack size.
//!
//! The functions that start a thread are inlined into the program's function. If they were that function's last call,
//! the compiler would make it a jump, and the creator's frame would be missing in the stack.

use std::io;

use super::creator::Creator;
use super::{JoinHandle, Scope, ScopedJoinHandle};

/// Sets up a thread before it is started. As `std::thread::Builder`.
#[must_use = "must eventually spawn the thread"]
#[derive(Debug)]
pub struct Builder {
    std: std::thread::Builder,
    /// A copy, because std's builder does not return its name.
    name: String,
}

impl Builder {
    /// A thread without a name, with std's stack size.
    #[expect(clippy::new_without_default, reason = "std's has none either")]
    pub fn new() -> Self {
        Self { std: std::thread::Builder::new(), name: String::new() }
    }

    /// Names the thread. Panics show the name, the kernel keeps 15 bytes of it, and the goroutine keeps 64 bytes of it.
    pub fn name(self, name: String) -> Self {
        Self { std: self.std.name(name.clone()), name }
    }

    /// The least size of the thread's stack, in bytes.
    pub fn stack_size(self, size: usize) -> Self {
        Self { std: self.std.stack_size(size), name: self.name }
    }

    /// Starts a thread that runs `f`.
    ///
    /// # Errors
    /// If the system refuses it: too many threads, no memory for the stack. Nothing is recorded then.
    ///
    /// # Panics
    /// If a name was set that contains a null byte.
    #[inline(always)]
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let creator = Creator::here::<F>(&self.name);
        creator.create(|| self.std.spawn(creator.around(f))).map(JoinHandle)
    }

    /// As [`Builder::spawn`], for an `f` that borrows data which is not `'static`.
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    ///
    /// # Panics
    /// As [`Builder::spawn`].
    ///
    /// # Safety
    /// The thread is joined before any data ends that `f` or `T` borrows. Or both are `'static`, except for types that
    /// are not used after their lifetime.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn spawn_unchecked<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let creator = Creator::here::<F>(&self.name);
        // SAFETY: the closure around `f` adds only static data, so what the caller guarantees for `f` holds for the
        // closure.
        creator.create(|| unsafe { self.std.spawn_unchecked(creator.around(f)) }).map(JoinHandle)
    }

    /// Starts a thread that belongs to a [`scope`](super::scope).
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    ///
    /// # Panics
    /// As [`Builder::spawn`].
    #[inline(always)]
    #[track_caller]
    pub fn spawn_scoped<'scope, 'env, F, T>(
        self,
        scope: &'scope Scope<'scope, 'env>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let creator = Creator::here::<F>(&self.name);
        creator.create(|| scope.start(self.std, creator, f))
    }
}
