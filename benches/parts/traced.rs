//! A trace, for parts that do the same with one and without.

/// Starts a trace that goes nowhere, or stops it.
///
/// # Panics
/// When there is one already, or none.
pub(crate) fn set_trace(on: bool) {
    if on {
        rtprof::trace::start(std::io::sink()).expect("no other trace goes on");
    } else {
        rtprof::trace::stop().expect("a trace goes on");
    }
}
