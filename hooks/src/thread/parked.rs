//! A map from threads to goroutines while a trace is recorded, so that [`Thread::unpark`](super::Thread::unpark) can
//! record which goroutine it wakes.
//!
//! std keeps the tokens of `park`, and its handle gives access to the unique number of a thread only. So a thread that
//! parks notes its number in its goroutine's slot, and the slot in a table:
//!
//! ```text
//!   park     slot.thread_number = n,  TABLE[n % 4096] = slot,  then the goroutine waits
//!   unpark   slot = TABLE[n % 4096];  if it waits, by a park, and its thread_number is n: it can run
//! ```
//!
//! The last step is a compare-and-swap of the goroutine's state, which was read before the number. It fails if the
//! goroutine runs again, or has ended and another one uses its slot. If the numbers of two threads collide in the
//! table, the trace has no waker for the thread that parked first, as with std's `unpark`.
//!
//! # Locks
//!
//! None.

use core::hash::{Hash, Hasher};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::thread::ThreadId;

use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::goroutine::{self, Goroutine};
use rtprof_tracer::{is_enabled, states};

static TABLE: [AtomicPtr<Goroutine>; 4096] = [const { AtomicPtr::new(null_mut()) }; 4096];

/// A hasher that takes the number out of a [`ThreadId`], which has no accessor for it.
struct Number(u64);

impl Hasher for Number {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn number_of(thread: ThreadId) -> u64 {
    let mut number = Number(0);
    thread.hash(&mut number);
    number.finish()
}

fn place_of(number: u64) -> &'static AtomicPtr<Goroutine> {
    &TABLE[number as usize % TABLE.len()]
}

/// Notes the current thread, which is about to park. While nothing is recorded this is one load.
#[inline]
pub(super) fn note() {
    if is_enabled() {
        note_current();
    }
}

#[cold]
#[allow(clippy::disallowed_methods, reason = "the number of a thread that parks, as std is about to do")]
fn note_current() {
    if let Some(goroutine) = goroutine::current() {
        let number = number_of(std::thread::current().id());
        goroutine.set_thread_number(number);
        place_of(number).store((&raw const *goroutine).cast_mut(), Ordering::Release);
    }
}

/// Records that the current thread wakes this one, if it is parked.
#[inline]
pub(super) fn wake(thread: impl FnOnce() -> ThreadId) {
    if is_enabled() {
        wake_noted(number_of(thread()));
    }
}

#[cold]
fn wake_noted(number: u64) {
    // SAFETY: null, or from a reference to a slot, which is never freed.
    if let Some(goroutine) = unsafe { place_of(number).load(Ordering::Acquire).as_ref() } {
        let is_parked =
            |state| state == State::Waiting(WaitReason::Park) && goroutine.thread_number() == number;
        states::unblock_if(goroutine, is_parked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_threads() {
        let id = || std::thread::spawn(|| ()).thread().id();
        let (one, other) = (id(), id());
        assert_eq!(number_of(one), number_of(one));
        assert_ne!(number_of(one), number_of(other));
        // `ThreadId(7)`
        assert_eq!(format!("{one:?}"), format!("ThreadId({})", number_of(one)));
    }
}
