//! `debug=1` of the block and mutex profiles: text for people, which `go tool pprof` reads as well.
//!
//! # Where it differs from Go's
//!
//! A reader multiplies counts and ticks by the sampling period, if the text has such a line, and divides the ticks
//! by `cycles/second`; if the period is 0 it does neither. Records are scaled to all waits already, here as in Go.
//! Go writes the period of the mutex profile all the same, so that its reader scales twice: at a fraction of 10
//! the totals are ten times too large, and after the profile was switched off ticks pass for nanoseconds. So with
//! records the period is 1 here, whatever the fraction is or was: whoever multiplies gets the truth, and so does
//! whoever does not. A remark tells the fraction. Without records the line is Go's. The block profile has no
//! such line, and needs none: a reader takes its period for 1.
//!
//! Beyond Go's form there are lines for labels, remarks, and the mapped binaries, without which a reader could not
//! symbolize a profile of a program that moves about in memory. Hidden functions (`prune`) are left out of the
//! addresses too, where whole addresses are hidden.

use std::fmt::Write as _;
use std::io;

use crate::contention::{Contention, ContentionRecords};
use crate::sink::Sink;
use crate::text;
use rtprof_symbols::locations::Locations;
use rtprof_symbols::view::View;

/// Writes the text form. Go: `writeProfileInternal`.
pub(crate) fn write(contention: &ContentionRecords<'_>, view: View, sink: &mut Sink<'_>) -> io::Result<()> {
    let mut locations = Locations::new(view);
    locations.prepare(contention.stacks());
    let mut text = header(contention);
    let mut bytes = Vec::new();
    let most = most_cycles(contention);
    for record in contention.shown(&mut locations) {
        let frames = locations.event(record.stack);
        let _ = write!(text, "{} {}", record.cycles.min(most), record.count);
        text::addresses(&mut text, &frames, frames.hidden_at_leaf());
        text.push('\n');
        text::labels(&mut text, record.labels);
        text::lines(&mut text, &frames);
        text.push('\n');
        bytes.extend_from_slice(text.as_bytes());
        text.clear();
        sink.drain_chunk(&mut bytes)?;
    }
    text::comments(&mut text, &locations.comments(&contention.comments));
    if !contention.records.is_empty() {
        text::memory_map(&mut text, locations.unambiguous_modules());
    }
    bytes.extend_from_slice(text.as_bytes());
    sink.drain(&mut bytes)?;
    sink.flush()
}

fn header(contention: &ContentionRecords<'_>) -> String {
    let title = match contention.kind {
        Contention::Block => "contention",
        Contention::Mutex => "mutex",
    };
    let mut text = format!("--- {title}:\ncycles/second={}\n", contention.ticks_per_second);
    if contention.kind == Contention::Mutex {
        let period = if contention.records.is_empty() { contention.fraction } else { 1 };
        let _ = writeln!(text, "sampling period={period}");
        if contention.fraction > 1 {
            let _ = writeln!(
                text,
                "# rtprof: one contended unlock in {} is recorded; the numbers stand for all of them",
                contention.fraction
            );
        }
    }
    text
}

/// The most ticks that a reader can make nanoseconds of: it computes in floating point and converts without a look
/// at the size. A millionth less, for its rounding.
fn most_cycles(contention: &ContentionRecords<'_>) -> u64 {
    (i64::MAX as f64 * contention.gigahertz().min(1.0) * 0.999_999) as u64
}
