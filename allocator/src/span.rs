//! The span: the range of addresses of the workspace and of sampled objects, so that a free recognizes a sampled object
//! by its address alone.
//!
//! ```text
//!   span (64 GiB of addresses, less under a limit)
//!   ├ the workspace, a sixteenth: see `workspace`        ┐ the range that a free checks
//!   ├ objects: slab 0 │ slab 1 │ …  64 KiB each, one size class each ┘
//!   └ slots  : slab 0 │ slab 1 │ …  16 B for each object: bucket, cycle, link
//! ```
//!
//! Problem: a reservation of the whole span would count as virtual memory: monitors alarm, and `ulimit -v` refuses it.
//! Scheme: the span lies where the kernel places no mapping that does not ask for the place ([`LONELY`]), and memory is
//! mapped there as it is needed, never over another mapping. Only the first part of the workspace is reserved from the
//! start ([`RESERVED`]), for exports of a program that has no address space left. Where there is no such place, a
//! smaller span is reserved anywhere.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use rtprof_runtime::memory::mapping;
use rtprof_runtime::random;

/// The bytes of a slab, whose objects have one size.
pub(crate) const SLAB: usize = 64 << 10;
/// The size unit of the workspace.
pub(crate) const UNIT: usize = 1 << 20;
/// The most units of a workspace: 4 GiB.
pub(crate) const UNITS: usize = 4096;
/// The largest span, and the largest one that is reserved as a whole.
const SPAN: usize = if usize::BITS == 64 { 64 << 30 } else { 64 << 20 };
const RESERVED_SPAN: usize = if usize::BITS == 64 { 1 << 30 } else { 64 << 20 };
/// Bytes of the workspace that are reserved from the start.
const RESERVED: usize = 64 << 20;
/// Ranges of addresses where the kernel places nothing by itself, by the size of the address space. It goes down from
/// the stack, or up from a quarter or third of the address space (`vm.legacy_va_layout`), and the heap of a program at a
/// fixed address goes up from 4 MiB. AddressSanitizer has its shadow below 17 TiB.
const LONELY: [core::ops::Range<u64>; 2] = [
    // 47 or 48 bits.
    17 << 40..32 << 40,
    // 39 bits: small kernels on aarch64.
    32 << 30..112 << 30,
];
/// Places in one of these ranges that are tried.
const TRIES: usize = 3;
/// The pool takes at most one byte in this many of a limited address space; the rest is left to the program.
const LIMIT_SHARE: usize = 16;
/// The workspace takes one byte in this many of the span.
const WORKSPACE_SHARE: usize = 16;
/// A smaller span is not worth it.
const SMALLEST_SPAN: usize = 4 << 20;

/// The address range of the workspace and of objects, which every free reads. It has its own cache line and is written
/// once.
#[repr(align(64))]
struct Range {
    base: AtomicUsize,
    len: AtomicUsize,
    /// The address of the first object.
    objects: AtomicUsize,
}

// The initial base is in the middle of the address space, far above any real address: a thread that reads it together
// with a length that was just written takes no address for a pooled one.
static RANGE: Range = Range {
    base: AtomicUsize::new(1 << (usize::BITS - 1)),
    len: AtomicUsize::new(0),
    objects: AtomicUsize::new(1 << (usize::BITS - 1)),
};
/// The end of the part of the span that is reserved.
static RESERVED_END: AtomicUsize = AtomicUsize::new(0);

/// Whether an address belongs to a pooled object, or to the workspace.
#[inline(always)]
pub(crate) fn contains(ptr: *mut u8) -> bool {
    (ptr as usize).wrapping_sub(RANGE.base.load(Ordering::Relaxed)) < RANGE.len.load(Ordering::Relaxed)
}

/// Returns the address range of the workspace; empty if it has no room.
#[inline]
pub(crate) fn workspace() -> core::ops::Range<usize> {
    RANGE.base.load(Ordering::Relaxed)..RANGE.objects.load(Ordering::Relaxed)
}

/// Returns the address of the first object.
pub(crate) fn objects() -> usize {
    RANGE.objects.load(Ordering::Relaxed)
}

/// Returns the bytes of all slabs.
pub(crate) fn objects_len() -> usize {
    let end = RANGE.base.load(Ordering::Relaxed) + RANGE.len.load(Ordering::Acquire);
    end.saturating_sub(objects())
}

/// Finds the span. Calls `prepare` with its number of slabs before any address is in the span; where that returns
/// `false`, there is none. Must not be called in a hook; called once, before sampling begins.
pub(crate) fn open(prepare: impl FnOnce(usize) -> bool) {
    let share = mapping::address_space_limit() / LIMIT_SHARE;
    let mut size = SPAN;
    while size > share {
        size /= 2;
    }
    if size < SMALLEST_SPAN {
        return;
    }
    let reserved = RESERVED.min(workspace_of(size));
    if let Some(start) = find_lonely(size, reserved) {
        use_span(start, size, reserved, prepare);
    } else if let Some((start, size)) = reserve_anywhere(size.min(RESERVED_SPAN)) {
        use_span(start, size, size, prepare);
    }
}

/// Finds a place for a span, and reserves its first bytes.
fn find_lonely(size: usize, reserved: usize) -> Option<NonNull<u8>> {
    for range in LONELY {
        let places = (range.end - range.start).saturating_sub(size as u64) / SLAB as u64;
        for _ in 0..if places > 0 { TRIES } else { 0 } {
            // By chance, so that addresses of objects are not easier to guess than others.
            let place = range.start + random::below(places) * SLAB as u64;
            let start = NonNull::new(core::ptr::without_provenance_mut(place as usize))?;
            if mapping::reserve_at(start, reserved) {
                return Some(start);
            }
        }
    }
    None
}

/// Reserves a span of at most this size.
fn reserve_anywhere(wanted: usize) -> Option<(NonNull<u8>, usize)> {
    let mut size = wanted;
    while size >= SMALLEST_SPAN {
        if let Some(start) = mapping::reserve(size) {
            if size == wanted {
                return Some((start, size));
            }
            // The kernel grants no more than this, for an unknown reason: leave most of it to the program.
            // SAFETY: the range was just reserved, and nothing uses it.
            unsafe { mapping::unmap(start, size) };
            let part = size / LIMIT_SHARE;
            return mapping::reserve(part).map(|start| (start, part));
        }
        size /= 2;
    }
    None
}

/// Returns the bytes of the workspace in a span of this size.
fn workspace_of(size: usize) -> usize {
    (size / WORKSPACE_SHARE / UNIT).min(UNITS) * UNIT
}

/// Begins to use a span, the first bytes of which are reserved.
fn use_span(start: NonNull<u8>, size: usize, reserved: usize, prepare: impl FnOnce(usize) -> bool) {
    // Slabs begin at multiples of their size, which gives their objects their alignment.
    let aligned = (start.as_ptr() as usize).next_multiple_of(SLAB);
    let workspace = workspace_of(size);
    let objects = aligned + workspace;
    let slabs = (start.as_ptr() as usize + size).saturating_sub(objects) / SLAB / 2;
    if prepare(slabs) {
        RESERVED_END.store(start.as_ptr() as usize + reserved, Ordering::Relaxed);
        RANGE.base.store(aligned, Ordering::Relaxed);
        RANGE.objects.store(objects, Ordering::Relaxed);
        // Release: who reads the length sees what was prepared.
        RANGE.len.store(workspace + slabs * SLAB, Ordering::Release);
        if let Some(start) = NonNull::new(objects as *mut u8) {
            mapping::add_leak_root(start, slabs * SLAB);
        }
    } else {
        // SAFETY: the caller has reserved the range, and nothing uses it.
        unsafe { mapping::unmap(start, reserved) };
    }
}

/// Returns how many of the first bytes of a range are reserved.
fn reserved(start: NonNull<u8>, len: usize) -> usize {
    RESERVED_END.load(Ordering::Relaxed).saturating_sub(start.as_ptr() as usize).min(len)
}

/// Makes a part of the span readable and writable. `false` when the kernel refuses, or other memory is mapped there.
///
/// # Safety
/// The range lies in the span, both multiples of [`PAGE`](mapping::PAGE), and no other code uses it.
pub(crate) unsafe fn commit(start: NonNull<u8>, len: usize) -> bool {
    let reserved = reserved(start, len);
    // SAFETY: the caller owns the range, of which these bytes are reserved.
    if reserved > 0 && !unsafe { mapping::commit(start, reserved) } {
        return false;
    }
    // SAFETY: the rest lies in the range.
    let has_rest = reserved == len || mapping::map_at(unsafe { start.add(reserved) }, len - reserved);
    if !has_rest && reserved > 0 {
        // SAFETY: the caller owns the range, which no thread uses.
        unsafe { mapping::close(start, reserved) };
    }
    has_rest
}

/// Returns the memory of a part of the span that was committed to the kernel.
///
/// # Safety
/// As for [`commit`], and nothing in the range is in use.
pub(crate) unsafe fn close(start: NonNull<u8>, len: usize) {
    let reserved = reserved(start, len);
    // SAFETY: the caller owns the range, in which nothing is in use.
    unsafe {
        if reserved > 0 {
            // Pages that the kernel does not take back, because they are locked, keep their contents.
            let _ = mapping::discard(start, reserved);
            mapping::close(start, reserved);
        }
        if reserved < len {
            mapping::unmap(start.add(reserved), len - reserved);
        }
    }
}
