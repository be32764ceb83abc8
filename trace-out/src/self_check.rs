//! Checks of a trace's events while they are written. For the tests of rtprof's repository.

use std::sync::OnceLock;

/// Called with each event of a trace: its P, its tick, its number on the wire and its arguments; and with `None` at the
/// end. Panics if the event may not follow the events before it.
pub type EventCheck = Box<dyn FnMut(Option<(u64, u64, u8, &[u64])>) + Send>;

static MAKE: OnceLock<fn() -> EventCheck> = OnceLock::new();

/// Checks the events of each trace from now on with the function that `make` returns for it. Only the first call has an
/// effect.
pub fn check_events_with(make: fn() -> EventCheck) {
    let _ = MAKE.set(make);
}

pub(crate) fn start() -> Option<EventCheck> {
    #[cfg(test)]
    let _ = MAKE.set(rtprof_trace_check::event_check);
    MAKE.get().map(|make| make())
}
