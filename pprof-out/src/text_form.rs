//! `debug=1`: a snapshot as text for people, which `go tool pprof` reads as well.
//!
//! All kinds have the same layout: a header, for each record a line of numbers and addresses with its labels and
//! functions, and an end with remarks and the mapped binaries. Only the header, the numbers and the end differ.
//!
//! # Where contention profiles differ from Go's
//!
//! A reader multiplies counts and ticks by the sampling period, if the text has such a line, and divides the ticks by
//! `cycles/second`; if the period is 0 it does neither. The records are already scaled to all waits, here as in Go. Go
//! nevertheless writes the period of the mutex profile, so that its reader scales twice: at a fraction of 10 the totals
//! are ten times too large, and after the profile was switched off ticks are taken for nanoseconds. So here the period
//! is 1 if there are records, whatever the fraction is or was: a reader that multiplies gets the right values, and so
//! does one that does not. A remark states the fraction. Without records the line is Go's. The block profile has no
//! such line, and needs none: a reader takes its period for 1.
//!
//! Beyond Go's form there are lines for labels, remarks, and the mapped binaries, without which a reader could not
//! symbolize a profile of a position-independent program. Hidden functions (`prune`) are left out of the addresses too,
//! where whole addresses are hidden.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::io::{self, Write};

use rtprof_runtime::counters::CountedProfile;
use rtprof_runtime::process::own_files;
use rtprof_symbols::locations::Locations;
use rtprof_symbols::symbolizer::Symbolization;
use rtprof_symbols::view::View;

use crate::description::Description;
use crate::heap_values::{self, ALLOC_OBJECTS, ALLOC_SPACE, HeapValues, INUSE_OBJECTS, INUSE_SPACE};
use crate::kind::ProfileKind;
use crate::record::Record;
use crate::sink::Sink;
use crate::snapshot::Snapshot;
use crate::text;

impl Snapshot {
    /// Writes Go's text form, for people. `go tool pprof` reads it as well, but it does not contain the duration of a
    /// delta profile.
    ///
    /// # Errors
    /// Those of the writer; [`OutOfMemory`](io::ErrorKind::OutOfMemory) if a limit of the address space leaves too little.
    pub fn write_text(&self, mut w: impl Write, symbolization: Symbolization) -> io::Result<()> {
        self.check_room()?;
        write(self, self.view(symbolization), &mut Sink::new(&mut w))
    }
}

/// Writes the text form. Go: `writeProfileInternal`, `printCountProfile`, and the text form of `writeHeapInternal`.
fn write(snapshot: &Snapshot, view: View, sink: &mut Sink<'_>) -> io::Result<()> {
    let mut locations = snapshot.locations(view);
    match &snapshot.kind {
        ProfileKind::Heap { rate, .. } => write_heap(snapshot, *rate, &mut locations, sink),
        ProfileKind::Contention { of, ticks_per_second, fraction } => {
            let head = contention_head(of, *ticks_per_second, *fraction, snapshot.records.is_empty());
            let most = most_ticks(&snapshot.kind);
            let records = snapshot.records.iter().map(|record| {
                let [waits, ticks] = record.added();
                (format!("{} {waits}", ticks.min(most)), record)
            });
            write_samples(snapshot, head, records, &mut locations, sink)
        }
        ProfileKind::Count { .. } | ProfileKind::Custom { .. } => {
            write_counts(snapshot, snapshot.name(), &mut locations, sink)
        }
        ProfileKind::Cpu { .. } => write_counts(snapshot, "cpu", &mut locations, sink),
    }
}

/// Writes a text whose reader takes every line before the memory map for a sample.
fn write_samples<'r>(
    snapshot: &Snapshot,
    head: String,
    records: impl Iterator<Item = (String, &'r Record)>,
    locations: &mut Locations,
    sink: &mut Sink<'_>,
) -> io::Result<()> {
    write_framed(head, records, true, locations, sink, |text, locations| {
        text::comments(text, &locations.comments(&snapshot.comments));
        if !snapshot.records.is_empty() {
            text::memory_map(text, locations.unambiguous_modules());
        }
    })
}

/// Writes the common layout. `leaves_out_leaf` says that the addresses of hidden leaf functions are left out, because a
/// reader cannot learn otherwise that they are hidden.
fn write_framed<'r>(
    head: String,
    records: impl Iterator<Item = (String, &'r Record)>,
    leaves_out_leaf: bool,
    locations: &mut Locations,
    sink: &mut Sink<'_>,
    end: impl FnOnce(&mut String, &Locations),
) -> io::Result<()> {
    let mut text = head;
    let mut bytes = Vec::new();
    for (numbers, record) in records {
        if !record.is_shown(locations) {
            continue;
        }
        let frames = record.frames(locations);
        text.push_str(&numbers);
        text::addresses(&mut text, &frames, if leaves_out_leaf { frames.hidden_at_leaf() } else { 0 });
        text.push('\n');
        text::labels(&mut text, &record.labels);
        text::lines(&mut text, &frames);
        text.push('\n');
        bytes.extend_from_slice(text.as_bytes());
        text.clear();
        sink.drain_chunk(&mut bytes)?;
    }
    end(&mut text, locations);
    bytes.extend_from_slice(text.as_bytes());
    sink.drain(&mut bytes)?;
    sink.flush()
}

fn write_counts(
    snapshot: &Snapshot,
    name: &str,
    locations: &mut Locations,
    sink: &mut Sink<'_>,
) -> io::Result<()> {
    let counts = || snapshot.records.iter().map(|record| (record.added()[0], record));
    let total = counts().fold(0i64, |sum, (count, _)| sum.saturating_add(count));
    let head = format!("{name} profile: total {total}\n");
    let records = counts().map(|(count, record)| (count.to_string(), record));
    write_samples(snapshot, head, records, locations, sink)
}

fn contention_head(of: &Description, ticks_per_second: u64, fraction: i64, is_empty: bool) -> String {
    let is_mutex = of.counted == Some(CountedProfile::Mutex);
    let title = if is_mutex { "mutex" } else { "contention" };
    let mut text = format!("--- {title}:\ncycles/second={ticks_per_second}\n");
    if is_mutex {
        let period = if is_empty { fraction } else { 1 };
        let _ = writeln!(text, "sampling period={period}");
        if fraction > 1 {
            let _ = writeln!(
                text,
                "# rtprof: one contended unlock in {fraction} is recorded; the numbers stand for all of them"
            );
        }
    }
    text
}

/// Returns the most ticks that a reader can convert to nanoseconds: it computes in floating point and converts without
/// checking the size. A millionth is subtracted for its rounding.
fn most_ticks(kind: &ProfileKind) -> i64 {
    (i64::MAX as f64 * kind.gigahertz().min(1.0) * 0.999_999) as i64
}

/// Writes the records with the most bytes in use first, a summary in the manner of Go's `runtime.MemStats`, and the
/// mapped binaries.
fn write_heap(
    snapshot: &Snapshot,
    current_rate: usize,
    locations: &mut Locations,
    sink: &mut Sink<'_>,
) -> io::Result<()> {
    // pprof itself scales a profile of one rate, by the rate in the first line. It cannot scale records of several
    // rates, so these are written scaled and the line says rate 1.
    let rate = heap_values::single_rate(&snapshot.records, current_rate);
    let mut estimated = HeapValues::default();
    let mut shown = HeapValues::default();
    let mut records: Vec<(HeapValues, &Record)> = Vec::with_capacity(snapshot.records.len());
    for record in snapshot.records.iter() {
        let scaled = heap_values::estimated(record);
        let values = if rate.is_some() { heap_values::sampled(record) } else { scaled };
        for at in 0..values.len() {
            estimated[at] += scaled[at];
            shown[at] += values[at];
        }
        records.push((values, record));
    }
    records.sort_by_key(|(values, _)| Reverse((values[INUSE_SPACE], values[ALLOC_SPACE])));
    let records = records.into_iter().map(|(values, record)| (heap_numbers(values), record));
    write_framed(heap_head(shown, rate), records, false, locations, sink, |text, locations| {
        summary(text, estimated, &locations.comments(&snapshot.comments));
        text::mapped_libraries(text, locations.unambiguous_modules());
    })
}

fn heap_numbers(values: HeapValues) -> String {
    format!(
        "{}: {} [{}: {}]",
        values[INUSE_OBJECTS], values[INUSE_SPACE], values[ALLOC_OBJECTS], values[ALLOC_SPACE]
    )
}

fn heap_head(mut total: HeapValues, rate: Option<usize>) -> String {
    // If the sums are equal, a reader concludes that the profile does not distinguish allocated from in use, and reads
    // two columns instead of four. The sums have no other use.
    total[ALLOC_SPACE] += i64::from(total[INUSE_SPACE] == total[ALLOC_SPACE]);
    // An early C++ heap profiler wrote twice the rate, so readers halve it. They parse it as a signed number.
    let rate = 2 * (rate.unwrap_or(1).max(1) as u64).min(i64::MAX as u64 / 2);
    format!("heap profile: {} @ heap/{rate}\n", heap_numbers(total))
}

/// Writes the lines of Go's `runtime.MemStats` that have a meaning here. All but `MaxRSS` are estimates from the
/// samples.
fn summary(text: &mut String, estimated: HeapValues, comments: &[String]) {
    text.push_str("\n# runtime.MemStats\n");
    for (name, value) in [
        ("Alloc", estimated[INUSE_SPACE]),
        ("TotalAlloc", estimated[ALLOC_SPACE]),
        ("Mallocs", estimated[ALLOC_OBJECTS]),
        ("Frees", estimated[ALLOC_OBJECTS] - estimated[INUSE_OBJECTS]),
        ("HeapAlloc", estimated[INUSE_SPACE]),
        ("HeapObjects", estimated[INUSE_OBJECTS]),
    ] {
        let _ = writeln!(text, "# {name} = {value}");
    }
    if let Some(bytes) = max_rss() {
        let _ = writeln!(text, "# MaxRSS = {bytes}");
    }
    text::comments(text, comments);
}

/// Returns the largest resident size of the process so far, in bytes.
fn max_rss() -> Option<u64> {
    let status = std::fs::read_to_string(own_files::STATUS).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::HEAP;
    use crate::record::{Detail, Leaf};

    fn record(size: usize, rate: usize, allocs: i64, frees: i64) -> Record {
        let counts = [allocs, allocs - frees];
        Record {
            detail: Detail::Objects { size, rate },
            ..Record::new(&[0x11, 0x22][..], Leaf::Allocator, counts)
        }
    }

    fn text_of(records: Vec<Record>) -> String {
        let kind = ProfileKind::Heap { of: &HEAP.description, rate: 4096 };
        let mut out = Vec::new();
        Snapshot::new(kind, records, vec!["3 samples lost".into()]).write_to(&mut out, 1).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn one_rate_is_left_to_the_reader() {
        let text = text_of(vec![record(10, 512, 3, 2), record(100, 512, 5, 0)]);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("heap profile: 6: 510 [8: 530] @ heap/1024"));
        assert_eq!(lines.next(), Some("5: 500 [5: 500] @ 0x11 0x22"));
        assert_eq!(lines.next(), Some("#\t0x11"));
        assert!(text.contains("\n1: 10 [3: 30] @ 0x11 0x22\n"));
        assert!(text.contains("\n# 3 samples lost\n"));
        assert!(text.contains("\nMAPPED_LIBRARIES:\n"));
    }

    #[test]
    fn several_rates_are_scaled() {
        let text = text_of(vec![record(1 << 20, 1, 1, 1), record(512, 512, 1000, 0)]);
        let first = text.lines().next().unwrap();
        assert!(first.ends_with("@ heap/2"), "{first}");
        // 1000 / (1 - 1/e), within rounding.
        assert!(text.contains("\n1581: ") || text.contains("\n1582: "), "{text}");
    }

    #[test]
    fn equal_sums_are_told_apart() {
        let text = text_of(vec![record(8, 1, 2, 0)]);
        assert!(text.starts_with("heap profile: 2: 16 [2: 17] @ heap/2\n"), "{text}");
        assert!(text.contains("\n2: 16 [2: 16] @"));
    }

    #[test]
    fn the_resident_size_is_known() {
        let touched = vec![1_u8; 32 << 20];
        let most = max_rss().unwrap();
        drop(std::hint::black_box(touched));
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
        let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
        let total: u64 = total.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        assert!((32 << 20..=total << 10).contains(&most), "{most} bytes of {total} kB");
    }
}
