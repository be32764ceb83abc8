//! A thread with nothing set.

use super::{Builder, JoinHandle};

/// Starts a thread that runs `f`. As `std::thread::spawn`. Go: the `go` statement.
///
/// # Panics
/// If the system refuses a thread; [`Builder::spawn`] returns that as an error.
#[inline(always)]
#[track_caller]
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().spawn(f).expect("failed to spawn thread")
}
