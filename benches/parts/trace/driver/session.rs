//! Measures a trace as a whole: its start and stop, the reading of recorded data, and a long trace.

use std::io;

use rtprof_benches::statistics::median;

use crate::binaries::{Binaries, Build};
use crate::child::Child;
use crate::effort::Effort;
use crate::table::{Row, Table, Unit};

const THREADS: [usize; 2] = [10, 1_000];

/// The formats, and what they are called.
const FORMATS: [(&str, &str); 3] =
    [("v2", "one core"), ("v1", "one core, v1"), ("perfetto", "one core, Perfetto")];

/// Requests and names.
const READ: [(&str, &str, usize); 2] =
    [("regions", "regions, one thread", 900_000), ("channel", "channel ping-pong, two threads", 60_000)];

/// Events of the long trace.
const EVENTS: usize = 10_000_000;

/// Measures these and adds their rows.
pub(super) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    starts_and_stops(binaries, effort, table)?;
    readings(binaries, effort, table)?;
    long_traces(binaries, effort, table)
}

fn starts_and_stops(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let mut child = Child::start(&binaries.path(Build::Plain, "part-trace"))?;
    for threads in THREADS {
        child.ask(&format!("threads {threads}"))?;
        let (mut starts, mut stops, mut size) = (vec![], vec![], 0.0);
        for _ in 0..effort.sessions {
            let [start, stop, bytes] = child.numbers("session")?;
            starts.push(start / 1e6);
            stops.push(stop / 1e6);
            size = bytes;
        }
        let first = Unit::Millis.show(stops[0]);
        let what = |end| format!("{end} of a trace, {threads} threads that wait");
        table.add(Row::of(what("start"), "trace::start", &starts, Unit::Millis));
        table.add(
            Row::of(what("stop"), "trace::stop", &stops, Unit::Millis)
                .notes(format!("until the file of {size} B is written; the first one took {first}")),
        );
    }
    Ok(())
}

fn readings(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    for ((request, name, count), (format, who)) in
        READ.iter().flat_map(|read| FORMATS.map(|format| (*read, format)))
    {
        let (mut each, mut records_in_all, mut bytes) = (vec![], 0.0, [0.0; 2]);
        let (mut seconds, mut endings, mut lost) = (0.0, vec![], 0.0);
        for _ in 0..effort.drains {
            let mut child = Child::start(&binaries.path(Build::Plain, "part-trace"))?;
            let [records, recorded, file, nanos, dropped, ending] =
                child.numbers(&format!("drain {format} {request} {count}"))?;
            each.push(nanos / records);
            endings.push(ending / 1e6);
            records_in_all += records;
            seconds += nanos / 1e9;
            bytes = [bytes[0] + recorded, bytes[1] + file];
            lost += dropped;
        }
        let rate = |sum: f64| sum / seconds / 1e6;
        table.add(
            Row::of(format!("a record read and encoded: {name}"), who, &each, Unit::Nanos)
                .samples([records_in_all, lost])
                .notes(format!(
                    "{:.1} million records/s; {:.0} MB/s in, {:.0} MB/s out; before that once {:.1} ms for the names",
                    rate(records_in_all),
                    rate(bytes[0]),
                    rate(bytes[1]),
                    median(&endings)
                )),
        );
    }
    Ok(())
}

fn long_traces(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    for (format, who) in [("v2", "default options"), ("perfetto", "default options, Perfetto")] {
        long_trace(binaries, effort, (format, who), table)?;
    }
    Ok(())
}

fn long_trace(
    binaries: &Binaries,
    effort: &Effort,
    (format, who): (&str, &str),
    table: &mut Table,
) -> io::Result<()> {
    let (mut sizes, mut peaks, mut readings) = (vec![], vec![], vec![]);
    let mut counts = [0.0; 2];
    let mut notes = String::new();
    for _ in 0..effort.long_traces {
        let mut child = Child::start(&binaries.path(Build::Plain, "part-trace"))?;
        let [events, recorded, bytes, dropped, generations, peak, recording, whole, reading] =
            child.numbers(&format!("long {format} {EVENTS}"))?;
        sizes.push(bytes);
        peaks.push(peak);
        readings.push(reading * 1e3);
        counts = [counts[0] + events, counts[1] + dropped];
        notes = format!(
            "{:.2} B an event, {:.2} in the buffers; {generations} generations; recorded in {recording:.2} s, \
             written after {whole:.2} s",
            bytes / events,
            recorded / events
        );
    }
    let what = |of: &str| format!("a trace of 10 million events: {of}");
    let dropped = counts[1];
    table.add(Row::of(what("file"), who, &sizes, Unit::MebiBytes).samples(counts).budget(
        "none dropped",
        dropped == 0.0,
        "",
    ));
    table.amend(|row| row.notes = notes);
    table.add(
        Row::of(what("memory at the peak"), who, &peaks, Unit::MebiBytes)
            .notes("64 MiB of buffers at most, what is encoded, and the program's debug information once"),
    );
    table.add(Row::of(what("time of the reader"), who, &readings, Unit::Millis));
    Ok(())
}
