//! Turns a trace on and off, for parts that measure with a trace and without.

/// Starts a trace whose output is discarded, or stops it.
///
/// # Panics
/// When a trace is being recorded already, or none is.
pub(crate) fn set_trace(on: bool) {
    if on {
        rtprof::trace::start(std::io::sink()).expect("no other trace goes on");
    } else {
        rtprof::trace::stop().expect("a trace goes on");
    }
}
