//! Threads whose creators show up in the threadcreate profile, and whose waits for each other show up in the block
//! profile.
//!
//! Drop-in for `std::thread`: `use rtprof::thread;` in place of `use std::thread;` is the only change. Types that have
//! nothing to record ([`ThreadId`], [`LocalKey`]) are std's. Behaviour is std's too: [`JoinHandle::join`] returns
//! panics, [`Builder::spawn`] returns errors of the system, and threads are named, numbered and parked as in std. What
//! std has deprecated (`sleep_ms`, `park_timeout_ms`) or not stabilised is left out, and [`JoinHandle`] and [`Thread`]
//! are rtprof's types, not std's.
//!
//! | | threadcreate profile | block profile | the goroutine says |
//! |---|---|---|---|
//! | [`spawn`], [`Builder::spawn`], [`Scope::spawn`] | the stack of the caller, if the thread was made | | |
//! | [`JoinHandle::join`], [`ScopedJoinHandle::join`] | | unless the thread had finished | `thread join` |
//! | the end of a [`scope`] | | unless its threads had finished | `thread join` |
//! | [`park`], [`park_timeout`] | | if it took a microsecond | `thread park` |
//! | [`sleep`] | | never, because no other thread makes it wait | `sleep` |
//!
//! A trace also shows the caller of [`Thread::unpark`] that ended a `park`.
//!
//! A new thread has the labels of its creator (`pprof::do_with`), as a goroutine has in Go.
//!
//! Threads that are started elsewhere (by std, a library, C) appear when they first use one of rtprof's locks, channels
//! or waits. Their creators are not known.

mod builder;
mod creator;
mod handle;
mod join;
mod park;
mod parked;
#[cfg(rtprof_interposed)]
pub(crate) mod recorded;
mod scope;
mod sleep;
mod spawn;
mod yields;

#[cfg(all(test, target_os = "linux"))]
mod tests;

pub use self::{
    builder::Builder,
    handle::{Thread, current},
    join::JoinHandle,
    park::{park, park_timeout},
    scope::{Scope, ScopedJoinHandle, scope},
    sleep::sleep,
    spawn::spawn,
    yields::yield_now,
};
pub use std::thread::{AccessError, LocalKey, Result, ThreadId, available_parallelism, panicking};
