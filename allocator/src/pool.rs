//! The pool of small sampled objects: one range of addresses, so that a free recognizes a sampled object by its address
//! alone.
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
//!
//! Slabs are opened one after the other, so that the kernel keeps each half as one or two mappings, however many slabs
//! there are. The pages of empty slabs are returned when many such slabs have accumulated (see [`DIRTY_SLABS`]).
//!
//! When the pool is full, or has no span, an object that is due for sampling is not sampled, only counted: an object
//! outside the pool could not be found at its free.
//!
//! Locks: `PURGE` (a [`ForkLock`], tried, never waited for) lets one thread at a time look for empty slabs.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use rtprof_profiler::bucket::MemBucket;
use rtprof_profiler::cycle::Cycle;
use rtprof_profiler::mem::Sample;
use rtprof_runtime::counters::COUNTERS;
use rtprof_runtime::fork_lock::ForkLock;
use rtprof_runtime::mapping;
use rtprof_runtime::primitive::AtomicU32 as LinkWord;
use rtprof_runtime::random;

use crate::placement::{CLASSES, Class};
use crate::segments::{UNIT, UNITS};
use crate::slab::{self, ClassStack, Header, Slabs};

const SLAB: usize = 64 << 10;
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
/// Empty slabs whose memory is kept for reuse (8 MiB). Returning each at once would cost two system calls and new page
/// faults whenever one object is allocated and freed.
const DIRTY_SLABS: i64 = 128;

/// The record of one slot.
#[repr(C, align(16))]
struct Slot {
    /// The bucket of the object in the slot; null while the slot is free.
    bucket: AtomicPtr<MemBucket>,
    cycle: AtomicU32,
    link: LinkWord,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 16 && SLAB / 16 * size_of::<Slot>() == SLAB);

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
static HEADERS: AtomicPtr<Header> = AtomicPtr::new(null_mut());
rtprof_runtime::lazy_under_loom! {
    static STACKS: [ClassStack; CLASSES] = rtprof_runtime::array_of![ClassStack::new(); CLASSES];
}
/// Slabs opened so far.
static OPENED: AtomicUsize = AtomicUsize::new(0);
static DIRTY: AtomicI64 = AtomicI64::new(0);
static PURGE: ForkLock = ForkLock::new();
static PURGE_CURSOR: AtomicUsize = AtomicUsize::new(0);

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

fn objects() -> usize {
    RANGE.objects.load(Ordering::Relaxed)
}

/// Returns the bytes of all slabs.
fn objects_len() -> usize {
    let end = RANGE.base.load(Ordering::Relaxed) + RANGE.len.load(Ordering::Acquire);
    end.saturating_sub(objects())
}

/// Finds the span. Must not be called in a hook; called once, before sampling begins.
pub(crate) fn open() {
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
        use_span(start, size, reserved);
    } else if let Some((start, size)) = reserve_anywhere(size.min(RESERVED_SPAN)) {
        use_span(start, size, size);
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
fn use_span(start: NonNull<u8>, size: usize, reserved: usize) {
    // Slabs begin at multiples of their size, which gives their objects their alignment.
    let aligned = (start.as_ptr() as usize).next_multiple_of(SLAB);
    let workspace = workspace_of(size);
    let objects = aligned + workspace;
    let slabs = (start.as_ptr() as usize + size).saturating_sub(objects) / SLAB / 2;
    match mapping::map(slabs * size_of::<Header>()) {
        Some(headers) => {
            HEADERS.store(headers.cast().as_ptr(), Ordering::Relaxed);
            RESERVED_END.store(start.as_ptr() as usize + reserved, Ordering::Relaxed);
            RANGE.base.store(aligned, Ordering::Relaxed);
            RANGE.objects.store(objects, Ordering::Relaxed);
            RANGE.len.store(workspace + slabs * SLAB, Ordering::Release);
            if let Some(start) = NonNull::new(objects as *mut u8) {
                mapping::add_leak_root(start, slabs * SLAB);
            }
        }
        // SAFETY: the caller has reserved the range, and nothing uses it.
        None => unsafe { mapping::unmap(start, reserved) },
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

/// The process's only pool, as the slabs on which [`slab`] works.
struct Pool;

impl Pool {
    fn object(slab: u32, offset: usize) -> *mut u8 {
        (objects() + slab as usize * SLAB + offset) as *mut u8
    }

    fn slot(slab: u32, slot: u32) -> &'static Slot {
        let at = (objects() + objects_len() + slab as usize * SLAB) as *const Slot;
        // SAFETY: the second half of the objects' part of the span holds `SLAB` bytes of slots for each slab, which stay mapped once
        // the slab is opened. All callers pass opened slabs and slots below the class's number of slots, which is at
        // most SLAB / 16. Zeroed memory is a valid `Slot`.
        unsafe { &*at.add(slot as usize) }
    }
}

impl Slabs for Pool {
    fn stack(&self, class: usize) -> &ClassStack {
        &STACKS[class]
    }

    fn header(&self, slab: u32) -> &Header {
        // SAFETY: the mapping holds a header for every slab of the range and is never unmapped; zeroed memory is a
        // valid `Header`.
        unsafe { &*HEADERS.load(Ordering::Relaxed).add(slab as usize) }
    }

    fn link(&self, slab: u32, slot: u32) -> &LinkWord {
        &Self::slot(slab, slot).link
    }

    fn slots(&self, class: usize) -> u32 {
        (SLAB / Class::from_index(class).size()) as u32
    }

    fn grow(&self, class: usize) -> Option<u32> {
        let len = objects_len();
        if OPENED.load(Ordering::Relaxed) >= len / SLAB {
            return None;
        }
        let slab = OPENED.fetch_add(1, Ordering::Relaxed);
        if slab < len / SLAB {
            let objects = NonNull::new(Self::object(slab as u32, 0))?;
            // SAFETY: both ranges lie in the span, at multiples of the slab's size, and the counter gave the slab to
            // this call alone. What is closed is not in use yet.
            let is_open = unsafe {
                let has_objects = commit(objects, SLAB);
                let has_slots = has_objects && commit(objects.add(len), SLAB);
                if has_objects && !has_slots {
                    close(objects, SLAB);
                }
                has_slots
            };
            if is_open {
                self.header(slab as u32).assign(class);
                return Some(slab as u32);
            }
        }
        // Return the number, unless other threads have drawn numbers meanwhile; then it is lost.
        let _ = OPENED.compare_exchange(slab + 1, slab, Ordering::Relaxed, Ordering::Relaxed);
        None
    }

    fn discard(&self, slab: u32) -> bool {
        let len = objects_len();
        let Some(objects) = NonNull::new(Self::object(slab, 0)) else { return false };
        // SAFETY: the caller is purging and owns the slab, in which nothing is in use. Only the slots must become zero;
        // objects may keep any contents.
        unsafe {
            let returned = mapping::discard(objects.add(len), SLAB);
            let _ = returned && mapping::discard(objects, SLAB);
            returned
        }
    }

    fn count_dirty(&self, change: i32) {
        DIRTY.fetch_add(i64::from(change), Ordering::Relaxed);
    }
}

/// A place in the pool that its holder owns.
pub(crate) struct PoolSlot {
    slab: u32,
    slot: u32,
    ptr: NonNull<u8>,
}

/// Takes a place for an object of this class. `None`, counted, when the pool is full.
pub(crate) fn take(class: Class) -> Option<PoolSlot> {
    let place = slab::take(&Pool, class.index()).and_then(|(slab, slot)| {
        let ptr = NonNull::new(Pool::object(slab, slot as usize * class.size()))?;
        Some(PoolSlot { slab, slot, ptr })
    });
    if place.is_none() {
        COUNTERS.samples_without_pool.add();
    }
    place
}

impl PoolSlot {
    /// Returns the object's memory. It still has the contents of the last object at this place.
    pub(crate) fn ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Stores the sample of the object in this place.
    pub(crate) fn keep(self, sample: Sample) {
        let slot = Pool::slot(self.slab, self.slot);
        slot.cycle.store(sample.cycle.number(), Ordering::Relaxed);
        slot.bucket.store((&raw const *sample.bucket).cast_mut(), Ordering::Relaxed);
    }

    /// Gives an unused place back.
    pub(crate) fn give_back(self) {
        slab::give(&Pool, self.slab, self.slot);
    }
}

/// Removes the sample of a pooled object, and returns the place, which the caller then owns. `None`, counted, for an
/// address without an object in use: a double free in the program.
pub(crate) fn remove(ptr: *mut u8) -> Option<(Sample, PoolSlot)> {
    let offset = (ptr as usize).wrapping_sub(objects());
    let slab = (offset / SLAB) as u32;
    let slot = (offset % SLAB / Class::from_index(Pool.header(slab).class()).size()) as u32;
    // Relaxed: the program itself orders a free after its allocation.
    let entry = Pool::slot(slab, slot);
    let bucket = entry.bucket.swap(null_mut(), Ordering::Relaxed);
    // SAFETY: a non-null bucket was stored by `keep`, from a reference to an entry that is never freed.
    let (Some(bucket), Some(ptr)) = (unsafe { bucket.as_ref() }, NonNull::new(ptr)) else {
        COUNTERS.invalid_frees.add();
        return None;
    };
    let cycle = Cycle::new(entry.cycle.load(Ordering::Relaxed));
    Some((Sample { bucket, cycle }, PoolSlot { slab, slot, ptr }))
}

/// Whether enough slabs are empty to make [`purge`] worth its system calls.
#[inline]
pub(crate) fn wants_purge() -> bool {
    DIRTY.load(Ordering::Relaxed) > DIRTY_SLABS
}

/// Returns the memory of empty slabs to the kernel, until half of the number that triggers it is left.
#[cold]
pub(crate) fn purge() {
    let Some(_held) = PURGE.try_lock() else { return };
    let opened = OPENED.load(Ordering::Relaxed).min(objects_len() / SLAB);
    for _ in 0..opened {
        let slab = PURGE_CURSOR.fetch_add(1, Ordering::Relaxed) % opened;
        slab::purge(&Pool, slab as u32);
        if DIRTY.load(Ordering::Relaxed) <= DIRTY_SLABS / 2 {
            return;
        }
    }
}
