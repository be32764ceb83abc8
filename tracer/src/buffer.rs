//! A buffer of records: 64 KiB of a mapping of our own, owned by one thread at a time.

use rtprof_profiler::primitive::{AtomicPtr, UnsafeCell};
use rtprof_profiler::slots::{Place, Slot};

use crate::record::{MAX_PLAIN, MAX_RECORD};

/// Bytes of a buffer, its head included.
#[cfg(not(loom))]
pub(crate) const BUFFER_SIZE: usize = 64 << 10;
#[cfg(loom)]
pub(crate) const BUFFER_SIZE: usize = HEAD + MAX_EVENT + 16;

const HEAD: usize = 256;

/// The most bytes that one event writes: up to three records that declare goroutines or change their state, and one
/// more that may have a message.
pub(crate) const MAX_EVENT: usize = 3 * MAX_PLAIN + MAX_RECORD;

/// The records.
pub(crate) type Bytes = [u8; BUFFER_SIZE - HEAD];

/// What a buffer holds.
#[repr(C)]
pub(crate) struct Body {
    /// The generation of all its records.
    pub(crate) generation: u32,
    /// See [`crate::generation::LaneRecords`].
    pub(crate) thread_id: u32,
    pub(crate) thread: u64,
    pub(crate) is_over: bool,
    /// See [`crate::generation::Buffered`].
    pub(crate) is_after_loss: bool,
    pub(crate) goroutine: u64,
    /// The tick that the first delta counts from.
    pub(crate) base: u64,
    /// The tick of the last record.
    pub(crate) last: u64,
    /// Records, and their bytes.
    pub(crate) count: u32,
    pub(crate) len: usize,
    pub(crate) bytes: Bytes,
}

/// A buffer, in a slot that is used again and again.
#[repr(C, align(4096))]
pub(crate) struct Buffer {
    place: Place,
    /// The next one in the queue of full ones.
    pub(crate) next: AtomicPtr<Buffer>,
    /// Its owner's: the thread in whose lane it is, within its turn; who has taken it out of there under the lane's
    /// lock; and then the reader.
    pub(crate) body: UnsafeCell<Body>,
}

// SAFETY: `body` has one owner at a time, as said there; handing over orders the owners.
unsafe impl Sync for Buffer {}

// SAFETY: numbers, flags and pointers, for all of which zero is valid. Nothing in it is dropped.
unsafe impl Slot for Buffer {
    fn place(&self) -> &Place {
        &self.place
    }

    #[cfg(loom)]
    fn vacant() -> Self {
        let body = Body {
            generation: 0,
            thread_id: 0,
            thread: 0,
            is_over: false,
            is_after_loss: false,
            goroutine: 0,
            base: 0,
            last: 0,
            count: 0,
            len: 0,
            bytes: [0; BUFFER_SIZE - HEAD],
        };
        let next = AtomicPtr::new(core::ptr::null_mut());
        Self { place: Place::default(), next, body: UnsafeCell::new(body) }
    }
}

impl Buffer {
    /// Gives most of its memory back to the kernel, until it is written to again.
    ///
    /// # Safety
    /// The buffer is free, and nobody takes it meanwhile.
    #[cfg(not(loom))]
    pub(crate) unsafe fn discard(&self) {
        use rtprof_profiler::mapping::{PAGE, discard};
        let begin = core::ptr::NonNull::from(self).cast::<u8>();
        // Its place in the list of free ones stays.
        // SAFETY: pages of this buffer, in a mapping of ours; nobody needs what is in them, by the caller's promise.
        let _ = unsafe { discard(begin.add(PAGE), BUFFER_SIZE - PAGE) };
    }
}

impl Body {
    /// Whether a whole event fits.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.len <= self.bytes.len() - MAX_EVENT
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Buffer>() == BUFFER_SIZE);
