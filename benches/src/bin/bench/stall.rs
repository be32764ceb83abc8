//! The row of a pause that snapshots cause, which has the same limit for threads and for tasks.

use rtprof_benches::statistics::median;

use crate::budgets::STALL;
use crate::limit::Measured;
use crate::table::{Row, Unit};

/// The part of the machine's own pauses that may be added where they are long.
const PART: f64 = 0.25;

/// Makes the row of the longest pauses in milliseconds, with snapshots and in an equal time without.
///
/// Beside other programs the kernel takes the core away for milliseconds, with snapshots and without, and the longest of
/// these pauses differs by more than the limit from one time to the next. So the limit is a quarter of the pause without, if
/// that is more.
pub(crate) fn row(what: String, with: &[f64], without: &[f64]) -> Row {
    let limit = STALL.limit.bound;
    let slowdown = (PART * median(without) / limit).max(1.0);
    Row::of(what, "goroutine_profile", with, Unit::Millis)
        .against("as long without", with, without, Unit::Millis)
        .keeps(&STALL, Measured::excess(with, without).slowed(slowdown))
        .anchor("Go 0.14 to 0.17 ms")
}
