//! `debug=1` of the heap and allocs profiles: text for people, which `go tool pprof` reads as well.

use std::fmt::Write as _;
use std::io;

use rtprof_runtime::own_files;

use crate::heap::{HeapRecord, HeapRecords, HeapValues};
use crate::sink::Sink;
use crate::text;
use crate::top::Values;
use rtprof_symbols::locations::Locations;
use rtprof_symbols::view::View;

/// Writes the text form: the records with the most bytes in use first, a summary in the manner of Go's
/// `runtime.MemStats`, and the mapped binaries.
pub(crate) fn write(heap: &HeapRecords<'_>, view: View, sink: &mut Sink<'_>) -> io::Result<()> {
    let mut estimated = HeapValues::default();
    let mut shown = HeapValues::default();
    let rate = single_rate(heap);
    let mut records: Vec<(HeapValues, &HeapRecord<'_>)> = Vec::with_capacity(heap.records.len());
    for record in &heap.records {
        let scaled = record.estimated();
        let values = if rate.is_some() { record.sampled() } else { scaled };
        estimated.add(scaled);
        shown.add(values);
        records.push((values, record));
    }
    records.sort_by_key(|(values, _)| std::cmp::Reverse((values.inuse_space, values.alloc_space)));

    let mut locations = Locations::new(view);
    locations.prepare(heap.stacks());
    let mut text = header(shown, rate);
    let mut bytes = Vec::new();
    for (values, record) in records {
        let _ = write!(
            text,
            "{}: {} [{}: {}]",
            values.inuse_objects, values.inuse_space, values.alloc_objects, values.alloc_space
        );
        let frames = locations.allocation(record.stack);
        text::addresses(&mut text, &frames, 0);
        text.push('\n');
        text::labels(&mut text, record.labels);
        text::lines(&mut text, &frames);
        text.push('\n');
        bytes.extend_from_slice(text.as_bytes());
        text.clear();
        sink.drain_chunk(&mut bytes)?;
    }
    summary(&mut text, estimated, &locations.comments(&heap.comments));
    text::mapped_libraries(&mut text, locations.unambiguous_modules());
    bytes.extend_from_slice(text.as_bytes());
    sink.drain(&mut bytes)?;
    sink.flush()
}

/// The rate of all records, if they have one in common. pprof scales such a profile itself, by the rate in the
/// first line. Records of several rates it could not, so these are written scaled and the line says rate 1.
fn single_rate(heap: &HeapRecords<'_>) -> Option<usize> {
    let mut rates = heap.records.iter().map(|record| record.rate);
    let first = rates.next().unwrap_or(heap.rate);
    rates.all(|rate| rate == first).then_some(first)
}

fn header(total: HeapValues, rate: Option<usize>) -> String {
    // A reader takes a profile with equal sums for one that does not tell allocated from in use, and then
    // reads two columns instead of four. The sums serve nothing else.
    let tell_apart = i64::from(total.inuse_space == total.alloc_space);
    // Twice the rate: an early C++ heap profiler wrote that, and it is what readers halve.
    // Readers take it for a signed number.
    let rate = 2 * (rate.unwrap_or(1).max(1) as u64).min(i64::MAX as u64 / 2);
    format!(
        "heap profile: {}: {} [{}: {}] @ heap/{rate}\n",
        total.inuse_objects,
        total.inuse_space,
        total.alloc_objects,
        total.alloc_space + tell_apart,
    )
}

/// The lines of Go's `runtime.MemStats` that have a meaning here. All but `MaxRSS` are estimates from the samples.
fn summary(text: &mut String, estimated: HeapValues, comments: &[String]) {
    let frees = estimated.alloc_objects - estimated.inuse_objects;
    text.push_str("\n# runtime.MemStats\n");
    for (name, value) in [
        ("Alloc", estimated.inuse_space),
        ("TotalAlloc", estimated.alloc_space),
        ("Mallocs", estimated.alloc_objects),
        ("Frees", frees),
        ("HeapAlloc", estimated.inuse_space),
        ("HeapObjects", estimated.inuse_objects),
    ] {
        let _ = writeln!(text, "# {name} = {value}");
    }
    if let Some(bytes) = max_rss() {
        let _ = writeln!(text, "# MaxRSS = {bytes}");
    }
    text::comments(text, comments);
}

/// The largest resident size of the process so far, in bytes.
fn max_rss() -> Option<u64> {
    let status = std::fs::read_to_string(own_files::STATUS).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::HeapBase;
    use crate::taken::Taken;

    fn record(size: usize, rate: usize, allocs: i64, frees: i64) -> HeapRecord<'static> {
        HeapRecord {
            stack: (&[0x11, 0x22][..]).into(),
            size,
            rate,
            labels: &[],
            allocs,
            frees,
            base: HeapBase::default(),
        }
    }

    fn text_of(records: Vec<HeapRecord<'static>>) -> String {
        let heap = HeapRecords {
            records,
            rate: 4096,
            comments: vec!["3 samples lost".into()],
            taken: Taken::default(),
        };
        let mut out = Vec::new();
        write(&heap, View::default(), &mut Sink::new(&mut out)).unwrap();
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
        assert!(max_rss().unwrap() > 1 << 20);
    }
}
