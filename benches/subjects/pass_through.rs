//! A global allocator that only calls System: the cost of a wrapper that does nothing.

use std::alloc::{GlobalAlloc, Layout, System};

struct PassThrough;

// SAFETY: every call goes to System unchanged.
unsafe impl GlobalAlloc for PassThrough {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller passes a `layout` that is valid for `alloc`, as `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller passes a `ptr` from this allocator, and so from System, with its `layout`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller passes a `layout` that is valid for `alloc`, as `System` requires.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller passes a `ptr` from this allocator, and so from System, with its `layout`, and a valid
        // `new_size`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOC: PassThrough = PassThrough;

fn main() {
    rtprof_benches::subject::run(&rtprof_benches::subject::Controls::NONE);
}
