use std::io::{self, Write};

use prost::Message as _;

use super::*;
use crate::built_in::HEAP;
use crate::decoded;
use crate::heap_values::{ALLOC_OBJECTS, estimated};
use crate::profile_time::ProfileTime;
use crate::proto::Profile;

fn objects(
    stack: impl Into<std::borrow::Cow<'static, [usize]>>,
    size: usize,
    rate: usize,
    counts: [i64; 2],
) -> Record {
    Record { detail: Detail::Objects { size, rate }, ..Record::new(stack, Leaf::Allocator, counts) }
}

fn snapshot(records: Vec<Record>, comments: Vec<String>, time_nanos: i64) -> Snapshot {
    let kind = ProfileKind::Heap { of: &HEAP.description, rate: 512 << 10 };
    Snapshot { time: ProfileTime { time_nanos, duration_nanos: 0 }, ..Snapshot::new(kind, records, comments) }
}

fn synthetic() -> Snapshot {
    let labels = vec![("tenant".into(), "a\"b".into()), ("path".into(), "/x".into())];
    let records = vec![
        objects(&[0x101, 0x202, 0x303][..], 16, 1, [10, 6]),
        Record { labels: labels.into(), ..objects(&[0x101, 0x303][..], 64, 512 << 10, [1, 0]) },
        objects(&[0x404][..], 8 << 20, 512 << 10, [3, 3]),
    ];
    snapshot(records, vec!["2 samples were lost: no memory".into()], 1_700_000_000_000_000_000)
}

fn encoded(heap: &Snapshot) -> Vec<u8> {
    let mut out = Vec::new();
    heap.write_to(&mut out, 0).unwrap();
    out
}

#[test]
fn golden() {
    let profile = decoded::profile(&encoded(&synthetic()));
    let again = Profile::decode(&*profile.encode_to_vec()).unwrap();
    assert_eq!(profile, again);
    decoded::assert_golden(&profile, "heap.string");
}

/// Returns `count` stacks of this test at `depth` levels of mutual recursion.
fn recursive_stacks(count: usize, depth: usize) -> Vec<Vec<usize>> {
    #[inline(never)]
    fn even(path: usize, depth: usize) -> Vec<usize> {
        if depth == 0 {
            let mut frames = [0; rtprof_runtime::MAX_STACK];
            let found = rtprof_runtime::stack::capture(&mut frames);
            return frames[..found].to_vec();
        }
        std::hint::black_box(match path % 2 {
            0 => even(path / 2, depth - 1),
            _ => odd(path / 2, depth - 1),
        })
    }
    #[inline(never)]
    fn odd(path: usize, depth: usize) -> Vec<usize> {
        std::hint::black_box(match path % 2 {
            0 => even(path / 2, depth),
            _ if depth == 0 => even(path / 2, depth),
            _ => odd(path / 2, depth - 1),
        })
    }
    rtprof_profiler::init::open();
    (0..count).map(|path| even(path, depth)).collect()
}

fn records_of(stacks: &[Vec<usize>]) -> Snapshot {
    let record = |(at, stack): (usize, &Vec<usize>)| {
        let allocs = at as i64 + 1;
        objects(stack.clone(), 16 << (at % 8), 512 << 10, [allocs, allocs - at as i64 / 2])
    };
    snapshot(stacks.iter().enumerate().map(record).collect(), Vec::new(), 1)
}

#[test]
fn real_stacks_are_consistent_and_named() {
    let stacks = recursive_stacks(200, 12);
    let profile = decoded::profile(&encoded(&records_of(&stacks)));
    decoded::check(&profile);
    let names: Vec<&str> =
        profile.function.iter().map(|f| profile.string_table[f.name as usize].as_str()).collect();
    for name in ["even", "odd"] {
        let full = format!("rtprof_pprof_out::heap::tests::recursive_stacks::{name}");
        assert!(names.contains(&full.as_str()), "{full} not in {names:#?}");
    }
    // The frames of the capture itself are hidden.
    assert!(
        !names
            .iter()
            .any(|name| name.starts_with("rtprof_profiler::") || name.starts_with("rtprof_runtime::")),
        "{names:#?}"
    );
    let main = &profile.mapping[0];
    assert!(main.has_functions && main.has_line_numbers, "{main:?}");
    let exe = std::env::current_exe().unwrap();
    assert_eq!(profile.string_table[main.filename as usize], exe.to_str().unwrap());
}

/// Accepts this many bytes and then fails.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        match taken {
            0 => Err(io::Error::from(io::ErrorKind::StorageFull)),
            taken => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failing_writer_gets_its_error_and_the_next_call_works() {
    let stacks = recursive_stacks(3000, 14);
    let heap = records_of(&stacks);
    let whole = encoded(&heap);
    for room in [0, 1, 100, whole.len() / 2, whole.len() - 1] {
        let mut full = Full(room);
        let error = heap.write_to(&mut full, 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
    let mut text = Full(1000);
    assert!(heap.write_to(&mut text, 1).is_err());
    assert_eq!(encoded(&heap), whole);
}

/// Returns the processor time of this thread in milliseconds: other work on the machine does not count.
fn processor_time() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    schedstat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e6
}

/// A measurement, not a check: `cargo test --release -- --ignored --nocapture export_time`.
#[test]
#[ignore = "prints times"]
fn export_time() {
    let stacks = recursive_stacks(10_000, 30);
    let heap = records_of(&stacks);
    println!("{} records of {} frames", stacks.len(), stacks[0].len());
    for round in 0..12 {
        let start = processor_time();
        let bytes = encoded(&heap).len();
        let what = if round == 0 { "cold" } else { "warm" };
        println!("{what}: {:.1} ms, {bytes} bytes", processor_time() - start);
    }
}

/// The records of one place under many labels must not all round the same way.
#[test]
fn rounding_is_spread_over_labels() {
    const N: i64 = 2000;
    let labels: Vec<_> = (0..N).map(|i| vec![("request".to_owned(), i.to_string())]).collect();
    let (size, rate) = (300 << 10, 512 << 10);
    let stack = [0x1000, 0x2000];
    let sum: i64 = labels
        .iter()
        .map(|labels| {
            let record =
                Record { labels: labels.clone().into(), ..objects(stack.to_vec(), size, rate, [1, 1]) };
            estimated(&record)[ALLOC_OBJECTS]
        })
        .sum();
    let factor = rtprof_profiler::rate::weight(size, rate);
    let fraction = factor.fract();
    // Each record is rounded up with the probability of its fraction: binomial, 6 sigma; besides, the hashes are fixed.
    let sigma = (N as f64 * fraction * (1.0 - fraction)).sqrt();
    let expected = N as f64 * factor;
    assert!((sum as f64 - expected).abs() < 6.0 * sigma, "{sum} of {expected}, sigma {sigma}");
}
