//! What there is one of: a collection, a stop of the world.

use super::invalid::Violation;

/// Where, and in which tick, something global changed last.
#[derive(Debug, Default)]
pub(super) struct LastChange {
    pub(super) is_open: bool,
    place: Option<(u64, u64)>,
}

impl LastChange {
    pub(super) fn set(&mut self, is_open: bool, p: u64, tick: u64, what: &str) -> Result<(), Violation> {
        // Go's tools order such events by their times alone, and those of one tick as it happens.
        if self.place.is_some_and(|(last_p, last_tick)| last_p != p && tick <= last_tick) {
            let text = format!("bogus {what}: it is not after the one before, which was on another P");
            return Err(Violation::refused(text));
        }
        self.is_open = is_open;
        self.place = Some((p, tick));
        Ok(())
    }
}
