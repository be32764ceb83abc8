//! The buffers of a trace, and the limit of the memory in use.

use rtprof_runtime::memory::slots::SlotTable;
use rtprof_runtime::primitive::{AtomicUsize, Ordering};

use crate::buffer::{Buffer, LARGE, Large, SMALL, Small};

/// The smallest limit: enough for a few busy threads, and some for the drain.
const LEAST: usize = 16 * LARGE;

pub(crate) struct Buffers {
    small: SlotTable<Small>,
    large: SlotTable<Large>,
    /// Bytes of the buffers in use, and the limit. Free buffers keep their memory until the trace is over, so that
    /// resident memory may be twice the limit: all of it in small buffers first, all in large ones later.
    used: AtomicUsize,
    limit: AtomicUsize,
}

impl Buffers {
    rtprof_runtime::const_fn! {
        pub(crate) const fn new() -> Self {
            let (used, limit) = (AtomicUsize::new(0), AtomicUsize::new(LEAST));
            Self { small: SlotTable::new(), large: SlotTable::new(), used, limit }
        }
    }

    /// Sets the limit, and returns the limit that applies: at least 1 MiB.
    pub(crate) fn set_limit(&self, bytes: usize) -> usize {
        let bytes = bytes.max(LEAST);
        self.limit.store(bytes, Ordering::Relaxed);
        bytes
    }

    /// Takes a buffer for the caller alone: a large one if the lane has filled one already in this generation and
    /// memory permits, else a small one. Safe to call in a hook.
    pub(crate) fn take(&self, has_filled_one: bool) -> Option<&Buffer> {
        let large =
            has_filled_one.then(|| self.within_limit(LARGE, || self.large.take().map(|new| new.open(LARGE))));
        large.flatten().or_else(|| self.within_limit(SMALL, || self.small.take().map(|new| new.open(SMALL))))
    }

    fn within_limit<'a>(
        &'a self,
        bytes: usize,
        take: impl FnOnce() -> Option<&'a Buffer>,
    ) -> Option<&'a Buffer> {
        let limit = self.limit.load(Ordering::Relaxed);
        let fits = |used: usize| Some(used + bytes).filter(|&used| used <= limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        let taken = take();
        if taken.is_none() {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }

    /// Gives back a buffer from [`Buffers::take`].
    pub(crate) fn give_back(&self, buffer: &Buffer) {
        let size = buffer.size();
        if size == SMALL {
            self.small.give_back_at(buffer.index());
        } else {
            self.large.give_back_at(buffer.index());
        }
        // Release: the uses of the buffer are over.
        self.used.fetch_sub(size, Ordering::Release);
    }

    /// Gives the memory of all buffers back to the kernel, unless one is in use.
    ///
    /// # Safety
    /// No thread takes a buffer during the call.
    pub(crate) unsafe fn clear(&self) {
        // Acquire: the uses of all buffers are over.
        if self.used.load(Ordering::Acquire) != 0 {
            return;
        }
        // SAFETY: `used` counts a buffer from before it is taken until after it is given back, so all are free; the
        // caller ensures that no thread takes one during the call.
        unsafe {
            self.small.clear();
            self.large.clear();
        }
    }
}
