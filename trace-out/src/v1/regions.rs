//! The ends of regions.

use crate::order::EventPosition;

use super::event::EventType;
use super::events::{Events, Writing};

impl Writing<'_> {
    /// The region with this task and name is over, and so are those that were begun in it.
    pub(super) fn region_end(&mut self, at: EventPosition, tick: u64, key: (u64, u64)) {
        let Some(proc) = self.running(at) else { return };
        let Events { goroutines, procs, unmatched, .. } = &mut *self.events;
        let regions = &mut goroutines[at.goroutine].regions;
        let Some(from) = regions.iter().rposition(|&open| open == key) else {
            unmatched.region_ends += 1;
            return;
        };
        // The end of an inner one was lost, or comes too late. Readers want the innermost first.
        for (task, name) in regions.drain(from..).rev() {
            procs.put(proc, tick, EventType::UserRegion, [task, 1, name, 0]);
        }
    }
}
