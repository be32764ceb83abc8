//! A buffer of records: a piece of a mapping of our own, owned by one thread at a time.
//!
//! There are two sizes. A thread begins every generation in a small buffer, and goes on in a large one when the small
//! one is full: ten thousand threads that record little hold 20 MiB instead of 640.

use rtprof_runtime::memory::slots::{Slot, SlotIndex};
use rtprof_runtime::primitive::{AtomicPtr, AtomicU32, Ordering, UnsafeCell};

use crate::record::{MAX_PLAIN, Writer};

/// The most bytes that one event writes: up to three records that declare goroutines or change their state, and the
/// event's own record. The message of a log comes on top of that.
const MAX_EVENT: usize = 8 * MAX_PLAIN;

/// Bytes of a small buffer, its head included.
pub(crate) const SMALL: usize = 2 << 10;
/// Bytes of a large buffer, its head included.
pub(crate) const LARGE: usize = 64 << 10;

#[cfg(not(loom))]
const fn room(size: usize) -> usize {
    size - size_of::<Buffer>()
}
/// In models few events fill a buffer.
#[cfg(loom)]
const fn room(_: usize) -> usize {
    MAX_EVENT + 16
}

pub(crate) type Small = Piece<{ room(SMALL) }>;
pub(crate) type Large = Piece<{ room(LARGE) }>;

/// Points to a buffer's bytes.
struct Room(*mut [u8]);

impl Default for Room {
    fn default() -> Self {
        Self(core::ptr::slice_from_raw_parts_mut(core::ptr::null_mut(), 0))
    }
}

/// What a buffer holds.
#[derive(Default)]
pub(crate) struct Body {
    /// The generation of all its records.
    pub(crate) generation: u32,
    /// See [`crate::generation::LaneRecords`].
    pub(crate) thread_id: u32,
    pub(crate) own_goroutine: u64,
    pub(crate) is_over: bool,
    /// See [`crate::generation::Buffered`].
    pub(crate) is_after_loss: bool,
    pub(crate) goroutine: u64,
    /// The tick that the first delta counts from.
    pub(crate) base: u64,
    /// The tick of the last record.
    pub(crate) last: u64,
    /// The number of records, and their bytes.
    pub(crate) count: u32,
    pub(crate) len: usize,
    /// Where the records are, in the same piece. Set when the buffer is taken, and valid while it is in use.
    room: Room,
}

/// The head of a buffer, in a slot that is reused.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Buffer {
    index: SlotIndex,
    /// The next buffer in the queue of full ones.
    pub(crate) next: AtomicPtr<Buffer>,
    /// [`SMALL`] or [`LARGE`]; 0 before it was ever taken.
    size: AtomicU32,
    /// Belongs to one owner at a time: the thread in whose lane the buffer is, within an event; then the thread that
    /// has taken it out of the lane under the lane's lock; then the drain.
    pub(crate) body: UnsafeCell<Body>,
}

/// A buffer with room for `ROOM` bytes of records.
#[repr(C, align(128))]
pub(crate) struct Piece<const ROOM: usize> {
    head: Buffer,
    bytes: core::cell::UnsafeCell<[u8; ROOM]>,
}

// SAFETY: `body` has one owner at a time (see the field), and each hand-over orders the owners. The bytes that `room`
// points to live as long as the buffer, and belong to its owner.
unsafe impl Sync for Buffer {}

// SAFETY: `bytes` are reached only through the body of the head.
unsafe impl<const ROOM: usize> Sync for Piece<ROOM> {}

// SAFETY: numbers, flags and pointers, for all of which zero is valid. Nothing in the slot is dropped.
unsafe impl<const ROOM: usize> Slot for Piece<ROOM> {
    fn index(&self) -> &SlotIndex {
        &self.head.index
    }
}

impl<const ROOM: usize> Default for Piece<ROOM> {
    fn default() -> Self {
        Self { head: Buffer::default(), bytes: core::cell::UnsafeCell::new([0; ROOM]) }
    }
}

impl<const ROOM: usize> Piece<ROOM> {
    /// Returns the buffer, which the caller alone owns from now on, and which counts as `size` bytes.
    pub(crate) fn open(&self, size: usize) -> &Buffer {
        self.head.size.store(size as u32, Ordering::Relaxed);
        // SAFETY: the caller has just taken the slot and is its only owner.
        self.head.body.with_mut(|body| unsafe { (*body).room = Room(self.bytes.get()) });
        &self.head
    }
}

impl Buffer {
    pub(crate) fn index(&self) -> &SlotIndex {
        &self.index
    }

    /// Returns the buffer's bytes, head included: [`SMALL`] or [`LARGE`].
    pub(crate) fn size(&self) -> usize {
        self.size.load(Ordering::Relaxed) as usize
    }
}

impl Body {
    /// Whether a whole event fits, with a message of `message` bytes.
    #[inline]
    pub(crate) fn has_room(&self, message: usize) -> bool {
        self.len + MAX_EVENT + message <= self.room.0.len()
    }

    /// Returns a writer that appends after the last record.
    #[inline]
    pub(crate) fn writer(&mut self) -> Writer<'_> {
        // SAFETY: `room` was set by `open`; it points into a slot, which is never freed, and this body's owner alone
        // uses it.
        Writer::new(unsafe { &mut *self.room.0 }, self.len)
    }

    /// Returns the bytes of the buffer's records.
    pub(crate) fn records(&self) -> &[u8] {
        // SAFETY: `room` was set by `open` and points into a slot, which is never freed; the body is shared between
        // readers only after the last write.
        unsafe { &(&*self.room.0)[..self.len] }
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Small>() == SMALL && size_of::<Large>() == LARGE);
#[cfg(not(loom))]
const _: () = assert!(room(SMALL) >= MAX_EVENT + crate::record::MAX_STRING, "an empty one takes every event");
