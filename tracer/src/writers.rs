//! Writers for events: in the lane of a thread, or in a shared one.

use rtprof_runtime::primitive::Ordering;

use crate::lane::{Lane, is_own, take};
use crate::lane_writer::LaneWriter;
use crate::recorder::{Patience, Recorder};
use crate::shared::SharedLane;

/// How often a handler tries each lane.
const HANDLER_ROUNDS: usize = 8;
/// Tries of an event to get the shared lane, whose holder may be any thread.
const SHARED_TRIES: u32 = 250;

impl Recorder {
    /// Runs `f` in an event of a thread in its lane. `None` when nothing is recorded, or if this is a signal handler
    /// that has interrupted another event.
    #[inline(always)]
    pub(crate) fn with_writer<R>(
        &'static self,
        lane: &Lane,
        f: impl FnOnce(&mut LaneWriter<'_>) -> R,
    ) -> Option<R> {
        let begun = lane.events.load(Ordering::Relaxed);
        if begun & 1 != 0 {
            return None;
        }
        // Release: the drain that waits for the previous event may see this store first.
        lane.events.store(begun.wrapping_add(1), Ordering::Release);
        self.epoch.barrier.light();
        let mut writer = LaneWriter::new(self, lane, self.generation());
        if writer.generation() == 0 {
            return None;
        }
        writer.open();
        Some(f(&mut writer))
    }

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

    /// Like [`Recorder::with_shared_writer`], for the drain, which waits for the lane unless its holder is dead.
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
