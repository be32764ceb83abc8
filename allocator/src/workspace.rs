//! Memory for the profiler's own work: the allocations of an export.
//!
//! Problem: opening debug information, symbolizing and encoding take tens of megabytes for some milliseconds. Taken
//! from the program's allocator, this memory stays with the process: glibc has an arena for each thread and returns
//! only the free memory at the arena's end, which is where cached names are often allocated.
//! Scheme: such work is marked as such ([`hook::workspace`]), and its allocations come from here. Results that stay are
//! allocated outside, or keep only the pages that they occupy. When the work is done, all other pages go back to the
//! kernel.
//!
//! ```text
//!   hook::workspace() ─────► decide: Workspace ─► alloc ─► dlmalloc ─► segments of 1 MiB and more ─► commit
//!   any free of an address in the range ────────► free  ─► dlmalloc ─► nothing is left: all pages go back
//!   the thread has left the workspace ──────────► trim  ─► what is free at the end, and whole segments
//! ```
//!
//! Locks: `ARENA`, a [`ForkMutex`], held for one call of dlmalloc, in a hook: a panic there would not allocate from the
//! arena, and `errno` is preserved. Only threads that export take it, and threads that free the exports' memory. A
//! forked child that has lost it allocates from the program's allocator as before.

use core::alloc::Layout;
use core::ptr::null_mut;

use dlmalloc::Dlmalloc;
use rtprof_runtime::hook::{self, Hook};
use rtprof_runtime::lock::fork_safe::ForkMutex;

use crate::segments::Segments;
use crate::span::{self, UNIT};

/// Bytes of pages that are kept for the next export: giving them back and faulting them in again would cost a small
/// export more than its work.
const KEPT: usize = 512 << 10;

/// The alignment of every block of dlmalloc.
const ALIGN: usize = 16;

struct Arena {
    heap: Dlmalloc<Segments>,
    /// Number of blocks in use.
    live: usize,
    /// The number of live blocks at which the arena is trimmed next: half of those at the last trim. Answers that were
    /// sent and traces that were read are freed long after their thread has left the workspace; each halving of their
    /// blocks costs one trim.
    trim_at: usize,
}

static ARENA: ForkMutex<Arena> =
    ForkMutex::new(Arena { heap: Dlmalloc::new_with_allocator(Segments), live: 0, trim_at: 0 });

/// Arranges that the workspace is trimmed after use. Called once, when the pool is open.
pub(crate) fn open() {
    hook::on_leaving_workspace(&(trim as fn()));
}

/// Whether an address belongs to the workspace.
#[inline]
pub(crate) fn contains(ptr: *mut u8) -> bool {
    span::workspace().contains(&(ptr as usize))
}

/// Allocates a block; null where there is no room.
pub(crate) fn alloc(layout: Layout) -> *mut u8 {
    let _hook = Hook::enter();
    let Some(mut arena) = ARENA.lock() else { return null_mut() };
    // SAFETY: dlmalloc accepts any size and alignment.
    let ptr = unsafe { arena.heap.malloc(layout.size(), layout.align()) };
    arena.live += usize::from(!ptr.is_null());
    ptr
}

/// Reallocates a block with its contents. Returns null where there is no room, or the alignment is a large one; then
/// the old block stays.
///
/// # Safety
/// The contract of `GlobalAlloc::realloc`, for a block that came from here.
pub(crate) unsafe fn realloc(ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
    if layout.align() > ALIGN {
        return null_mut();
    }
    let _hook = Hook::enter();
    let Some(mut arena) = ARENA.lock() else { return null_mut() };
    // SAFETY: the caller passes a block that came from here, and keeps the contract of `GlobalAlloc::realloc`.
    unsafe { arena.heap.c_realloc(ptr, new_size) }
}

/// Frees a block. In a forked child that has lost the arena, the block is leaked.
///
/// # Safety
/// The contract of `GlobalAlloc::dealloc`, for a block that came from here.
pub(crate) unsafe fn free(ptr: *mut u8) {
    let _hook = Hook::enter();
    let Some(mut arena) = ARENA.lock() else { return };
    // SAFETY: the caller passes a block that came from here and is not used afterwards.
    unsafe { arena.heap.c_free(ptr) };
    arena.live = arena.live.saturating_sub(1);
    if arena.live <= arena.trim_at && arena.heap.allocator().committed() > UNIT {
        arena.trim();
    }
}

fn trim() {
    let _hook = Hook::enter();
    if let Some(mut arena) = ARENA.lock() {
        arena.trim();
    }
}

impl Arena {
    /// Returns to the kernel what can be returned; all of it, if nothing is in use.
    fn trim(&mut self) {
        self.trim_at = self.live / 2;
        if self.live == 0 {
            self.heap = Dlmalloc::new_with_allocator(Segments);
            self.heap.allocator().give_back(KEPT);
        } else {
            // SAFETY: `trim` frees nothing that is in use.
            unsafe { self.heap.trim(KEPT) };
        }
    }
}
