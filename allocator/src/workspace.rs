//! Memory for the profiler's own work: what an export allocates between its first and its last byte.
//!
//! Problem: opening debug information, symbolizing and encoding take tens of megabytes for some milliseconds. Asked of
//! the program's allocator, they stay with the process: glibc's has an arena for each thread and gives back only what is
//! free at its end, where names that are remembered come to lie.
//! Scheme: such work says so ([`sampling::workspace`]), and its allocations come from here; what it makes to stay is
//! made outside. When it is done, its pages go back to the kernel.
//!
//! ```text
//!   sampling::workspace() ─► decide: Workspace ─► alloc ─► dlmalloc ─► segments of 1 MiB and more ─► commit
//!   any free of an address in the range ────────► free  ─► dlmalloc ─► nothing is left: all pages go back
//!   the thread has left the workspace ──────────► trim  ─► what is free at the end, and whole segments
//! ```
//!
//! Locks: `ARENA`, a [`ForkMutex`], held for one call of dlmalloc. Only threads that export take it, and those that free
//! what they made. In a forked child that has lost it, work goes to the program's allocator as before.

use core::alloc::Layout;

use dlmalloc::Dlmalloc;
use rtprof_profiler::fork_safe::ForkMutex;
use rtprof_profiler::sampling;

use crate::pool;
use crate::segments::{Segments, UNIT};

/// Pages up to this much, or all of a single unit, are kept for the next export: giving them back and faulting them in
/// again would cost a small one more than its work.
const KEPT: usize = 512 << 10;

struct Arena {
    heap: Dlmalloc<Segments>,
    /// Blocks that were not freed.
    live: usize,
    /// At how many of them it is trimmed next. What is freed late, an answer that was sent, a trace that was read, is
    /// freed outside of the workspace, and by trimming at each half it costs a few trims.
    trim_at: usize,
}

static ARENA: ForkMutex<Arena> =
    ForkMutex::new(Arena { heap: Dlmalloc::new_with_allocator(Segments), live: 0, trim_at: 0 });

/// Has the workspace trimmed after use. Once, when the pool is open.
pub(crate) fn open() {
    sampling::on_leaving_workspace(trim);
}

/// Whether an address was given out here.
#[inline]
pub(crate) fn contains(ptr: *mut u8) -> bool {
    pool::workspace().contains(&(ptr as usize))
}

/// A block, or null where there is no room.
pub(crate) fn alloc(layout: Layout) -> *mut u8 {
    let Some(mut arena) = ARENA.lock() else { return core::ptr::null_mut() };
    // SAFETY: any size and alignment will do.
    let ptr = unsafe { arena.heap.malloc(layout.size(), layout.align()) };
    arena.live += usize::from(!ptr.is_null());
    ptr
}

/// A block that holds what the old one held, or null where there is no room; then the old one stays.
///
/// # Safety
/// That of `GlobalAlloc::realloc`, for a block that came from here.
pub(crate) unsafe fn realloc(ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
    let Some(mut arena) = ARENA.lock() else { return core::ptr::null_mut() };
    // SAFETY: the caller's promise.
    unsafe { arena.heap.realloc(ptr, layout.size(), layout.align(), new_size) }
}

/// Frees a block; in a forked child that has lost the arena, it is left as it is.
///
/// # Safety
/// That of `GlobalAlloc::dealloc`, for a block that came from here.
pub(crate) unsafe fn free(ptr: *mut u8) {
    let Some(mut arena) = ARENA.lock() else { return };
    // SAFETY: the caller's promise.
    unsafe { arena.heap.c_free(ptr) };
    arena.live = arena.live.saturating_sub(1);
    if arena.live <= arena.trim_at && arena.heap.allocator().committed() > UNIT {
        arena.trim();
    }
}

fn trim() {
    if let Some(mut arena) = ARENA.lock() {
        arena.trim();
    }
}

impl Arena {
    /// Gives back what can be; all of it, if nothing is in use.
    fn trim(&mut self) {
        self.trim_at = self.live / 2;
        if self.live == 0 {
            self.heap = Dlmalloc::new_with_allocator(Segments);
            self.heap.allocator().give_back(KEPT);
        } else {
            // SAFETY: it frees nothing that is in use.
            unsafe { self.heap.trim(KEPT) };
        }
    }
}
