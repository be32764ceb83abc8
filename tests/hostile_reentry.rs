//! An allocation inside a hook aborts.
//!
//! A hook that allocates deadlocks or overflows the stack, but only on the rare path that does it. So an allocator
//! around ours aborts at any call to the global allocator while this thread is already inside one. A broad workload
//! runs through it, with every allocation sampled, in both capture modes.
#![cfg(feature = "pprof")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rtprof::StackMode;
use test_support::child;
use test_support::inner::INNER;
use test_support::profile::Profile;
use test_support::workload;

/// An allocator that aborts when a thread enters it twice.
struct Once<A>(A);

/// An inner allocator that can be made to break the rule.
struct Obedient;

#[global_allocator]
static ALLOC: Once<rtprof::ProfAlloc<Obedient>> = Once(rtprof::ProfAlloc::new(Obedient));

static NAUGHTY: AtomicBool = AtomicBool::new(false);

const COMPLAINT: &str = "the global allocator was called from inside itself\n";

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

fn once<T>(call: impl FnOnce() -> T) -> T {
    if INSIDE.replace(true) {
        // SAFETY: a pointer and length of a constant; nothing here allocates.
        unsafe { libc::write(2, COMPLAINT.as_ptr().cast(), COMPLAINT.len()) };
        std::process::abort();
    }
    let result = call();
    INSIDE.set(false);
    result
}

// SAFETY: every call is passed on unchanged.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Once<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller passes a `layout` that is valid for the inner allocator.
        once(|| unsafe { self.0.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller passes a `layout` that is valid for the inner allocator.
        once(|| unsafe { self.0.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller passes a pointer from the inner allocator with its layout, and a valid size.
        once(|| unsafe { self.0.realloc(pointer, layout, size) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller passes a pointer from the inner allocator with its layout.
        once(|| unsafe { self.0.dealloc(pointer, layout) })
    }
}

// SAFETY: every call is passed on to the inner allocator unchanged.
unsafe impl GlobalAlloc for Obedient {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if NAUGHTY.load(Relaxed) {
            black_box(Box::new(1));
        }
        // SAFETY: the caller passes a `layout` that is valid for the inner allocator.
        unsafe { INNER.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller passes a pointer from the inner allocator with its layout.
        unsafe { INNER.dealloc(pointer, layout) }
    }
}

/// Tests the detector itself: a wrapper that never aborts would pass all tests below.
#[test]
fn detector_detects() {
    child::aborts("detector_detects", COMPLAINT, || {
        NAUGHTY.store(true, Relaxed);
        black_box(vec![1_u8; 1 << 20]);
    });
}

/// Runs the workload with everything else that reaches the hooks: cuts, cycles, exports, changes of the rate.
fn run(mode: StackMode) {
    rtprof::set_stack_mode(mode);
    for rate in [1, 2, 1 << 12, 0, 1] {
        rtprof::set_mem_profile_rate(rate);
        workload::every_kind();
        rtprof::advance_cycle();
        workload::every_kind();
        rtprof::flush_cycle();
        black_box(rtprof::mem_profile(true));
        rtprof::collector::cycle();
        rtprof::collector::sweep(|sweep| {
            workload::every_kind();
            sweep.swept(1 << 20);
        });
        rtprof::collector::post_sweep();
    }
    black_box(Profile::heap());
}

/// Runs in a build without frame pointers too, where the stacks are merely short.
#[test]
fn frame_pointers() {
    child::isolated("frame_pointers", || run(StackMode::FramePointers));
}

#[test]
fn unwind() {
    child::isolated("unwind", || {
        run(StackMode::Unwind);
        let sampled = Profile::heap().samples_of("workload::every_kind");
        assert!(!sampled.is_empty(), "what was not sampled has proved nothing");
    });
}

#[test]
fn auto() {
    child::isolated("auto", || run(StackMode::Auto));
}

/// Printing every malloc and free goes through the same hooks.
#[test]
fn alloc_free_trace() {
    child::isolated("alloc_free_trace", || {
        rtprof::set_mem_profile_rate(1);
        rtprof::set_alloc_free_trace(true);
        black_box((0..20).map(|number| vec![number; 10]).collect::<Vec<_>>());
        rtprof::collector::cycle();
        rtprof::set_alloc_free_trace(false);
    });
}
