//! Lanes that belong to no thread, for events of threads without a lane, and of signal handlers that have interrupted
//! an event.

use rtprof_runtime::lock::holder_lock::HolderLock;
use rtprof_runtime::primitive::AtomicU32;

use crate::lane::Lane;

/// Shared lanes for signal handlers. A handler cannot wait for a lane: the holder may be the interrupted thread, and
/// the wait costs that thread processor time. So there are several lanes, and a handler takes a free one. (None in
/// models, which would try every order in which the drain visits them.)
const HANDLER_LANES: usize = if cfg!(loom) { 0 } else { 4 };
/// The first is for all kinds of events, the others are for signal handlers.
pub(crate) type SharedLanes = [SharedLane; 1 + HANDLER_LANES];

/// A lane that belongs to no thread. Its holder has exclusive access for one event.
pub(crate) struct SharedLane {
    pub(crate) lane: Lane,
    /// The kernel's number of the thread that holds it; 0 for none.
    pub(crate) holder: HolderLock<AtomicU32>,
}

impl SharedLane {
    rtprof_runtime::const_fn! {
        /// Returns all shared lanes. Each has its index as the number, where a thread's lane has the kernel's number of
        /// the thread.
        pub(crate) const fn all() -> SharedLanes {
            let mut all: SharedLanes =
                rtprof_runtime::array_of![SharedLane { lane: Lane::new(), holder: HolderLock::new(AtomicU32::new(0)) }; 1 + HANDLER_LANES];
            let mut number = 0;
            while number < all.len() {
                all[number].lane.thread_id = AtomicU32::new(number as u32);
                number += 1;
            }
            all
        }
    }

    /// Frees the lane of a holder that has died. The records that it wrote of an event are whole.
    pub(crate) fn free(&self, dead: u32) {
        self.lane.unlock_for(dead);
        self.holder.release_for(dead);
    }
}
