//! The queue of buffers that no thread writes to any more: many put in, one reader takes all.
//!
//! A list whose head is swapped: who takes all takes what no other can reach any more, so no buffer can be in it
//! twice, and a head that was seen before is no danger. Buffers of one thread come out in the order in which they
//! were put in.

use core::ptr::null_mut;

use rtprof_runtime::primitive::{AtomicPtr, AtomicUsize, Ordering};

use crate::buffer::Buffer;

pub(crate) struct Queue {
    last: AtomicPtr<Buffer>,
    bytes: AtomicUsize,
}

impl Queue {
    rtprof_runtime::const_fn! {
        pub(crate) const fn new() -> Self {
            Self { last: AtomicPtr::new(null_mut()), bytes: AtomicUsize::new(0) }
        }
    }

    /// How many bytes the buffers in it are, or a few buffers more or less.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Puts in a buffer that is the caller's. For hooks.
    pub(crate) fn push(&self, buffer: &'static Buffer) {
        // Before it can be taken, so that the count never falls below zero.
        self.bytes.fetch_add(buffer.size(), Ordering::Relaxed);
        let pushed = (&raw const *buffer).cast_mut();
        // Release: the reader sees what was written to the buffer.
        let _ = self.last.fetch_update(Ordering::Release, Ordering::Relaxed, |last| {
            buffer.next.store(last, Ordering::Relaxed);
            Some(pushed)
        });
    }

    /// Takes all, the first one first, to the end of `into`.
    pub(crate) fn take_all(&self, into: &mut Vec<&'static Buffer>) {
        let begin = into.len();
        let mut at = self.last.swap(null_mut(), Ordering::Acquire);
        // SAFETY: buffers are slots, which live for ever.
        while let Some(buffer) = unsafe { at.as_ref() } {
            at = buffer.next.load(Ordering::Relaxed);
            into.push(buffer);
        }
        into[begin..].reverse();
        let taken = into[begin..].iter().map(|buffer| buffer.size()).sum();
        self.bytes.fetch_sub(taken, Ordering::Relaxed);
    }
}
