//! The source of the workspace's pages: its part of the pool's span, in units.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU16, AtomicUsize, Ordering::Relaxed};

use rtprof_runtime::memory::mapping::{self, PAGE};

use crate::span::{self, UNIT, UNITS};

/// Bytes left unused at the end of each segment, so that no segment touches the next one: dlmalloc would merge the two,
/// and return neither as long as anything is in either. As large as the largest page.
const GAP: usize = 64 << 10;

/// The number of units of each segment, stored at its first unit; 0 elsewhere. Changed by one thread at a time, with
/// the arena's lock held.
static RUNS: [AtomicU16; UNITS] = [const { AtomicU16::new(0) }; UNITS];
static USED: AtomicUsize = AtomicUsize::new(0);

/// The segments of the workspace's arena.
pub(crate) struct Segments;

impl Segments {
    /// Returns the bytes of all segments.
    pub(crate) fn committed(&self) -> usize {
        USED.load(Relaxed) * UNIT
    }

    /// Returns all pages but the first `kept` bytes to the kernel, and clears the list of segments. Nothing may be in
    /// use.
    pub(crate) fn give_back(&self, kept: usize) {
        for (at, run) in RUNS.iter().enumerate() {
            let (start, len) = (at * UNIT, usize::from(run.swap(0, Relaxed)) * UNIT);
            let skipped = kept.saturating_sub(start).min(len);
            close(start + skipped, len - skipped);
        }
        USED.store(0, Relaxed);
    }

    /// Returns the first of `units` free units in a row.
    fn find(&self, units: usize) -> Option<usize> {
        let all = (span::workspace().len() / UNIT).min(UNITS);
        let (mut at, mut first) = (0, 0);
        while at < all && at - first < units {
            match usize::from(RUNS[at].load(Relaxed)) {
                0 => at += 1,
                used => {
                    at += used;
                    first = at;
                }
            }
        }
        (at - first >= units && at <= all).then_some(first)
    }
}

fn address(offset: usize) -> *mut u8 {
    (span::workspace().start + offset) as *mut u8
}

/// Returns pages to the kernel. `false` if the kernel refuses, as it does for locked pages.
fn discard(offset: usize, len: usize) -> bool {
    let Some(start) = NonNull::new(address(offset)) else { return false };
    // SAFETY: the range consists of whole pages of the workspace in which nothing is in use.
    len == 0 || unsafe { mapping::discard(start, len) }
}

/// Returns the pages of a range that no segment contains any more.
fn close(offset: usize, len: usize) {
    if let Some(start) = NonNull::new(address(offset))
        && len > 0
    {
        // SAFETY: the range is committed again before another segment uses it.
        unsafe { span::close(start, len) };
    }
}

// SAFETY: segments lie in the workspace, are allocated once until they are freed, and can be read and written.
// dlmalloc calls these methods from one thread at a time, because the arena is locked.
unsafe impl dlmalloc::Allocator for Segments {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        const NONE: (*mut u8, usize, u32) = (null_mut(), 0, 0);
        let units = size.saturating_add(GAP).div_ceil(UNIT);
        let (Some(first), Ok(run)) = (self.find(units), u16::try_from(units)) else { return NONE };
        let (start, len) = (address(first * UNIT), units * UNIT - GAP);
        let Some(place) = NonNull::new(start) else { return NONE };
        // SAFETY: the range consists of whole pages of the workspace that are in no segment.
        if !unsafe { span::commit(place, len) } {
            return NONE;
        }
        RUNS[first].store(run, Relaxed);
        USED.fetch_add(units, Relaxed);
        (start, len, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        null_mut()
    }

    fn free_part(&self, ptr: *mut u8, old_size: usize, new_size: usize) -> bool {
        discard(ptr as usize - span::workspace().start + new_size, old_size - new_size)
    }

    fn free(&self, ptr: *mut u8, _: usize) -> bool {
        let offset = ptr as usize - span::workspace().start;
        let units = RUNS[offset / UNIT].swap(0, Relaxed);
        USED.fetch_sub(units.into(), Relaxed);
        close(offset, usize::from(units) * UNIT);
        true
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    /// `false`, because locked pages, which the kernel does not take back, keep their contents.
    fn allocates_zeros(&self) -> bool {
        false
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}
