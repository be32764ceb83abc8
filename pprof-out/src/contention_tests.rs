use rtprof_profiler::BlockKinds;
use test_support::go;
use test_support::go_raw::raw;

use super::*;
use crate::built_in::{BLOCK, MUTEX, THREAD_CREATE};
use crate::decoded;
use crate::profile_time::ProfileTime;
use crate::proto::Profile;

/// Two ticks are a nanosecond.
const TICKS_PER_SECOND: u64 = 2_000_000_000;

fn waits(stack: &'static [usize], count: i64, ticks: i64) -> Record {
    Record::new(stack, Leaf::Hooks, [count, ticks])
}

fn snapshot(
    of: &'static Description,
    ticks_per_second: u64,
    fraction: i64,
    mut records: Vec<Record>,
) -> Snapshot {
    sort(&mut records);
    let kind = ProfileKind::Contention { of, ticks_per_second, fraction };
    let comments = vec!["2 samples were lost: no memory".into()];
    let time = ProfileTime { time_nanos: 1_700_000_000_000_000_000, duration_nanos: 0 };
    Snapshot { time, ..Snapshot::new(kind, records, comments) }
}

fn synthetic(of: &'static Description, fraction: i64) -> Snapshot {
    let labels = vec![("tenant".into(), "a\"b=c".into())];
    let records = vec![
        waits(&[0x303], 1, 7),
        waits(&[0x101, 0x202], 30, 5_000),
        // One stack with two sets of labels is two samples.
        Record { labels: labels.into(), ..waits(&[0x101, 0x202], 40, 9_000) },
        waits(&[0x404], 2, 5_000),
    ];
    snapshot(of, TICKS_PER_SECOND, fraction, records)
}

fn nothing(of: &'static Description, fraction: i64) -> Snapshot {
    snapshot(of, TICKS_PER_SECOND, fraction, Vec::new())
}

fn encoded(snapshot: &Snapshot) -> Vec<u8> {
    let mut out = Vec::new();
    snapshot.write_to(&mut out, 0).unwrap();
    out
}

fn text_of(snapshot: &Snapshot) -> String {
    let mut out = Vec::new();
    snapshot.write_to(&mut out, 1).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn golden() {
    for kind in [&BLOCK.description, &MUTEX.description] {
        let profile = decoded::profile(&encoded(&synthetic(kind, 10)));
        decoded::check(&profile);
        decoded::assert_golden(&profile, &format!("{}.string", kind.name));
    }
}

const RECORDS: &str = "\
9000 40 @ 0x101 0x202
# labels: {\"tenant\":\"a\\\"b=c\"}
#\t0x101
#\t0x202

5000 30 @ 0x101 0x202
#\t0x101
#\t0x202

5000 2 @ 0x404
#\t0x404

7 1 @ 0x303
#\t0x303

# 2 samples were lost: no memory
--- Memory map: ---

MAPPED_LIBRARIES:
";

#[test]
fn text_of_go() {
    let text = text_of(&synthetic(&BLOCK.description, 10));
    assert!(text.starts_with(&format!("--- contention:\ncycles/second=2000000000\n{RECORDS}")), "{text}");

    for (fraction, remark) in [
        (0, ""),
        (1, ""),
        (10, "# rtprof: one contended unlock in 10 is recorded; the numbers stand for all of them\n"),
    ] {
        let text = text_of(&synthetic(&MUTEX.description, fraction));
        let head = format!("--- mutex:\ncycles/second=2000000000\nsampling period=1\n{remark}");
        assert!(text.starts_with(&format!("{head}{RECORDS}")), "{text}");
    }
}

#[test]
fn text_of_nothing() {
    for fraction in [0, 1] {
        let remark = "# 2 samples were lost: no memory\n";
        assert_eq!(
            text_of(&nothing(&BLOCK.description, fraction)),
            format!("--- contention:\ncycles/second=2000000000\n{remark}")
        );
        assert_eq!(
            text_of(&nothing(&MUTEX.description, fraction)),
            format!("--- mutex:\ncycles/second=2000000000\nsampling period={fraction}\n{remark}")
        );
    }
}

/// The largest values, at a slow clock, at one tick per nanosecond, and at a fast clock.
fn extreme(ticks_per_second: u64) -> Snapshot {
    snapshot(&MUTEX.description, ticks_per_second, 10, vec![waits(&[0x101], i64::MAX, i64::MAX)])
}

#[test]
fn nothing_overflows() {
    for ticks_per_second in [1, 24_000_000, clock::NANOS, 3 * clock::NANOS] {
        let extreme = extreme(ticks_per_second);
        let ratio = ticks_per_second as f64 / clock::NANOS as f64;
        let nanos = i64::MAX as f64 / ratio;
        let profile = decoded::profile(&encoded(&extreme));
        assert_eq!(profile.sample[0].value, [i64::MAX, nanos as i64]);

        let text = text_of(&extreme);
        let line = text.lines().find(|line| line.ends_with(" @ 0x101")).unwrap();
        let cycles: i64 = line.split(' ').next().unwrap().parse().unwrap();
        // Go's conversion of a larger value has no defined result.
        let read = cycles as f64 / ratio;
        assert!(cycles > 0 && read < i64::MAX as f64, "{cycles} ticks, {read} ns");
        assert!(ticks_per_second > clock::NANOS || read > 0.999 * i64::MAX as f64, "{read} ns");
    }
}

#[test]
fn equal_delays_keep_their_order() {
    let stacks = [(&[1][..], 5), (&[2], 9), (&[3], 5), (&[4], i64::MAX), (&[5], 5)];
    let mut records = stacks.map(|(stack, ticks)| waits(stack, 1, ticks));
    sort(&mut records);
    let stacks = records.map(|record| record.stack[0]);
    assert_eq!(stacks, [4, 2, 1, 3, 5]);
}

/// Prevents a tail call, so that the caller's frame stays on the stack of the preceding call.
fn not_a_tail_call() {
    std::hint::black_box(());
}

#[inline(never)]
fn waits_for_a_lock() {
    contention::block_event(BlockKinds::SYNC, clock::ticks_per_second());
    not_a_tail_call();
}

#[inline(never)]
fn makes_others_wait() {
    contention::mutex_event(3, clock::ticks_per_second() / 2);
    not_a_tail_call();
}

#[inline(never)]
fn creates_a_thread() {
    rtprof_runtime::thread::thread_create::stack().unwrap().record.count_one();
    not_a_tail_call();
}

fn written(name: &str) -> Profile {
    let mut out = Vec::new();
    crate::lookup(name).unwrap().write_to(&mut out, 0).unwrap();
    let profile = decoded::profile(&out);
    decoded::check(&profile);
    profile
}

fn written_text(name: &str) -> String {
    let mut out = Vec::new();
    crate::lookup(name).unwrap().write_to(&mut out, 1).unwrap();
    String::from_utf8(out).unwrap()
}

/// Sums of the samples whose leaf is this function of this file: the optimizer may have unrolled a loop into two calls,
/// and so two stacks.
fn sum_at(profile: &Profile, function: &str) -> Vec<i64> {
    let name = format!("rtprof_pprof_out::contention::tests::{function}");
    let is_named = |id: u64| {
        let line = &profile.location[id as usize - 1].line[0];
        profile.string_table[profile.function[line.function_id as usize - 1].name as usize] == name
    };
    let samples = || profile.sample.iter().filter(|sample| is_named(sample.location_id[0]));
    (0..profile.sample_type.len()).map(|at| samples().map(|sample| sample.value[at]).sum()).collect()
}

fn comments(profile: &Profile) -> Vec<&str> {
    profile.comment.iter().map(|&at| profile.string_table[at as usize].as_str()).collect()
}

/// Covers the profiles of the process in one test, because tests would share them.
#[test]
fn the_profiles_of_the_process() {
    for (name, remark) in [
        ("block", "rtprof: the block profile is off; set_block_profile_rate switches it on"),
        ("mutex", "rtprof: the mutex profile is off; set_mutex_profile_fraction switches it on"),
        ("threadcreate", "rtprof: no thread was created by rtprof::thread yet; others are not known"),
    ] {
        assert_eq!(comments(&written(name)).last(), Some(&remark));
        assert!(written_text(name).ends_with(&format!("\n# {remark}\n")), "{}", written_text(name));
        assert_eq!(crate::lookup(name).unwrap().count(), 0);
    }

    contention::set_block_profile_rate(1);
    contention::set_mutex_profile_fraction(1);
    waits_for_a_lock();
    for _ in 0..2 {
        makes_others_wait();
        creates_a_thread();
    }
    contention::set_block_profile_rate(0);

    let second = clock::NANOS as i64;
    let block = written("block");
    let [waits, nanos, ..] = sum_at(&block, "waits_for_a_lock")[..] else { panic!("two values") };
    // A fraction of a nanosecond is truncated, as in Go.
    assert!(waits == 1 && (0..=1).contains(&(second - nanos)), "{waits} waits, {nanos} ns");
    assert!(!comments(&block).iter().any(|remark| remark.contains("is off")), "{:?}", comments(&block));
    let mutex = written("mutex");
    let [waits, nanos, ..] = sum_at(&mutex, "makes_others_wait")[..] else { panic!("two values") };
    assert!(
        waits == 6 && (nanos - second).abs() <= 2,
        "half a tick is lost twice: {waits} waits, {nanos} ns"
    );
    let threads = written("threadcreate");
    assert_eq!(sum_at(&threads, "creates_a_thread"), [2]);
    assert!(!comments(&threads).iter().any(|remark| remark.contains("yet")), "{:?}", comments(&threads));
    let count = |name| crate::lookup(name).unwrap().count();
    assert_eq!([count("block"), count("mutex")], [block.sample.len(), mutex.sample.len()]);
    assert_eq!(count("threadcreate"), 2);

    // The leaf is also hidden in the addresses.
    for (name, function) in [("block", "waits_for_a_lock"), ("threadcreate", "creates_a_thread")] {
        let text = written_text(name);
        let leaf = text.lines().find(|line| line.starts_with('#')).unwrap();
        assert!(leaf.contains(&format!("::{function}+0x")), "{text}");
        let address = leaf.split('\t').nth(1).unwrap();
        assert!(text.contains(&format!(" @ {address} 0x")), "{text}");
    }
    let text = written_text("threadcreate");
    assert!(text.starts_with("threadcreate profile: total 2\n"), "{text}");
}

/// `go tool pprof` must read the same values from both forms. Go's text has two, so further ones are in the file alone.
#[test]
fn go_reads_the_same_from_both_forms() {
    for go in go::toolchains("go_reads_the_same_from_both_forms") {
        for kind in [&BLOCK.description, &MUTEX.description] {
            for fraction in [0, 1, 10] {
                let records = synthetic(kind, fraction);
                for form in [encoded(&records), text_of(&records).into_bytes()] {
                    let read = raw(&go, &form);
                    let values = [[40, 4_500], [30, 2_500], [2, 2_500], [1, 3]];
                    assert_eq!(read.head[..2], ["contentions count", "1"]);
                    let types = read.head[2].replace("[dflt]", "");
                    assert!(types.starts_with("contentions/count delay/nanoseconds"), "{types}");
                    let read: Vec<_> = read.values.iter().map(|all| &all[..2]).collect();
                    assert_eq!(read, values, "{kind:?} at fraction {fraction}");
                }
            }
        }
        for form in [encoded(&extreme(1)), text_of(&extreme(1)).into_bytes()] {
            let [count, nanos, ..] = raw(&go, &form).values[0][..] else { panic!("two values") };
            assert!(count == i64::MAX && nanos > i64::MAX / 1000 * 999, "{nanos}");
        }
    }
}

#[test]
fn go_reads_profiles_of_nothing_and_of_counts() {
    for go in go::toolchains("go_reads_profiles_of_nothing_and_of_counts") {
        for kind in [&BLOCK.description, &MUTEX.description] {
            let nothing = nothing(kind, 0);
            for form in [encoded(&nothing), text_of(&nothing).into_bytes()] {
                assert!(raw(&go, &form).values.is_empty());
            }
        }
        for values in [vec![], vec![[5], [2]]] {
            let kind = ProfileKind::Count { of: &THREAD_CREATE.description };
            let record = |&[count]: &[i64; 1]| waits(&[0x101, 0x202], count, 0);
            let records = values.iter().map(record).collect();
            let threads = Snapshot::new(kind, records, vec!["2 samples were lost: no memory".into()]);
            for form in [encoded(&threads), text_of(&threads).into_bytes()] {
                let read = raw(&go, &form);
                assert_eq!(read.head, ["threadcreate count", "1", "threadcreate/count"]);
                assert_eq!(read.values, values);
            }
        }
    }
}
