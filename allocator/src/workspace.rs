//! Memory for the profiler's own work: what an export allocates between its first and its last byte.
//!
//! Problem: opening debug information, symbolizing and encoding take tens of megabytes for some milliseconds. Asked of
//! the program's allocator, they stay with the process: glibc's has an arena for each thread and gives back only what is
//! free at its end, where names that are remembered come to lie.
//! Scheme: such work says so ([`hook::workspace`]), and its allocations come from here; what it makes to stay is
//! made outside, or keeps the pages that it lies in. When it is done, the others go back to the kernel.
//!
//! ```text
//!   hook::workspace() ─────► decide: Workspace ─► alloc ─► dlmalloc ─► segments of 1 MiB and more ─► commit
//!   any free of an address in the range ────────► free  ─► dlmalloc ─► nothing is left: all pages go back
//!   the thread has left the workspace ──────────► trim  ─► what is free at the end, and whole segments
//! ```
//!
//! Locks: `ARENA`, a [`ForkMutex`], held for one call of dlmalloc, in a hook: a panic there would allocate elsewhere, and
//! `errno` stays. Only threads that export take it, and those that free what they made. In a forked child that has lost
//! it, work goes to the program's allocator as before.

use core::alloc::Layout;
use core::ptr::null_mut;

use dlmalloc::Dlmalloc;
use rtprof_runtime::fork_safe::ForkMutex;
use rtprof_runtime::hook::{self, Hook};

use crate::pool;
use crate::segments::{Segments, UNIT};

/// Pages up to this much are kept for the next export: giving them back and faulting them in again would cost a small one
/// more than its work.
const KEPT: usize = 512 << 10;

/// The alignment of every block of dlmalloc's.
const ALIGN: usize = 16;

struct Arena {
    heap: Dlmalloc<Segments>,
    /// Blocks that were not freed.
    live: usize,
    /// At how many live blocks it is trimmed next: half of those of the last trim. Answers that were sent and traces that
    /// were read are freed when their thread has long left the workspace; each half of their blocks costs one trim.
    trim_at: usize,
}

static ARENA: ForkMutex<Arena> =
    ForkMutex::new(Arena { heap: Dlmalloc::new_with_allocator(Segments), live: 0, trim_at: 0 });

/// Has the workspace trimmed after use. Once, when the pool is open.
pub(crate) fn open() {
    hook::on_leaving_workspace(&(trim as fn()));
}

/// Whether an address was given out here.
#[inline]
pub(crate) fn contains(ptr: *mut u8) -> bool {
    pool::workspace().contains(&(ptr as usize))
}

/// A block, or null where there is no room.
pub(crate) fn alloc(layout: Layout) -> *mut u8 {
    let _hook = Hook::enter();
    let Some(mut arena) = ARENA.lock() else { return null_mut() };
    // SAFETY: any size and alignment will do.
    let ptr = unsafe { arena.heap.malloc(layout.size(), layout.align()) };
    arena.live += usize::from(!ptr.is_null());
    ptr
}

/// A block that holds what the old one held, or null where there is no room, or the alignment is a large one; then the old
/// one stays.
///
/// # Safety
/// That of `GlobalAlloc::realloc`, for a block that came from here.
pub(crate) unsafe fn realloc(ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
    if layout.align() > ALIGN {
        return null_mut();
    }
    let _hook = Hook::enter();
    let Some(mut arena) = ARENA.lock() else { return null_mut() };
    // SAFETY: the caller's promise.
    unsafe { arena.heap.c_realloc(ptr, new_size) }
}

/// Frees a block; in a forked child that has lost the arena, it is left as it is.
///
/// # Safety
/// That of `GlobalAlloc::dealloc`, for a block that came from here.
pub(crate) unsafe fn free(ptr: *mut u8) {
    let _hook = Hook::enter();
    let Some(mut arena) = ARENA.lock() else { return };
    // SAFETY: the caller's promise.
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
