//! A set of tokio tasks, whose results are awaited in the order in which they end.

use core::fmt;
use core::ops::{Deref, DerefMut};

use tokio::runtime::Handle;
use tokio::task::{AbortHandle, LocalSet};

use super::Instrumented;
use super::spawn::blocking;

/// As `tokio::task::JoinSet`, with tasks that the goroutine profile shows. All other methods are tokio's, by [`Deref`].
pub struct JoinSet<T> {
    tokio: tokio::task::JoinSet<T>,
}

impl<T> JoinSet<T> {
    /// An empty set.
    pub fn new() -> Self {
        Self { tokio: tokio::task::JoinSet::new() }
    }
}

impl<T: 'static> JoinSet<T> {
    /// Spawns a task of the set.
    ///
    /// # Panics
    /// Outside a runtime, as tokio's.
    #[track_caller]
    pub fn spawn<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.tokio.spawn(Instrumented::new("", future))
    }

    /// As [`JoinSet::spawn`], under a name: at most 64 bytes of it are kept.
    ///
    /// # Panics
    /// Outside a runtime, as tokio's.
    #[track_caller]
    pub fn spawn_named<F>(&mut self, name: impl AsRef<str>, future: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.tokio.spawn(Instrumented::new(name.as_ref(), future))
    }

    /// As [`JoinSet::spawn`], on the runtime of `handle`.
    #[track_caller]
    pub fn spawn_on<F>(&mut self, future: F, handle: &Handle) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.tokio.spawn_on(Instrumented::new("", future), handle)
    }

    /// Spawns a task of the set that stays on the current thread.
    ///
    /// # Panics
    /// Outside a `LocalSet`, as tokio's.
    #[track_caller]
    pub fn spawn_local<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        self.tokio.spawn_local(Instrumented::new("", future))
    }

    /// As [`JoinSet::spawn_local`], in `local_set`, which may not be running yet.
    #[track_caller]
    pub fn spawn_local_on<F>(&mut self, future: F, local_set: &LocalSet) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        self.tokio.spawn_local_on(Instrumented::new("", future), local_set)
    }

    /// Runs `f` where it may block, as [`spawn_blocking`](super::spawn_blocking).
    ///
    /// # Panics
    /// Outside a runtime, as tokio's.
    #[track_caller]
    pub fn spawn_blocking<F>(&mut self, f: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        self.tokio.spawn_blocking(blocking(f))
    }

    /// As [`JoinSet::spawn_blocking`], on the runtime of `handle`.
    #[track_caller]
    pub fn spawn_blocking_on<F>(&mut self, f: F, handle: &Handle) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        self.tokio.spawn_blocking_on(blocking(f), handle)
    }

    /// Awaits all tasks, and returns their results in the order in which they ended.
    ///
    /// # Panics
    /// As tokio's: with the panic of a task that has panicked, and if a task was aborted.
    pub async fn join_all(mut self) -> Vec<T> {
        // tokio has this method since 1.40.
        let mut results = Vec::with_capacity(self.tokio.len());
        while let Some(ended) = self.tokio.join_next().await {
            results.push(ended.unwrap_or_else(|error| match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(aborted) => panic!("{aborted}"),
            }));
        }
        results
    }
}

impl<T> Deref for JoinSet<T> {
    type Target = tokio::task::JoinSet<T>;

    fn deref(&self) -> &Self::Target {
        &self.tokio
    }
}

impl<T> DerefMut for JoinSet<T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.tokio
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tokio.fmt(f)
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, F> FromIterator<F> for JoinSet<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    #[track_caller]
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> Self {
        let mut set = Self::new();
        for future in futures {
            set.spawn(future);
        }
        set
    }
}
