//! Measures execution traces: the cost and the size of an event, the cost for programs, and reading.

mod event;
mod flight;
mod job;
mod off;
mod pool;
mod session;
mod size;

use std::io;

use crate::binaries::Binaries;
use crate::effort::Effort;
use crate::table::Table;

/// The name of an A/A control.
const AGAIN: &str = "the same again (A/A)";

/// Measures everything about traces and adds its rows.
pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    event::measure(binaries, effort, table)?;
    off::measure(binaries, effort, table)?;
    size::measure(binaries, effort, table)?;
    job::measure(binaries, effort, table)?;
    pool::measure(binaries, effort, table)?;
    flight::measure(binaries, effort, table)?;
    session::measure(binaries, effort, table)
}
