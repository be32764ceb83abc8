//! A lane: a thread's part of the recorder, from the thread's first event to its end.
//!
//! ```text
//!   thread      events: odd ─ is the generation still mine? ─ write into the buffer ─ events: even
//!   drain       the next generation ─ barrier ─ events even, or changed? ─ lock ─ take the buffer
//! ```
//!
//! Within an event the buffer belongs to the thread, with no lock and no atomic instruction. The drain publishes a new
//! generation and waits until the thread has been outside an event. Later events see the new generation, and the thread
//! gives up the buffer under the lane's lock, unless the drain has already taken it.
//!
//! Locks: `lock` is a spinning word that the thread (within an event) and the drain hold while they exchange a buffer.
//! The word contains the holder's number, so that the drain can release the lock of a thread that died holding it. An
//! event waits for the lock only for a while, because it may run in a signal handler that has interrupted the drain. A
//! handler that interrupts an event does not use the lane. A forked child records nothing any more.

use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_runtime::lock::holder_lock::HolderLock;
use rtprof_runtime::memory::slots::{Slot, SlotIndex};
use rtprof_runtime::primitive::{
    AtomicPtr, AtomicU32, AtomicU64, Ordering, UnsafeCell, spin_loop, yield_now,
};
use rtprof_runtime::thread::nap::nap;

use crate::buffer::Buffer;
use crate::tables::LookupCache;

/// A lane, in a slot that is reused.
#[repr(C, align(128))]
pub(crate) struct Lane {
    /// Odd while the lane's thread is within an event.
    pub(crate) events: AtomicU32,
    /// The generation of the buffer.
    pub(crate) generation: AtomicU32,
    /// Null when there is none. Changed only with the lock held.
    pub(crate) buffer: AtomicPtr<Buffer>,
    /// The kernel's number of the thread that holds it; 0 for none.
    lock: HolderLock<AtomicU32>,
    /// 1 when events were lost since the last buffer.
    is_lossy: AtomicU32,
    /// The goroutine of the thread, as in [`crate::generation::LaneRecords`]; 0 while the lane is free.
    pub(crate) goroutine: AtomicU64,
    pub(crate) thread_id: AtomicU32,
    index: SlotIndex,
    /// Used by the thread within an event.
    pub(crate) cache: UnsafeCell<LookupCache>,
}

// SAFETY: `cache` is used only by the lane's thread within an event, or by the thread that holds the shared lane.
unsafe impl Sync for Lane {}

// SAFETY: numbers, and pointers that may be null, for which zero is valid. Nothing in the lane is dropped.
unsafe impl Slot for Lane {
    fn index(&self) -> &SlotIndex {
        &self.index
    }
}

impl Default for Lane {
    fn default() -> Self {
        Self::new()
    }
}

impl Lane {
    rtprof_runtime::const_fn! {
        pub(crate) const fn new() -> Self {
            Self {
                events: AtomicU32::new(0),
                generation: AtomicU32::new(0),
                buffer: AtomicPtr::new(core::ptr::null_mut()),
                lock: HolderLock::new(AtomicU32::new(0)),
                is_lossy: AtomicU32::new(0),
                goroutine: AtomicU64::new(0),
                thread_id: AtomicU32::new(0),
                index: SlotIndex::new(),
                cache: UnsafeCell::new(LookupCache::new()),
            }
        }
    }

    /// Locks the lane's buffer for the thread `thread_id`, until the guard is dropped. Returns `None` when `gives_up`
    /// returns `true`; it receives the number of tries and the holder.
    pub(crate) fn lock(&self, thread_id: u32, gives_up: impl Fn(u32, u32) -> bool) -> Option<Locked<'_>> {
        take(&self.lock, thread_id, gives_up).then(|| Locked(self))
    }

    /// Releases the lock if the thread `dead` holds it.
    pub(crate) fn unlock_for(&self, dead: u32) {
        self.lock.release_for(dead);
    }
}

/// Takes a lock for a thread, with a wait between tries. Returns `false` when `gives_up` returns `true`.
pub(crate) fn take(
    lock: &HolderLock<AtomicU32>,
    thread_id: u32,
    gives_up: impl Fn(u32, u32) -> bool,
) -> bool {
    lock.take(thread_id, |tries, holder| {
        let gives_up = gives_up(tries, holder);
        if !gives_up {
            wait(tries);
        }
        gives_up
    })
}

/// Whether a lock is held by the calling thread itself, interrupted by a signal handler that wants the lock and would
/// wait for ever. (In models all threads have one number, and there are no handlers.)
pub(crate) fn is_own(holder: u32, own: u32) -> bool {
    !cfg!(loom) && holder == own
}

/// Guard of the lane's lock.
pub(crate) struct Locked<'a>(&'a Lane);

impl Locked<'_> {
    /// Takes the buffer out of the lane.
    pub(crate) fn take(&self) -> Option<&'static Buffer> {
        self.0.generation.store(0, Ordering::Relaxed);
        // The lock provides Acquire and Release.
        let buffer = self.0.buffer.swap(core::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the pointer is null or points to a slot, which is never freed.
        unsafe { buffer.as_ref() }
    }

    /// Puts a buffer into the lane.
    pub(crate) fn put(&self, buffer: &'static Buffer, generation: u32) {
        self.0.buffer.store((&raw const *buffer).cast_mut(), Ordering::Relaxed);
        self.0.generation.store(generation, Ordering::Relaxed);
    }

    /// Notes that events are lost from here on. Returns `true` if none was lost before.
    pub(crate) fn begin_loss(&self) -> bool {
        self.0.is_lossy.swap(1, Ordering::Relaxed) == 0
    }

    /// Returns whether events were lost, and clears the note.
    pub(crate) fn end_loss(&self) -> bool {
        self.0.is_lossy.swap(0, Ordering::Relaxed) != 0
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.lock.release();
    }
}

/// Waits between two tries of something that another thread is about to make possible: first spins, then yields to
/// other threads, then sleeps.
pub(crate) fn wait(tries: u32) {
    match tries {
        0..64 => spin_loop(),
        64..256 => hidden::hiding(Calls::WAITS, yield_now),
        _ => nap(),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_try_that_gives_up_leaves_the_lock_to_its_holder() {
        let lane = Lane::new();
        let held = lane.lock(1, |_, _| true);
        assert!(held.is_some());
        assert!(lane.lock(2, |tries, holder| (tries, holder) == (3, 1)).is_none());
        assert_eq!(lane.lock.holder(), 1);
        drop(held);
        assert!(lane.lock(2, |_, _| true).is_some());
    }
}
