//! Threads that borrow: all end before the scope does.

use core::fmt;
use std::thread::{Result, Thread};

use super::Builder;
use super::join::join;
use super::possible_wait::PossibleWaitGuard;
use crate::wait::WaitReason;

/// A scope for threads to be spawned in. As `std::thread::Scope`.
#[repr(transparent)]
pub struct Scope<'scope, 'env: 'scope>(std::thread::Scope<'scope, 'env>);

/// A thread of a scope, to be waited for. As `std::thread::ScopedJoinHandle`.
pub struct ScopedJoinHandle<'scope, T>(pub(super) std::thread::ScopedJoinHandle<'scope, T>);

/// Runs `f` with a scope, and returns what it returned when all threads of the scope have ended. As
/// `std::thread::scope`.
///
/// What is left to wait for when `f` has returned is a wait of the block profile.
///
/// # Panics
/// With what `f` panicked with; or if a thread has panicked that was not joined.
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let mut wait = None;
    let result = std::thread::scope(|scope| {
        let _begins = BeginsWait(&mut wait);
        f(Scope::of(scope))
    });
    if let Some(wait) = wait {
        wait.end();
    }
    result
}

/// Begins the wait at the end of a scope's function, by a panic too.
struct BeginsWait<'a>(&'a mut Option<PossibleWaitGuard>);

impl Drop for BeginsWait<'_> {
    fn drop(&mut self) {
        *self.0 = Some(PossibleWaitGuard::begin(WaitReason::Join));
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    fn of<'a>(scope: &'a std::thread::Scope<'scope, 'env>) -> &'a Self {
        // SAFETY: `Self` has the layout of what it wraps, and promises nothing more of it.
        unsafe { &*(&raw const *scope).cast() }
    }

    pub(super) fn as_std(&self) -> &std::thread::Scope<'scope, 'env> {
        &self.0
    }

    /// Starts a thread of this scope that runs `f`.
    ///
    /// # Panics
    /// If the system refuses a thread; [`Builder::spawn_scoped`] returns that as an error.
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
        self.0.thread()
    }

    /// Waits for the thread to end, and returns what it returned, or what it panicked with. A wait of the
    /// block profile, unless the thread had finished.
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
        self.0.fmt(f)
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// As with std, a scope cannot be taken for a shorter one, whose end its threads would outlive. What compiles:
///
/// ```
/// use rtprof_hooks::thread::Scope;
/// fn same<'scope, 'env>(scope: &'scope Scope<'scope, 'env>) -> &'scope Scope<'scope, 'env> {
///     scope
/// }
/// ```
///
/// What does not:
///
/// ```compile_fail
/// use rtprof_hooks::thread::Scope;
/// fn shorter<'a, 'scope: 'a, 'env: 'scope>(scope: &'a Scope<'scope, 'env>) -> &'a Scope<'a, 'env> {
///     scope
/// }
/// ```
///
/// ```compile_fail
/// use rtprof_hooks::thread::Scope;
/// fn shorter<'a, 'env: 'a, 'long: 'env>(scope: &'a Scope<'a, 'long>) -> &'a Scope<'a, 'env> {
///     scope
/// }
/// ```
///
/// Nor may a thread borrow what ends before the scope:
///
/// ```compile_fail
/// rtprof_hooks::thread::scope(|scope| {
///     let inside = String::from("ends too early");
///     scope.spawn(|| println!("{inside}"));
/// });
/// ```
#[cfg(doctest)]
pub struct AsStrictAsStd;
