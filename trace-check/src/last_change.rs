//! The last change of something of which only one is open at a time: a collection, a stop of the world.

use super::invalid::Violation;

/// The P and the tick of the last change of a global state.
#[derive(Debug, Default)]
pub(super) struct LastChange {
    pub(super) is_open: bool,
    place: Option<(u64, u64)>,
}

impl LastChange {
    pub(super) fn set(&mut self, is_open: bool, p: u64, tick: u64, what: &str) -> Result<(), Violation> {
        // Go's tools order such events by their times alone, and events of one tick arbitrarily.
        if self.place.is_some_and(|(last_p, last_tick)| last_p != p && tick <= last_tick) {
            let text = format!("bogus {what}: it is not after the one before, which was on another P");
            return Err(Violation::refused(text));
        }
        self.is_open = is_open;
        self.place = Some((p, tick));
        Ok(())
    }
}
