//! Async tasks as goroutines: who awaits what, at which line.
//!
//! A future that is wrapped by [`instrument`](instrument()) is a goroutine of its own in the goroutine profile, on any executor:
//!
//! ```
//! # use rtprof_hooks as rtprof;
//! use rtprof::task::Instrument;
//!
//! async fn serve() {}
//! # fn spawn(_: impl Future) {}
//! spawn(serve().instrument_named("server"));
//! ```
//!
//! | function | the task is polled by |
//! |---|---|
//! | [`instrument`](instrument()), [`Instrument::instrument`], [`Instrument::instrument_named`] | what the future is given to |
//! | `spawn`, `spawn_named`, `spawn_local`, `spawn_blocking`, `JoinSet` (feature `tokio`) | tokio's runtime |
//!
//! # What is seen
//!
//! A task that waits is in the profile with the async functions that await each other, and the line at which each does, down to
//! the leaf future that has suspended. Frames of the executor are not among them. A `select!` or `join!` has a stack for each
//! branch; the first one is that of what a `timeout` is around, and not of its timer. Stacks are noted from the first look at
//! goroutines until five minutes after the last ([`set_await_stacks`]); tasks that wait at the first look are polled once, for no
//! other reason, as the contract of [`Future::poll`] allows.
//!
//! Futures that a task polls with wakers of another make, as `FuturesUnordered`, `buffer_unordered` and a long `join_all` do, end
//! its stack: instrument them where they are pushed, and each is a task too.
//!
//! # Traces
//!
//! While an execution trace is recorded each task is a goroutine of it: created, running on the lane of the thread that polls it,
//! waiting for what it awaits, and woken by what has used its waker. [`wait`] says what it waits for where that cannot be seen.
//! Regions, logs and user tasks of async code belong to the async task, also across an await.
//!
//! # Labels
//!
//! A task has the labels of what made it, and keeps them when it moves between threads. They are current while it is polled, so
//! that samples of the heap, of locks and of the CPU have them too. [`do_with`] adds some for a future.
//!
//! # What it costs
//!
//! No allocation. A task whose future or wakers are leaked by the program keeps its slot of 256 bytes.

mod instrumented;
#[cfg(feature = "tokio")]
mod join_set;
mod labelled;
#[cfg(feature = "tokio")]
mod spawn;
mod tracked;
mod waits;
mod waker;

pub use instrumented::Instrumented;
#[cfg(feature = "tokio")]
pub use join_set::JoinSet;
pub use labelled::{Labelled, do_with};
pub use rtprof_runtime::snapshot::{leak_limit, set_leak_limit};
pub use rtprof_runtime::task::{AwaitStacks, await_stacks, set_await_stacks};
#[cfg(feature = "tokio")]
pub use spawn::{spawn, spawn_blocking, spawn_local, spawn_named};
pub use waits::{Waits, wait};

/// Makes `future` a task of its own in profiles. Go: the `go` statement.
#[track_caller]
pub fn instrument<F: Future>(future: F) -> Instrumented<F> {
    Instrumented::new("", future)
}

/// Makes futures tasks of their own in profiles.
pub trait Instrument: Future + Sized {
    /// As [`instrument`](instrument()).
    #[track_caller]
    fn instrument(self) -> Instrumented<Self> {
        Instrumented::new("", self)
    }

    /// Likewise, under a name: at most 64 bytes of it are kept.
    #[track_caller]
    fn instrument_named(self, name: &str) -> Instrumented<Self> {
        Instrumented::new(name, self)
    }
}

impl<F: Future> Instrument for F {}
