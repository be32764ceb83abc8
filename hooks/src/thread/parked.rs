//! Which threads are parked while a trace is recorded, so that [`Thread::unpark`](super::Thread::unpark) can tell the trace
//! whom it wakes.
//!
//! Std keeps the tokens of `park`, and a handle of std names a thread by its id alone. So a thread that parks lists
//! itself here under that id, with its goroutine, until it runs again.
//!
//! # Locks
//!
//! One for each shard of the list, held for a search in a short vector. A thread that has one takes no other lock but
//! the tracer's turn. A signal handler that has interrupted a thread here finds that out, and does without.

use core::cell::Cell;
use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;
use std::thread::ThreadId;

use rtprof_profiler::fork_safe::ForkMutex;
use rtprof_profiler::goroutine::{self, Goroutine};
use rtprof_profiler::sampling;
use rtprof_tracer::{is_enabled, states};

struct Parked {
    thread: ThreadId,
    goroutine: &'static Goroutine,
    /// In a forked child the slot may have become another goroutine's.
    id: u64,
}

static SHARDS: [ForkMutex<Vec<Parked>>; 64] = [const { ForkMutex::new(Vec::new()) }; 64];

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` on the shard of a thread. Not in a signal handler that has interrupted this function, nor in a forked child
/// whose parent was changing the shard.
fn with_shard(thread: ThreadId, f: impl FnOnce(&mut Vec<Parked>)) {
    if IS_INSIDE.replace(true) {
        return;
    }
    let mut hasher = DefaultHasher::new();
    thread.hash(&mut hasher);
    let shard = &SHARDS[hasher.finish() as usize % SHARDS.len()];
    if let Some(mut parked) = shard.lock() {
        f(&mut parked);
    }
    IS_INSIDE.set(false);
}

/// The current thread is in the list, until this is dropped.
pub(super) struct Listed(Option<ThreadId>);

/// Lists the current thread, which waits. While nothing is recorded this is one load.
#[inline]
pub(super) fn list() -> Listed {
    Listed(if is_enabled() { list_current() } else { None })
}

#[cold]
#[allow(clippy::disallowed_methods, reason = "the id of a thread that parks, as std is about to do")]
fn list_current() -> Option<ThreadId> {
    let goroutine = goroutine::known()?;
    let thread = std::thread::current().id();
    with_shard(thread, |parked| {
        let _untracked = sampling::untracked();
        parked.push(Parked { thread, goroutine, id: goroutine.id() });
    });
    Some(thread)
}

impl Drop for Listed {
    #[inline]
    fn drop(&mut self) {
        if let Some(thread) = self.0 {
            unlist(thread);
        }
    }
}

#[cold]
fn unlist(thread: ThreadId) {
    with_shard(thread, |parked| parked.retain(|other| other.thread != thread));
}

/// Tells the trace that the current thread wakes this one, if it is parked.
#[inline]
pub(super) fn wake(thread: impl FnOnce() -> ThreadId) {
    if is_enabled() {
        wake_listed(thread());
    }
}

#[cold]
fn wake_listed(thread: ThreadId) {
    with_shard(thread, |parked| {
        // It cannot end while it is in the list.
        if let Some(found) = parked.iter().find(|parked| parked.thread == thread)
            && found.goroutine.id() == found.id
        {
            states::unblock(found.goroutine);
        }
    });
}
