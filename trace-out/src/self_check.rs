//! Checks of what is written, while it is written. For the tests of rtprof's own repository.

use std::sync::OnceLock;

/// Is called with each event of a trace: its P, its tick, its number on the wire and its arguments; and with `None` at the
/// end. Panics if the event must not follow those before it.
pub type EventCheck = Box<dyn FnMut(Option<(u64, u64, u8, &[u64])>) + Send>;

static MAKE: OnceLock<fn() -> EventCheck> = OnceLock::new();

/// Has the events of each trace from now on checked by what `make` returns for it. The first caller's holds.
pub fn check_events_with(make: fn() -> EventCheck) {
    let _ = MAKE.set(make);
}

pub(crate) fn start() -> Option<EventCheck> {
    #[cfg(test)]
    let _ = MAKE.set(rtprof_trace_check::event_check);
    MAKE.get().map(|make| make())
}
