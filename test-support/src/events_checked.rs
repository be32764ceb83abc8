//! The events of all traces are checked while they are written, in each test binary that links this crate.

extern "C" fn check_events() {
    rtprof_trace_out::self_check::check_events_with(rtprof_trace_check::event_check);
}

#[cfg(target_os = "linux")]
#[used]
// SAFETY: the constructor only sets a word.
#[unsafe(link_section = ".init_array")]
static CHECK_EVENTS: extern "C" fn() = check_events;
