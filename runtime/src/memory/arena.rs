//! A bump arena over our own mappings. Memory is never freed one allocation at a time, only all of it at once.
//!
//! ```text
//!   current ──► ┌ Chunk ─────────────────────────────┐
//!               │ used ──► fetch_add by every caller │ 256 KiB, then the next
//!               └────────────────────────────────────┘
//! ```
//!
//! No lock: memory is taken by `fetch_add` on the current chunk. A thread that finds the chunk full maps a new one and
//! installs it by compare-and-swap; a loser unmaps its own chunk and uses the winner's. The rest of a full chunk is
//! wasted, at most one entry (1.2 KiB) of 256 KiB. A lock here could be held by a thread at the moment of a fork, and
//! the child would hang at its first sample.

use core::ptr::NonNull;

use crate::primitive::{AtomicPtr, AtomicUsize, Ordering};

#[cfg(not(loom))]
const CHUNK: usize = 256 << 10;
const ALIGN: usize = 16;

#[cfg(not(loom))]
#[repr(C, align(16))]
struct Chunk {
    used: AtomicUsize,
    /// The previous chunk, which is full.
    previous: *mut Chunk,
}

#[cfg(loom)]
struct Chunk;

/// The arena. `const`-constructible, so that it can be a static.
#[cfg_attr(loom, allow(dead_code))]
pub(crate) struct Arena {
    current: AtomicPtr<Chunk>,
    mapped: AtomicUsize,
}

impl Arena {
    const_fn! {
        /// An arena that has mapped nothing yet.
        pub(crate) const fn new() -> Self {
            Self { current: AtomicPtr::new(core::ptr::null_mut()), mapped: AtomicUsize::new(0) }
        }
    }

    /// Returns the number of bytes mapped so far.
    pub(crate) fn mapped_bytes(&self) -> usize {
        self.mapped.load(Ordering::Relaxed)
    }

    /// Allocates `size` zeroed bytes, aligned to 16. Returns `None` when the kernel grants no more memory, or for a
    /// size that exceeds a chunk.
    #[cfg(not(loom))]
    pub(crate) fn alloc(&self, size: usize) -> Option<NonNull<u8>> {
        let size = size.checked_next_multiple_of(ALIGN)?;
        if size > CHUNK - size_of::<Chunk>() {
            return None;
        }
        loop {
            // Acquire: pairs with the installation below, so that `used` is seen initialised.
            let current = self.current.load(Ordering::Acquire);
            if let Some(chunk) = NonNull::new(current) {
                // SAFETY: an installed chunk stays until `clear`, whose caller guarantees that no thread uses the
                // arena.
                let used = unsafe { chunk.as_ref() }.used.fetch_add(size, Ordering::Relaxed);
                // A thread adds to a full chunk at most once per replacement, so `used` cannot grow until it wraps.
                if used <= CHUNK - size {
                    // SAFETY: `used + size <= CHUNK`, so the range lies inside the chunk's mapping, and fetch_add gave
                    // it to this caller only.
                    return Some(unsafe { chunk.cast::<u8>().add(used) });
                }
            }
            let fresh = crate::memory::mapping::map(CHUNK)?.cast::<Chunk>();
            let chunk = Chunk { used: AtomicUsize::new(size_of::<Chunk>()), previous: current };
            // SAFETY: freshly mapped, page-aligned, and not shared yet.
            unsafe { fresh.write(chunk) };
            match self.current.compare_exchange(current, fresh.as_ptr(), Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => {
                    self.mapped.fetch_add(CHUNK, Ordering::Relaxed);
                }
                // SAFETY: the chunk was not installed, so only this thread has it.
                Err(_) => unsafe { crate::memory::mapping::unmap(fresh.cast(), CHUNK) },
            }
        }
    }

    /// Returns all memory to the kernel.
    ///
    /// # Safety
    /// No thread uses the arena during the call, and none uses memory from it ever again.
    #[cfg(not(loom))]
    pub(crate) unsafe fn clear(&self) {
        let mut at = self.current.swap(core::ptr::null_mut(), Ordering::AcqRel);
        self.mapped.store(0, Ordering::Relaxed);
        while let Some(chunk) = NonNull::new(at) {
            // SAFETY: the chunk belongs to this arena and is still mapped; the caller guarantees that no thread uses
            // it.
            unsafe {
                at = chunk.as_ref().previous;
                crate::memory::mapping::unmap(chunk.cast(), CHUNK);
            }
        }
    }

    /// Allocates from the system allocator under loom, and leaks: the models are about races, not about placement.
    #[cfg(loom)]
    pub(crate) fn alloc(&self, size: usize) -> Option<NonNull<u8>> {
        let words = vec![0u128; size.div_ceil(ALIGN)].into_boxed_slice();
        NonNull::new(Box::leak(words).as_mut_ptr().cast())
    }

    /// Does nothing under loom.
    #[cfg(loom)]
    pub(crate) unsafe fn clear(&self) {}
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn places_are_disjoint_across_threads_and_chunks() {
        let arena = Arena::new();
        let places: Vec<usize> = std::thread::scope(|s| {
            let workers: Vec<_> = (0..4)
                .map(|_| {
                    s.spawn(|| {
                        (0..4000).map(|_| arena.alloc(200).unwrap().as_ptr() as usize).collect::<Vec<_>>()
                    })
                })
                .collect();
            workers.into_iter().flat_map(|w| w.join().unwrap()).collect()
        });
        let distinct: HashSet<_> = places.iter().map(|p| p / 208).collect();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|w| w[1] - w[0] >= 208), "two callers got overlapping places");
        assert!(distinct.len() > 15_000);
        assert!(places.iter().all(|p| p % ALIGN == 0));
    }

    #[test]
    fn a_size_that_no_chunk_holds_is_refused() {
        assert!(Arena::new().alloc(CHUNK).is_none());
        assert!(Arena::new().alloc(usize::MAX).is_none());
    }
}
