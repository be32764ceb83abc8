//! Async tasks as goroutines: who awaits what, at which line.
//!
//! A future that is wrapped by [`instrument`](instrument()) is a goroutine in the goroutine profile, on any executor:
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
//! | [`instrument`](instrument()), [`Instrument::instrument`], [`Instrument::instrument_named`] | the executor of the future |
//! | `spawn`, `spawn_named`, `spawn_local`, `spawn_blocking`, `JoinSet` (feature `tokio`) | tokio's runtime |
//!
//! # What is seen
//!
//! The profile shows a waiting task with the async functions that await each other, and the line at which each does,
//! down to the leaf future that has suspended. Frames of the executor are left out. A `select!` or `join!` has a stack
//! for each branch. For a `timeout` the stack of the inner future comes first, not the stack of the timer. Tasks note
//! their stacks from the first goroutine snapshot until five minutes after the last one ([`set_await_stacks`]). Tasks
//! that already wait at the first snapshot are polled once so that they note their stacks, as the contract of
//! [`Future::poll`] allows.
//!
//! The stack of a task ends at futures that it polls with other wakers, as `FuturesUnordered`, `buffer_unordered` and a
//! long `join_all` do. Instrument such futures where they are pushed; then each is a task too.
//!
//! # Traces
//!
//! In an execution trace each task is a goroutine: it is created, runs on the lane of the thread that polls it, waits
//! for what it awaits, and is woken by the goroutine that uses its waker. [`wait`] names the reason of a wait where
//! rtprof cannot see it. Regions, logs and user tasks of async code belong to the async task, also across an await.
//!
//! # Labels
//!
//! A task has the labels of its creator, and keeps them when it moves between threads. They are current while it is
//! polled, so that samples of the heap, of locks and of the CPU have them too. [`do_with`] adds labels to a future.
//!
//! # What it costs
//!
//! No allocation. If the program leaks a task's future or wakers, the task's slot of 256 bytes stays in use.

mod instrumented;
#[cfg(feature = "tokio")]
mod join_set;
mod labelled;
#[cfg(feature = "tokio")]
mod live;
mod program_type;
#[cfg(feature = "tokio")]
mod spawn;
mod tracked;
mod waits;
pub(crate) mod waker;
#[cfg(feature = "tokio")]
mod workers;

pub use instrumented::Instrumented;
#[cfg(feature = "tokio")]
pub use join_set::JoinSet;
pub use labelled::{Labelled, do_with};
pub use rtprof_runtime::snapshot::{leak_limit, set_leak_limit};
pub use rtprof_runtime::task::{AwaitStacks, await_stacks, set_await_stacks};
#[cfg(feature = "tokio")]
pub use spawn::{spawn, spawn_blocking, spawn_local, spawn_named};
pub use waits::{Waits, wait};
#[cfg(feature = "tokio")]
pub use workers::observe_workers;

/// Makes `future` a task in profiles. Go: the `go` statement.
#[track_caller]
pub fn instrument<F: Future>(future: F) -> Instrumented<F> {
    Instrumented::new("", future)
}

/// Makes futures tasks in profiles.
pub trait Instrument: Future + Sized {
    /// As [`instrument`](instrument()).
    #[track_caller]
    fn instrument(self) -> Instrumented<Self> {
        Instrumented::new("", self)
    }

    /// As [`instrument`](Self::instrument), under a name: at most 64 bytes of it are kept.
    #[track_caller]
    fn instrument_named(self, name: &str) -> Instrumented<Self> {
        Instrumented::new(name, self)
    }
}

impl<F: Future> Instrument for F {}
