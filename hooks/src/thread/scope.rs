//! Threads that borrow: all end before the scope does.

use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::io;
use std::thread::Result;

use super::creator::Creator;
use super::join::join;
use super::{Builder, Thread};
use crate::frame;
use crate::inner::wait::{SavedFrame, Wait, WaitReason};

/// A scope for threads to be spawned in. As `std::thread::Scope`.
pub struct Scope<'scope, 'env: 'scope> {
    std: &'scope std::thread::Scope<'scope, 'env>,
    /// Threads whose functions have not returned. std's count is private.
    running: AtomicUsize,
}

/// A handle to wait for a thread of a scope. As `std::thread::ScopedJoinHandle`.
pub struct ScopedJoinHandle<'scope, T>(std::thread::ScopedJoinHandle<'scope, T>);

/// Runs `f` with a scope, and returns its result when all threads of the scope have ended. As `std::thread::scope`.
///
/// If threads are still running when `f` has returned, the block profile counts a wait.
///
/// # Panics
/// With `f`'s panic if `f` panics; also if a thread that was not joined has panicked.
#[inline(always)]
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    // The threads borrow it for longer than the closure below runs, so it is a local of this function.
    let mut place = MaybeUninit::uninit();
    let place = place.as_mut_ptr();
    let mut wait = WaitGuard(SavedFrame::here(), None);
    let result = std::thread::scope(|std| {
        // SAFETY: `place` outlives the call of std's `scope`, which returns when all threads have ended, and no
        // reference that is bound to `'scope` can outlive that.
        let scope = unsafe { Scope::put(place, std) };
        let _left = LeftGuard(scope, &mut wait);
        f(scope)
    });
    wait.end();
    result
}

/// The wait at the end of a scope. Also ends when it is dropped: std panics after waiting, if a thread has panicked.
struct WaitGuard(SavedFrame, Option<Wait>);

impl WaitGuard {
    /// Ends the wait. Inlined into the program's function, whose frame must be on the stack when it is captured.
    #[inline(always)]
    fn end(&mut self) {
        if let Some(wait) = self.1.take() {
            wait.end_now();
            frame::keep();
        }
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.end();
    }
}

/// Begins the wait when a scope's function ends, also by a panic.
struct LeftGuard<'a, 'scope, 'env>(&'a Scope<'scope, 'env>, &'a mut WaitGuard);

impl Drop for LeftGuard<'_, '_, '_> {
    fn drop(&mut self) {
        // Relaxed: a thread that is ending now needs no wait worth recording.
        if self.0.running.load(Ordering::Relaxed) > 0 {
            // The frame of the scope stays on the stack.
            self.1.1 = Some(Wait::begin_in(self.1.0, WaitReason::Join));
        }
    }
}

/// Counts a thread's function as returned when it is dropped.
struct RunningGuard<'a>(&'a AtomicUsize);

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// # Safety
    /// The caller owns `place`, which stays valid for as long as the result is used.
    unsafe fn put(
        place: *mut Scope<'static, 'static>,
        std: &'scope std::thread::Scope<'scope, 'env>,
    ) -> &'scope Self {
        // Types that differ only in lifetimes have the same layout. Nothing in it needs to be dropped.
        let place = place.cast::<Self>();
        // SAFETY: the caller owns `place`, and it stays valid.
        unsafe {
            place.write(Self { std, running: AtomicUsize::new(0) });
            &*place
        }
    }

    #[inline(always)]
    pub(super) fn start<F, T>(
        &'scope self,
        builder: std::thread::Builder,
        creator: Creator,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        // Before the thread can end. If the thread is not made, its function is dropped, and the guard with it.
        self.running.fetch_add(1, Ordering::Relaxed);
        let running = RunningGuard(&self.running);
        let body = creator.around(f);
        let thread = builder.spawn_scoped(self.std, move || {
            let _running = running;
            body()
        })?;
        Ok(ScopedJoinHandle(thread))
    }

    /// Starts a thread of this scope that runs `f`.
    ///
    /// # Panics
    /// If the system refuses a thread; [`Builder::spawn_scoped`] returns that as an error.
    #[inline(always)]
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        Builder::new().spawn_scoped(self, f).expect("failed to spawn thread")
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    /// The thread itself.
    #[must_use]
    pub fn thread(&self) -> &Thread {
        Thread::of(self.0.thread())
    }

    /// Waits for the thread to end, and returns its result, or the payload of its panic. The block profile counts a
    /// wait, unless the thread had finished.
    #[inline(always)]
    pub fn join(self) -> Result<T> {
        join(self.0.is_finished(), || self.0.join())
    }

    /// Whether the thread has run to its end, so that [`ScopedJoinHandle::join`] would not wait for long.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.std.fmt(f)
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// As with std, a scope cannot be used as a shorter one, which its threads would outlive. This compiles:
///
/// ```
/// # use rtprof_hooks as rtprof;
/// use rtprof::thread::Scope;
/// fn same<'scope, 'env>(scope: &'scope Scope<'scope, 'env>) -> &'scope Scope<'scope, 'env> {
///     scope
/// }
/// ```
///
/// This does not:
///
/// ```compile_fail
/// # use rtprof_hooks as rtprof;
/// use rtprof::thread::Scope;
/// fn shorter<'a, 'scope: 'a, 'env: 'scope>(scope: &'a Scope<'scope, 'env>) -> &'a Scope<'a, 'env> {
///     scope
/// }
/// ```
///
/// ```compile_fail
/// # use rtprof_hooks as rtprof;
/// use rtprof::thread::Scope;
/// fn shorter<'a, 'env: 'a, 'long: 'env>(scope: &'a Scope<'a, 'long>) -> &'a Scope<'a, 'env> {
///     scope
/// }
/// ```
///
/// A thread must not borrow data that ends before the scope:
///
/// ```compile_fail
/// rtprof_hooks::thread::scope(|scope| {
///     let inside = String::from("ends too early");
///     scope.spawn(|| println!("{inside}"));
/// });
/// ```
#[cfg(doctest)]
pub struct AsStrictAsStd;
