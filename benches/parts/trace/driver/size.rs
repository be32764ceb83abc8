//! Measures the size of an event, in the buffers and in the file.

use std::io;

use crate::binaries::{Binaries, Build};
use crate::budgets::TRACE_BYTES;
use crate::child::Child;
use crate::effort::Effort;
use crate::table::{Row, Table, Unit};

struct Case {
    name: &'static str,
    /// The request to the part, in a trace that records nothing else.
    request: &'static str,
    /// Whether the budget applies to such events in a file too. This depends on the format: a region takes seven bytes
    /// in Go's, and a message takes its length.
    is_compact: bool,
    anchor: &'static str,
}

const CASES: [Case; 6] = [
    Case {
        name: "channel ping-pong",
        request: "job channel one-core 40000",
        is_compact: true,
        anchor: "Go 1.21 3.3 B, 1.27 5.6 B",
    },
    Case { name: "condition ping-pong", request: "job condvar one-core 40000", is_compact: true, anchor: "" },
    Case {
        name: "yield",
        request: "job yield one-core 300000",
        is_compact: true,
        anchor: "Go 1.21 3.0 B, 1.27 5.0 B",
    },
    Case { name: "pool, jobs of 1 µs", request: "pool 1000 300", is_compact: true, anchor: "" },
    Case {
        name: "regions",
        request: "event pair 0 4 1 300000",
        is_compact: false,
        anchor: "Go 1.21 7.0 B, 1.27 5.0 B",
    },
    Case {
        name: "logs of 24 bytes",
        request: "event log 0 4 1 300000",
        is_compact: false,
        anchor: "Go 1.21 14.0 B, 1.27 19.9 B",
    },
];

/// Measures each case in a separate trace.
pub(super) fn measure(binaries: &Binaries, _: &Effort, table: &mut Table) -> io::Result<()> {
    for case in &CASES {
        let mut child = Child::start(&binaries.path(Build::Plain, "part-trace"))?;
        child.ask("begin")?;
        child.ask(case.request)?;
        let [events, recorded, bytes, dropped] = child.numbers("end")?;
        let row = |who: &str, bytes: f64| {
            let each = bytes / events;
            let row = Row::of(format!("bytes of an event: {}", case.name), who, &[each], Unit::Bytes);
            (each, row.samples([events, dropped]))
        };
        let (each, in_buffers) = row("in the buffers", recorded);
        table.add(match case.name {
            "logs of 24 bytes" => in_buffers,
            _ => in_buffers.within(&TRACE_BYTES.limit, each),
        });
        let (each, in_file) = row("in the file, for one in the buffers", bytes);
        table.add(match case.is_compact {
            true => in_file.keeps(&TRACE_BYTES, each),
            false => in_file,
        });
        table.amend(|row| row.anchor = case.anchor);
    }
    Ok(())
}
