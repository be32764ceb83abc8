//! Spawning on tokio's runtimes.

use tokio::task::{self, JoinHandle};

use rtprof_runtime::goroutine::start::Start;

use super::Instrumented;
use super::tracked::Tracked;

/// Spawns a task that the goroutine profile shows. As `tokio::spawn`. Go: the `go` statement.
///
/// # Panics
/// Outside a runtime, as `tokio::spawn`.
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    task::spawn(Instrumented::new("", future))
}

/// As [`spawn`], under a name: at most 64 bytes of it are kept.
///
/// # Panics
/// Outside a runtime, as `tokio::spawn`.
#[track_caller]
pub fn spawn_named<F>(name: impl AsRef<str>, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    task::spawn(Instrumented::new(name.as_ref(), future))
}

/// Spawns a task that stays on the current thread. As `tokio::task::spawn_local`.
///
/// # Panics
/// Outside a `LocalSet`, as `tokio::task::spawn_local`.
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    task::spawn_local(Instrumented::new("", future))
}

/// Runs `f` where it may block. As `tokio::task::spawn_blocking`. The goroutine profile shows it as a task, which is
/// runnable until a thread begins it, and is polled once.
///
/// # Panics
/// Outside a runtime, as `tokio::task::spawn_blocking`.
#[track_caller]
pub fn spawn_blocking<F, R>(f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    task::spawn_blocking(blocking(f))
}

/// Wraps `f` into a task.
#[track_caller]
pub(super) fn blocking<F: FnOnce() -> R, R>(f: F) -> impl FnOnce() -> R {
    let task = Tracked::begin("", Start::of_blocking::<F>());
    move || match task {
        Some(task) => task.run(f),
        None => f(),
    }
}
