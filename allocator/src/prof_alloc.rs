//! The `GlobalAlloc` wrapper: the fast paths.
//!
//! This file contains the cost of every allocation: one compare of a countdown and of an epoch at the allocation, one
//! compare of the address at the free. Everything else is in [`crate::sampled`].

use core::alloc::{GlobalAlloc, Layout};
use std::alloc::System;

use rtprof_profiler::sampling;

use crate::{placement, sampled, span};

/// An allocator that profiles another one.
///
/// ```
/// # use rtprof_allocator as rtprof;
/// #[global_allocator]
/// static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();
/// # fn main() {}
/// ```
///
/// On average one allocation in every [`mem_profile_rate`](rtprof_profiler::rate::mem_profile_rate) bytes is sampled;
/// its stack is recorded, and its free is found exactly. All other calls go unchanged to the inner allocator: `calloc`
/// stays `calloc`, growth in place stays in place.
///
/// It works from the program's first instruction to its last, in any thread, under any lock of the
/// program, and in a forked child. Sampling begins when the program's constructors run, before
/// `main`. Several instances in one program share one profile.
///
/// On platforms where rtprof does not record, everything passes through.
///
/// Do not put a `ProfAlloc` inside another one: some objects would be counted twice. The inner allocator must return
/// null when it fails, and must not panic: unwinding out of a global allocator is undefined behavior, with rtprof and
/// without.
#[derive(Debug)]
pub struct ProfAlloc<A = System> {
    inner: A,
    /// Refers to the constructor, so that a linker that takes only referenced objects from an archive includes it.
    /// Without the constructor nothing would ever be sampled.
    _constructor: &'static extern "C" fn(),
}

impl<A: Default> Default for ProfAlloc<A> {
    fn default() -> Self {
        Self::new(A::default())
    }
}

impl ProfAlloc<System> {
    /// Returns a profiling wrapper of the system's allocator.
    pub const fn system() -> Self {
        Self::new(System)
    }
}

impl<A> ProfAlloc<A> {
    /// Returns a profiling wrapper of `inner`: jemalloc, mimalloc, or any other allocator.
    pub const fn new(inner: A) -> Self {
        Self { inner, _constructor: &crate::init::CONSTRUCTOR }
    }

    /// Returns the inner allocator.
    pub const fn inner(&self) -> &A {
        &self.inner
    }
}

// SAFETY: every block comes from the inner allocator, which keeps the contract, or from the pool or the workspace.
// Their places are as large and as aligned as the layout asks, are owned by one object at a time, and are recognised by
// their address in each method. No method unwinds.
unsafe impl<A: GlobalAlloc> GlobalAlloc for ProfAlloc<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if sampling::passes(layout.size()) {
            // SAFETY: the caller keeps the contract of this method, which is also the inner allocator's.
            unsafe { self.inner.alloc(layout) }
        } else {
            // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
            unsafe { sampled::alloc(&self.inner, layout) }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if sampling::passes(layout.size()) {
            // SAFETY: the caller keeps the contract of this method, which is also the inner allocator's.
            unsafe { self.inner.alloc_zeroed(layout) }
        } else {
            // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
            unsafe { sampled::alloc_zeroed(&self.inner, layout) }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // Each branch ends in a tail call, so that none of them keeps a stack frame.
        if span::contains(ptr) {
            sampled::free_pooled(ptr);
        } else if placement::is_large(layout) {
            // SAFETY: the block is not pooled, so it came from the inner allocator with this layout.
            unsafe { sampled::free_large(&self.inner, ptr, layout) }
        } else {
            // SAFETY: the block is not pooled, so it came from the inner allocator with this layout.
            unsafe { self.inner.dealloc(ptr, layout) }
        }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if span::contains(ptr) || placement::is_large(layout) || !sampling::passes(new_size) {
            // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
            unsafe { sampled::realloc(&self.inner, ptr, layout, new_size) }
        } else {
            // SAFETY: the block is not pooled, so it came from the inner allocator with this layout.
            unsafe { self.inner.realloc(ptr, layout, new_size) }
        }
    }
}
