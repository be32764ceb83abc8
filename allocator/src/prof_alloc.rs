//! The `GlobalAlloc` wrapper: the fast paths.
//!
//! What every allocation pays is in this file: one compare of a countdown and of an epoch on the way
//! in, one compare of the address on the way out. All else is in [`crate::sampled`].

use core::alloc::{GlobalAlloc, Layout};
use std::alloc::System;

use rtprof_profiler::sampling;

use crate::{placement, pool, sampled};

/// An allocator that profiles another one.
///
/// ```
/// # use rtprof_allocator as rtprof;
/// #[global_allocator]
/// static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();
/// # fn main() {}
/// ```
///
/// On average one allocation in every [`mem_profile_rate`](rtprof_profiler::rate::mem_profile_rate)
/// bytes is sampled; its stack is recorded, and its free is found exactly. What is not sampled goes to
/// the inner allocator as it came: `calloc` stays `calloc`, growth in place stays in place.
///
/// It works from the program's first instruction to its last, in any thread, under any lock of the
/// program, and in a forked child. Sampling begins when the program's constructors run, before
/// `main`. Several instances in one program share one profile.
///
/// On platforms that rtprof does not record on, everything passes through.
///
/// A `ProfAlloc` inside another one would sample everything twice.
#[derive(Debug)]
pub struct ProfAlloc<A = System> {
    inner: A,
    /// Refers to the constructor, so that a linker that takes from an archive only what is referred
    /// to takes it too. Without it nothing would ever be sampled.
    _constructor: &'static extern "C" fn(),
}

impl<A: Default> Default for ProfAlloc<A> {
    fn default() -> Self {
        Self::new(A::default())
    }
}

impl ProfAlloc<System> {
    /// Profiles the system's allocator.
    pub const fn system() -> Self {
        Self::new(System)
    }
}

impl<A> ProfAlloc<A> {
    /// Profiles `inner`: jemalloc, mimalloc, or any other.
    pub const fn new(inner: A) -> Self {
        Self { inner, _constructor: &crate::init::CONSTRUCTOR }
    }

    /// The allocator inside.
    pub const fn inner(&self) -> &A {
        &self.inner
    }
}

// SAFETY: every block comes from the inner allocator, which keeps the contract, or from the pool or the
// workspace, whose places are as large and aligned as the layout asks, owned by one object at a time, and
// recognised by their address in each method. Nothing here unwinds.
unsafe impl<A: GlobalAlloc> GlobalAlloc for ProfAlloc<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if sampling::passes(layout.size()) {
            // SAFETY: the caller's contract, handed on.
            unsafe { self.inner.alloc(layout) }
        } else {
            // SAFETY: likewise.
            unsafe { sampled::alloc(&self.inner, layout) }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if sampling::passes(layout.size()) {
            // SAFETY: the caller's contract, handed on.
            unsafe { self.inner.alloc_zeroed(layout) }
        } else {
            // SAFETY: likewise.
            unsafe { sampled::alloc_zeroed(&self.inner, layout) }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // Each way ends in a tail call, so that none of them keeps a stack frame.
        if pool::contains(ptr) {
            sampled::free_pooled(ptr);
        } else if placement::is_large(layout) {
            // SAFETY: the block is not pooled, so it came from the inner allocator with this layout.
            unsafe { sampled::free_large(&self.inner, ptr, layout) }
        } else {
            // SAFETY: likewise.
            unsafe { self.inner.dealloc(ptr, layout) }
        }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if pool::contains(ptr) || placement::is_large(layout) || !sampling::passes(new_size) {
            // SAFETY: the caller's contract, handed on.
            unsafe { sampled::realloc(&self.inner, ptr, layout, new_size) }
        } else {
            // SAFETY: the block is not pooled, so it came from the inner allocator with this layout.
            unsafe { self.inner.realloc(ptr, layout, new_size) }
        }
    }
}
