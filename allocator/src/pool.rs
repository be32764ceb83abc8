//! The pool of small sampled objects, in the span of addresses (`span`) by which a free recognizes them.
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
use rtprof_runtime::counters::{CountedProfile, Counter};
use rtprof_runtime::lock::fork_lock::ForkLock;
use rtprof_runtime::memory::mapping;
use rtprof_runtime::primitive::AtomicU32 as LinkWord;

use crate::placement::{CLASSES, Class};
use crate::slab::{self, ClassStack, Header, Slabs};
use crate::span::{self, SLAB, close, commit, objects, objects_len};

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

static HEADERS: AtomicPtr<Header> = AtomicPtr::new(null_mut());
rtprof_runtime::lazy_under_loom! {
    static STACKS: [ClassStack; CLASSES] = rtprof_runtime::array_of![ClassStack::new(); CLASSES];
}
/// Slabs opened so far.
static OPENED: AtomicUsize = AtomicUsize::new(0);
static DIRTY: AtomicI64 = AtomicI64::new(0);
static PURGE: ForkLock = ForkLock::new();
static PURGE_CURSOR: AtomicUsize = AtomicUsize::new(0);

/// Finds the span. Must not be called in a hook; called once, before sampling begins.
pub(crate) fn open() {
    span::open(|slabs| match mapping::map(slabs * size_of::<Header>()) {
        Some(headers) => {
            HEADERS.store(headers.cast().as_ptr(), Ordering::Relaxed);
            true
        }
        None => false,
    });
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
        // Return the number, unless other threads have drawn numbers since; then it is lost.
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

/// Sampled objects that found no place.
static FULL: Counter = Counter::new(&[CountedProfile::Heap], || {
    "objects were to be sampled but were not: the pool of sampled objects is full or got no memory (address-space limit?)".into()
});

/// Frees of pooled memory that was not in use: a double free in the program.
static INVALID_FREES: Counter = Counter::new(&[CountedProfile::Heap], || {
    "frees of sampled objects that were already free (a bug in this program)".into()
});

/// Takes a place for an object of this class. `None`, counted, when the pool is full.
pub(crate) fn take(class: Class) -> Option<PoolSlot> {
    let place = slab::take(&Pool, class.index()).and_then(|(slab, slot)| {
        let ptr = NonNull::new(Pool::object(slab, slot as usize * class.size()))?;
        Some(PoolSlot { slab, slot, ptr })
    });
    if place.is_none() {
        FULL.add();
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
        INVALID_FREES.add();
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
