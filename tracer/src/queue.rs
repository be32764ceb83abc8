//! The queue of buffers that no thread writes to any more: many threads push, one drain takes all.
//!
//! It is a list whose head is swapped. The drain takes all buffers with one swap, after which no other thread can
//! reach them, so no buffer can be in the queue twice, and ABA on the head is harmless. Buffers of one thread come out
//! in the order in which they were pushed.

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

    /// Returns the bytes of the buffers in the queue, give or take a few buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Pushes a buffer that the caller owns. Safe to call in a hook.
    pub(crate) fn push(&self, buffer: &'static Buffer) {
        // Added before the buffer can be taken, so that the count never falls below zero.
        self.bytes.fetch_add(buffer.size(), Ordering::Relaxed);
        let pushed = (&raw const *buffer).cast_mut();
        // Release: the drain sees the writes to the buffer.
        let _ = self.last.fetch_update(Ordering::Release, Ordering::Relaxed, |last| {
            buffer.next.store(last, Ordering::Relaxed);
            Some(pushed)
        });
    }

    /// Takes all buffers and appends them to `into`, in the order in which they were pushed.
    pub(crate) fn take_all(&self, into: &mut Vec<&'static Buffer>) {
        let begin = into.len();
        let mut at = self.last.swap(null_mut(), Ordering::Acquire);
        // SAFETY: buffers are slots, which are never freed.
        while let Some(buffer) = unsafe { at.as_ref() } {
            at = buffer.next.load(Ordering::Relaxed);
            into.push(buffer);
        }
        into[begin..].reverse();
        let taken = into[begin..].iter().map(|buffer| buffer.size()).sum();
        self.bytes.fetch_sub(taken, Ordering::Relaxed);
    }
}
