//! Events that come in no order, because several threads have them: they are sorted at the end of a generation.

use super::event::TrackEvent;
use super::sequence::Apart;

/// The events of a sequence, with their tracks and times.
#[derive(Default)]
pub(super) struct Unordered {
    events: Vec<(u64, u64, TrackEvent)>,
}

impl Unordered {
    pub(super) fn put(&mut self, track: u64, time: u64, event: TrackEvent) {
        self.events.push((time, track, event));
    }

    #[cfg(test)]
    pub(super) fn events(&self) -> &[(u64, u64, TrackEvent)] {
        &self.events
    }

    /// Moves all events to a sequence. Those of one time keep their order.
    pub(super) fn sort_into(&mut self, id: u32, to: &mut Apart) {
        self.events.sort_by_key(|&(time, ..)| time);
        for (time, track, event) in self.events.drain(..) {
            to.sequence.put(&mut to.body, id, track, time, &event);
        }
    }
}
