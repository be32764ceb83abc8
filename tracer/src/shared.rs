//! Lanes that belong to no thread, for events of threads without a lane, and of signal handlers that have interrupted
//! an event.

use rtprof_runtime::holder_lock::HolderLock;
use rtprof_runtime::primitive::AtomicU32;

use crate::lane::{Lane, is_own, take};
use crate::lane_writer::LaneWriter;
use crate::recorder::{Patience, Recorder};

/// Shared lanes for signal handlers. A handler cannot wait for a lane: the holder may be the interrupted thread, and
/// the wait costs that thread processor time. So there are several lanes, and a handler takes a free one. (None in
/// models, which would try every order in which the reader visits them.)
const HANDLER_LANES: usize = if cfg!(loom) { 0 } else { 4 };
/// How often a handler tries each lane.
const HANDLER_ROUNDS: usize = 8;
/// Tries of an event to get the shared lane, whose holder may be any thread.
const SHARED_TRIES: u32 = 250;

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

impl Recorder {
    /// Runs `f` in an event in the shared lane, for the thread with the kernel's number `thread_id`. `None` when
    /// nothing is recorded, or if another thread holds the lane for too long, or this thread itself does, interrupted
    /// by a signal handler.
    pub(crate) fn with_shared_writer<R>(
        &'static self,
        thread_id: u32,
        f: impl FnOnce(&mut LaneWriter<'_>) -> R,
    ) -> Option<R> {
        self.record_shared(thread_id, |tries, holder| is_own(holder, thread_id) || tries > SHARED_TRIES, f)
    }

    /// Like [`Recorder::with_shared_writer`], in a lane for signal handlers: `None` also if handlers whose threads were
    /// preempted hold all of them.
    pub(crate) fn with_handler_writer<R>(
        &'static self,
        thread_id: u32,
        f: impl FnOnce(&mut LaneWriter<'_>) -> R,
    ) -> Option<R> {
        let lanes = &self.shared[1..];
        let places = (thread_id as usize..).take(HANDLER_ROUNDS * lanes.len());
        let mut lanes = places.map(|place| &lanes[place % lanes.len()]);
        let taken = lanes.find(|shared| shared.holder.try_take(thread_id).is_ok())?;
        self.in_shared(taken, f)
    }

    /// Like [`Recorder::with_shared_writer`], for the reader, which waits for the lane unless its holder is dead.
    pub(crate) fn with_patient_shared_writer<R>(
        &'static self,
        patience: &Patience<'_>,
        f: impl FnOnce(&mut LaneWriter<'_>) -> R,
    ) -> Option<R> {
        let gives_up = |tries, holder| patience.ends(tries, holder, |dead| self.shared[0].free(dead));
        self.record_shared(patience.own, gives_up, f)
    }

    fn record_shared<R>(
        &'static self,
        thread_id: u32,
        gives_up: impl Fn(u32, u32) -> bool,
        f: impl FnOnce(&mut LaneWriter<'_>) -> R,
    ) -> Option<R> {
        let shared = &self.shared[0];
        if !take(&shared.holder, thread_id, gives_up) {
            return None;
        }
        self.in_shared(shared, f)
    }

    /// Runs `f` in an event in this shared lane, which the thread has taken.
    fn in_shared<R>(
        &'static self,
        shared: &SharedLane,
        f: impl FnOnce(&mut LaneWriter<'_>) -> R,
    ) -> Option<R> {
        let mut writer = LaneWriter::new(self, &shared.lane, self.generation());
        if writer.generation() == 0 {
            return None;
        }
        writer.open();
        Some(f(&mut writer))
    }
}
