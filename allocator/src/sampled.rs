//! The slow paths: sampled allocations, and frees and reallocations of sampled objects.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{copy_nonoverlapping, null_mut};

use rtprof_profiler::bucket::MemBucket;
use rtprof_profiler::cycle::Cycle;
use rtprof_profiler::mem::{self, Sample};
use rtprof_profiler::sampling::{self, Decision, DueSample};
use rtprof_runtime::counters::{CountedProfile, Counter};
use rtprof_runtime::hook::{self, Hook};
use rtprof_tracer::heap::heap_changed;

use crate::large::{Held, LargeTable};
use crate::placement::{self, class_of};
use crate::{alloc_free_trace, collector, pool, span, workspace};

rtprof_runtime::lazy_under_loom! {
    static LARGE: LargeTable = LargeTable::new();
}

/// The contents that the inner allocator must provide.
#[derive(Clone, Copy, PartialEq)]
enum Contents {
    Any,
    Zeroed,
}

impl Contents {
    /// # Safety
    /// The contract of `GlobalAlloc::alloc`.
    unsafe fn ask(self, inner: &impl GlobalAlloc, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe {
            match self {
                Self::Any => inner.alloc(layout),
                Self::Zeroed => inner.alloc_zeroed(layout),
            }
        }
    }
}

/// `GlobalAlloc::alloc` for an allocation that the fast path did not let through.
///
/// # Safety
/// The contract of `GlobalAlloc::alloc`.
#[cold]
#[inline(never)]
pub(crate) unsafe fn alloc(inner: &impl GlobalAlloc, layout: Layout) -> *mut u8 {
    // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
    unsafe { decide_and_alloc(inner, layout, Contents::Any) }
}

/// Like [`alloc`], with zeroed memory.
///
/// # Safety
/// The contract of `GlobalAlloc::alloc_zeroed`.
#[cold]
#[inline(never)]
pub(crate) unsafe fn alloc_zeroed(inner: &impl GlobalAlloc, layout: Layout) -> *mut u8 {
    // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
    unsafe { decide_and_alloc(inner, layout, Contents::Zeroed) }
}

unsafe fn decide_and_alloc(inner: &impl GlobalAlloc, layout: Layout, contents: Contents) -> *mut u8 {
    let ptr = match sampling::decide(layout.size()) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        Decision::Sampled(due) => unsafe { alloc_sampled(inner, layout, contents, &due) },
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        Decision::Unsampled => unsafe { contents.ask(inner, layout) },
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        Decision::Workspace => return unsafe { alloc_in_workspace(inner, layout, contents) },
    };
    or_workspace(ptr, layout, contents)
}

/// Returns `ptr`, or a block of the workspace if it is null and the allocation is for work of ours.
fn or_workspace(ptr: *mut u8, layout: Layout, contents: Contents) -> *mut u8 {
    if ptr.is_null() && hook::may_use_workspace() { ask_workspace(layout, contents) } else { ptr }
}

/// Allocates from the workspace, or from the inner allocator if the workspace has no room.
unsafe fn alloc_in_workspace(inner: &impl GlobalAlloc, layout: Layout, contents: Contents) -> *mut u8 {
    let ptr = ask_workspace(layout, contents);
    if ptr.is_null() {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        return unsafe { contents.ask(inner, layout) };
    }
    ptr
}

fn ask_workspace(layout: Layout, contents: Contents) -> *mut u8 {
    let ptr = workspace::alloc(layout);
    if !ptr.is_null() && contents == Contents::Zeroed {
        // SAFETY: the block was just allocated, and is as large as the layout.
        unsafe { ptr.write_bytes(0, layout.size()) };
    }
    ptr
}

/// Allocates an object that is due for sampling. It is not sampled if there is no room to remember it: an object that
/// cannot be found at its free must not be counted as allocated.
unsafe fn alloc_sampled(
    inner: &impl GlobalAlloc,
    layout: Layout,
    contents: Contents,
    due: &DueSample,
) -> *mut u8 {
    let Some(class) = class_of(layout) else {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        let ptr = unsafe { contents.ask(inner, layout) };
        track_large(ptr, layout.size(), due);
        return ptr;
    };
    if let Some(place) = pool::take(class) {
        let ptr = place.ptr();
        if let Some(sample) = mem::malloc(layout.size(), due) {
            place.keep(sample);
            if contents == Contents::Zeroed {
                // SAFETY: this call owns the place, which is as large as its class, and the class holds the layout.
                unsafe { ptr.write_bytes(0, layout.size()) };
            }
            alloc_free_trace::malloc(ptr, layout.size(), due);
            heap_changed(mem::live_heap_estimate);
            return ptr;
        }
        place.give_back();
    }
    // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
    unsafe { contents.ask(inner, layout) }
}

/// Sampled large objects that found no place in the table.
static WITHOUT_PLACE: Counter = Counter::new(&[CountedProfile::Heap], || {
    "large objects were to be sampled but were not: no memory for the table that finds them again".into()
});

/// Enters a block of the inner allocator into the table of large objects, and records its malloc.
fn track_large(ptr: *mut u8, size: usize, due: &DueSample) {
    if ptr.is_null() {
        return;
    }
    let Some(place) = LARGE.claim(ptr as usize) else {
        WITHOUT_PLACE.add();
        return;
    };
    match mem::malloc(size, due) {
        Some(sample) => {
            place.fill([&raw const *sample.bucket as usize, sample.cycle.number() as usize]);
            alloc_free_trace::malloc(ptr, size, due);
            heap_changed(mem::live_heap_estimate);
        }
        None => place.release(),
    }
}

/// Returns the sample of a held place.
fn sample_of(place: &Held<'_>) -> Sample {
    let [bucket, cycle] = place.value();
    // SAFETY: `track_large` wrote the address of a bucket, which is never freed, before the allocation returned the
    // object's address, so before any thread can free the object.
    let bucket = unsafe { &*(bucket as *const MemBucket) };
    Sample { bucket, cycle: Cycle::new(cycle as u32) }
}

/// Records a free. `is_in_hook` says whether the thread is in a hook already.
fn record_free(ptr: *mut u8, sample: Sample, is_in_hook: bool) {
    mem::free(sample, collector::in_sweep());
    alloc_free_trace::free(ptr, sample.bucket.key.size(), is_in_hook);
    heap_changed(mem::live_heap_estimate);
}

/// `GlobalAlloc::dealloc` for an address in the pool or in the workspace.
#[cold]
#[inline(never)]
pub(crate) fn free_pooled(ptr: *mut u8) {
    if workspace::contains(ptr) {
        // SAFETY: the caller frees a block of the workspace that it owns.
        unsafe { workspace::free(ptr) };
        return;
    }
    let Some((sample, place)) = pool::remove(ptr) else { return };
    record_free(ptr, sample, false);
    place.give_back();
    if pool::wants_purge()
        && let Some(_hook) = Hook::enter()
    {
        pool::purge();
    }
}

/// `GlobalAlloc::dealloc` for a block with a large layout: if it was sampled, its free is recorded first.
///
/// # Safety
/// The contract of `GlobalAlloc::dealloc`, and the block came from `inner`.
#[inline(never)]
pub(crate) unsafe fn free_large(inner: &impl GlobalAlloc, ptr: *mut u8, layout: Layout) {
    if let Some(place) = LARGE.hold(ptr as usize) {
        record_free(ptr, sample_of(&place), false);
        place.release();
    }
    // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`, and the block came from `inner`.
    unsafe { inner.dealloc(ptr, layout) }
}

/// `GlobalAlloc::realloc` for an object that was or will be sampled. Counts as the free of the old object and the
/// allocation of a new one, with a new decision about sampling.
///
/// # Safety
/// The contract of `GlobalAlloc::realloc`.
#[cold]
#[inline(never)]
pub(crate) unsafe fn realloc(
    inner: &impl GlobalAlloc,
    ptr: *mut u8,
    layout: Layout,
    new_size: usize,
) -> *mut u8 {
    let decided = if sampling::passes(new_size) { Decision::Unsampled } else { sampling::decide(new_size) };
    // SAFETY: the caller ensures that `new_size`, rounded up to the alignment, does not exceed isize::MAX.
    let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };

    let moves = match &decided {
        Decision::Unsampled => false,
        Decision::Sampled(..) => !placement::is_large(new_layout),
        Decision::Workspace if workspace::contains(ptr) => {
            // SAFETY: the block belongs to the workspace, and the caller keeps the contract of `GlobalAlloc::realloc`.
            let new = unsafe { workspace::realloc(ptr, layout, new_size) };
            if !new.is_null() {
                return new;
            }
            true
        }
        Decision::Workspace => true,
    };
    if moves || span::contains(ptr) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`, so `new_layout` is not of size zero.
        let new = unsafe {
            match decided {
                Decision::Sampled(due) => alloc_sampled(inner, new_layout, Contents::Any, &due),
                Decision::Unsampled => inner.alloc(new_layout),
                Decision::Workspace => alloc_in_workspace(inner, new_layout, Contents::Any),
            }
        };
        let new = or_workspace(new, new_layout, Contents::Any);
        // SAFETY: the caller passes its block, and the new one is as large as the new layout.
        return unsafe { move_into(new, inner, ptr, layout, new_size) };
    }

    // The inner allocator keeps the object and may grow it in place. The old address leaves the table first, because
    // another thread may receive it as soon as it is free.
    let sampled = match decided {
        Decision::Sampled(due) => Some(due),
        _ => None,
    };
    let held = if placement::is_large(layout) { LARGE.hold(ptr as usize) } else { None };
    // SAFETY: the block is not pooled, so it came from the inner allocator with this layout.
    let new = unsafe { inner.realloc(ptr, layout, new_size) };
    if new.is_null() {
        if let Some(place) = held {
            place.restore(ptr as usize);
        }
        drop(sampled);
        let new = or_workspace(null_mut(), new_layout, Contents::Any);
        // SAFETY: the caller passes its block, and the new one is as large as the new layout.
        return unsafe { move_into(new, inner, ptr, layout, new_size) };
    }
    if let Some(place) = held {
        record_free(ptr, sample_of(&place), sampled.is_some());
        place.release();
    }
    if let Some(due) = sampled {
        track_large(new, new_size, &due);
    }
    new
}

/// Moves the contents of a block to `new`, and frees the block where it was allocated. Returns `new`; if that is null, the block
/// stays.
///
/// # Safety
/// The contract of `GlobalAlloc::realloc`; `new` is null, or the caller's and of `new_size` bytes.
unsafe fn move_into(
    new: *mut u8,
    inner: &impl GlobalAlloc,
    ptr: *mut u8,
    layout: Layout,
    new_size: usize,
) -> *mut u8 {
    if new.is_null() {
        return null_mut();
    }
    // SAFETY: both blocks hold this many bytes, and no other code knows the new one yet.
    unsafe {
        copy_nonoverlapping(ptr, new, layout.size().min(new_size));
        if span::contains(ptr) {
            free_pooled(ptr);
        } else if placement::is_large(layout) {
            free_large(inner, ptr, layout);
        } else {
            inner.dealloc(ptr, layout);
        }
    }
    new
}
