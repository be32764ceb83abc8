//! Faults of records, tables, times.

use super::Verdict::{self, Crash, Misread, Refused, Valid};
use prost::encoding::encode_varint;

use super::bytes::{T0, Trace, batch, changed as with, event, frequency, record, stack, string};
use crate::event::EventType as E;

fn change(change: impl FnOnce(&mut Trace)) -> Vec<u8> {
    let mut trace = Trace::new();
    change(&mut trace);
    trace.bytes()
}

fn header(text: &[u8]) -> Vec<u8> {
    change(|t| t.header = text.to_vec())
}

/// Returns the trace with these frames as its stack 7.
fn frames(frames: Vec<[u64; 4]>) -> Vec<u8> {
    change(|t| t.stacks[6].1 = frames)
}

fn many_frames(count: u64, pc: u64) -> Vec<[u64; 4]> {
    (0..count).map(|i| [pc + i, 1, 2, i]).collect()
}

fn whole() -> Vec<u8> {
    Trace::new().bytes()
}

fn only(parts: &[Vec<u8>]) -> Vec<u8> {
    [b"go 1.19 trace\0\0\0".to_vec(), parts.concat()].concat()
}

fn length_padded(after: &str) -> Vec<u8> {
    // A GoCreate whose length is written in ten bytes.
    let mut raw = vec![0xcd];
    raw.extend([0x84, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0]);
    raw.extend([0, 4, 4, 0]);
    with(|t| t.insert_raw(after, &raw))
}

pub(super) fn cases() -> Vec<(&'static str, Vec<u8>, Verdict)> {
    let first_in_batch = change(|t| {
        t.front = [batch(0, T0), t.tables(), frequency(1_000_000_000)].concat();
        t.strings.clear();
        t.stacks.clear();
        t.frequency.clear();
    });
    let strings_first = change(|t| {
        t.front = t.strings.iter().flat_map(|(id, text)| string(*id, text)).collect();
        t.strings.clear();
    });
    let two_batches = change(|t| {
        let at = t.items[1].iter().position(|&(label, _)| label == "end2").unwrap();
        let mut second = t.clone();
        second.items[1].drain(..at);
        t.items[1].drain(at..);
        t.samples.splice(0..0, second.batch_bytes(1));
    });
    let wrong_order = change(|t| {
        let at = t.items[1].iter().position(|&(label, _)| label == "end2").unwrap();
        let mut second = t.clone();
        second.items[1].drain(..at);
        t.items[1].drain(at..);
        t.front = second.batch_bytes(1);
    });
    vec![
        ("baseline", whole(), Valid),
        ("empty file", Vec::new(), Refused("bad file format: not a Go execution trace?")),
        ("header of 15 bytes", header(b"go 1.19 trace\0\0"), Refused("bad file format")),
        ("go 1.20", header(b"go 1.20 trace\0\0\0"), Refused("unknown or unsupported trace version go 1.20")),
        ("go 1.21", header(b"go 1.21 trace\0\0\0"), Valid),
        ("go 1.11 has no samples", header(b"go 1.11 trace\0\0\0"), Refused("unknown event type 49")),
        ("go 1.24 is no format", header(b"go 1.24 trace\0\0\0"), Refused("unknown or unsupported")),
        ("nothing but a header", only(&[]), Refused("trace is empty")),
        ("no event", only(&[batch(0, T0), frequency(1000)]), Refused("trace is empty")),
        ("one event", only(&[batch(u64::MAX, T0), frequency(1000), event(E::Gomaxprocs, 1, &[2, 0])]), Valid),
        (
            "no batch",
            only(&[frequency(1000)]),
            Refused("read event 2 with current P of 0, but P has no batches yet"),
        ),
        ("no frequency", change(|t| t.frequency.clear()), Refused("no EvFrequency event")),
        ("frequency 0", change(|t| t.frequency = frequency(0)), Refused("time stamps out of order")),
        ("frequency 2^63", change(|t| t.frequency = frequency(1 << 63)), Refused("time stamps out of order")),
        (
            "frequency twice",
            change(|t| t.frequency.extend(frequency(1_000_000))),
            Misread("a second Frequency replaces the first"),
        ),
        ("tables and frequency first", first_in_batch, Valid),
        ("strings before the first batch", strings_first, Misread("a string before the first batch")),
        ("cut in a record", whole()[..150].to_vec(), Refused("failed to read trace: EOF")),
        ("cut in the last record", whole()[..whole().len() - 1].to_vec(), Refused("failed to read")),
        ("batch with no bits", change(|t| t.end = record(1, 0, &[0, 1])), Refused("EvBatch has wrong")),
        ("event type 50", change(|t| t.end = vec![50, 1]), Refused("unknown event type 50")),
        ("event type 0", change(|t| t.end = vec![0]), Refused("unknown event type 0")),
        (
            "too many arguments",
            with(|t| t.insert_raw("alloc", &record(33, 2, &[0, 5, 5]))),
            Refused("HeapAlloc has wrong number of arguments: want 2, got 3"),
        ),
        (
            "too few arguments",
            with(|t| t.insert_raw("alloc", &record(33, 0, &[0]))),
            Refused("HeapAlloc has wrong number of arguments: want 2, got 1"),
        ),
        (
            "a length though there are few arguments",
            with(|t| t.insert_raw("alloc", &record(33, 3, &[0, 5]))),
            Valid,
        ),
        ("a padded length", length_padded("alloc"), Valid),
        (
            "a length that cuts a value",
            with(|t| t.insert_raw("alloc", &[33 | 3 << 6, 2, 0, 0x80])),
            Refused("malformatted base-128 varint"),
        ),
        (
            "a number of eleven bytes",
            with(|t| t.insert_raw("alloc", &[&[0x61, 0][..], &[0x80; 10], &[0]].concat())),
            Refused("malformatted base-128 varint"),
        ),
        (
            "a P of 2^31",
            change(|t| t.ps[1] = 1 << 31),
            Refused("processor ID 2147483648 is larger than maximum of"),
        ),
        ("a P of the viewer", change(|t| t.ps[1] = 1_000_003), Misread("p 1000003 is one that the viewer")),
        ("a step back", with(|t| t.tick("restart3", 750)), Refused("time stamps out of order")),
        ("a clock that is late", change(|t| t.bases[1] -= 10), Refused("time stamps out of order")),
        ("a second batch", two_batches, Valid),
        ("the second batch first", wrong_order, Refused("no consistent ordering of events possible")),
        ("the same tick in a P", with(|t| t.tick("goal", 46)), Valid),
        ("the same tick on two Ps", with(|t| t.tick("start2", 31).tick("p1start", 31)), Valid),
        (
            "duplicate string",
            change(|t| t.strings.push((1, b"x".to_vec()))),
            Refused("string has duplicate id 1"),
        ),
        ("string 0", change(|t| t.strings.push((0, b"x".to_vec()))), Refused("string has invalid id 0")),
        (
            "empty string",
            change(|t| t.strings.push((99, Vec::new()))),
            Refused("string has invalid length 0"),
        ),
        (
            "a string of a million and one",
            change(|t| t.strings.push((99, vec![b'x'; 1_000_001]))),
            Refused("string has too large length 1000001"),
        ),
        ("a string of 100,000", change(|t| t.strings.push((99, vec![b'x'; 100_000]))), Valid),
        ("a string that is not UTF-8", change(|t| t.strings[0].1 = vec![0xff, 0xfe]), Valid),
        ("frame without its string", change(|t| drop(t.strings.remove(4))), Crash("expected id 5 in string")),
        ("region without its name", change(|t| drop(t.strings.remove(7))), Crash("expected id 8 in string")),
        ("task without its name", change(|t| drop(t.strings.remove(6))), Crash("expected id 7 in string")),
        ("log without its key", change(|t| drop(t.strings.remove(8))), Crash("expected id 9 in string")),
        ("event of an undefined stack", with(|t| t.args("sleep1", &[99])), Misread("stack 99 is not")),
        ("stack of no frames", frames(Vec::new()), Misread("stack 7 of 0 frames is ignored")),
        (
            "a stack twice",
            change(|t| t.end = stack(7, &[[0x1001, 1, 2, 10]])),
            Misread("stack 7 is defined twice"),
        ),
        (
            "one PC of two functions",
            change(|t| t.stacks[6].1 = vec![[0x1001, 13, 2, 77]]),
            Misread("PC 0x1001 names two frames"),
        ),
        ("a stack of 128 frames", frames(many_frames(128, 5000)), Valid),
        ("a stack of 200 frames", frames(many_frames(200, 5000)), Valid),
        (
            "a stack of more than 2048 bytes",
            frames(many_frames(160, 1 << 63)),
            Refused("failed to read event 3 argument: length-prefixed argument too big"),
        ),
        (
            "a stack of fewer frames than it says",
            change(|t| t.end = record(3, 3, &[9, 2, 1, 1])),
            Refused("EvStack has wrong number of arguments: want 10, got 4"),
        ),
        (
            "a stack of 1001 frames",
            change(|t| t.end = record(3, 3, &[9, 1001, 1, 1])),
            Refused("EvStack has bad number of frames: 1001"),
        ),
        ("a timer's goroutine", change(|t| t.end = record(35, 0, &[1])), Valid),
        (
            "a message of a million and one",
            change(|t| {
                let mut log = event(E::UserLog, 0, &[1, 9, 6]);
                encode_varint(1_000_001, &mut log);
                log.extend(vec![b'x'; 1_000_001]);
                t.insert_raw("log", &log);
            }),
            Refused("string is too large (len=1000001)"),
        ),
        (
            "an empty message without a key",
            with(|t| t.insert_raw("log", &[event(E::UserLog, 0, &[0, 0, 0]), vec![0]].concat())),
            Valid,
        ),
        (
            "a sample among events, at no delta",
            with(|t| t.insert_raw("block2", &event(E::CpuSample, 0, &[T0 + 100, 1, 2, 7]))),
            Valid,
        ),
        (
            "a sample among events",
            with(|t| t.insert_raw("block2", &event(E::CpuSample, 5, &[T0 + 100, 1, 2, 7]))),
            Misread("a sample stands among events"),
        ),
        ("bytes of a second header", change(|t| t.end = t.header.clone()), Refused("")),
        ("a stack in 33 bits", change(|t| t.end = stack(1 << 33 | 7, &[[1, 1, 2, 3]])), Misread("stack 85")),
        (
            "a value of 2^64",
            change(|t| {
                let largest = [&[0x61, 0][..], &[0xff; 9], &[2]].concat();
                t.insert_raw("alloc", &largest);
            }),
            Refused("malformatted base-128 varint"),
        ),
        ("the largest value", with(|t| t.insert_raw("alloc", &event(E::HeapAlloc, 0, &[u64::MAX]))), Valid),
    ]
}
