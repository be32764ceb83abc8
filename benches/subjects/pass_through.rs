//! A global allocator that only calls System: what being a wrapper costs before it does anything.

use std::alloc::{GlobalAlloc, Layout, System};

struct PassThrough;

// SAFETY: every call goes to System unchanged.
unsafe impl GlobalAlloc for PassThrough {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise about `ptr` and `layout` is passed on, and `ptr` came from System.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`, and the caller vouches for `new_size`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOC: PassThrough = PassThrough;

fn main() {
    rtprof_benches::subject::run(&rtprof_benches::subject::Controls::NONE);
}
