//! Each case is one fault in a valid trace of the second format. The verdicts on faults that Go has words for are those
//! of `go tool trace` of Go 1.27.

use prost::encoding::encode_varint;

use super::*;
use crate::event::EventType as E;
use crate::invalid::Consequence;
use crate::validate::validate;

const RUNNING: u64 = 2;
const IDLE: u64 = 2;

/// An event: its number on the wire, and its values, the delta of the time first.
type Event = (u8, Vec<u64>);

fn event(kind: u8, values: &[u64]) -> Event {
    (kind, values.to_vec())
}

/// A generation whose parts can be changed.
#[derive(Clone)]
struct Parts {
    number: u64,
    begin: u64,
    clock: Vec<u8>,
    threads: Vec<(u64, u64, Vec<Event>)>,
    strings: Vec<(u64, Vec<u8>)>,
    stacks: Vec<(u64, Vec<[u64; 4]>)>,
    samples: Vec<[u64; 5]>,
    has_end: bool,
}

impl Parts {
    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut batch = |thread: u64, time: u64, bytes: &[u8]| {
            out.push(1);
            for value in [self.number, thread, time, bytes.len() as u64] {
                encode_varint(value, &mut out);
            }
            out.extend_from_slice(bytes);
        };
        batch(u64::MAX, self.begin, &self.clock);
        for (thread, time, events) in &self.threads {
            let mut bytes = Vec::new();
            for (kind, values) in events {
                bytes.push(*kind);
                values.iter().for_each(|&value| encode_varint(value, &mut bytes));
            }
            batch(*thread, *time, &bytes);
        }
        let mut bytes = vec![6];
        for sample in &self.samples {
            bytes.push(7);
            sample.iter().for_each(|&value| encode_varint(value, &mut bytes));
        }
        batch(u64::MAX, self.begin, &bytes);
        let mut bytes = vec![2];
        for (id, frames) in &self.stacks {
            bytes.push(3);
            encode_varint(*id, &mut bytes);
            encode_varint(frames.len() as u64, &mut bytes);
            frames.iter().flatten().for_each(|&value| encode_varint(value, &mut bytes));
        }
        batch(u64::MAX, self.begin, &bytes);
        let mut bytes = vec![4];
        for (id, text) in &self.strings {
            bytes.push(5);
            encode_varint(*id, &mut bytes);
            encode_varint(text.len() as u64, &mut bytes);
            bytes.extend_from_slice(text);
        }
        batch(u64::MAX, self.begin, &bytes);
        if self.has_end {
            out.push(52);
        }
        out
    }

    /// Replaces the first event of this kind.
    fn set(&mut self, kind: u8, values: &[u64]) {
        let mut events = self.threads.iter_mut().flat_map(|(_, _, events)| events);
        events.find(|(found, _)| *found == kind).expect("it is there").1 = values.to_vec();
    }

    /// Removes the first event of this kind.
    fn remove(&mut self, kind: u8) {
        let has = |events: &[Event]| events.iter().position(|(found, _)| *found == kind);
        let found = self.threads.iter_mut().find_map(|(_, _, events)| Some((has(events)?, events)));
        let (at, events) = found.expect("it is there");
        events.remove(at);
    }

    /// Inserts an event before the first one of this kind.
    fn before(&mut self, kind: u8, inserted: Event) {
        let has = |events: &[Event]| events.iter().position(|(found, _)| *found == kind);
        let found = self.threads.iter_mut().find_map(|(_, _, events)| Some((has(events)?, events)));
        let (at, events) = found.expect("it is there");
        events.insert(at, inserted);
    }
}

/// Two generations. In the first, thread 11 creates goroutine 2, wakes it and makes one of each event; in the second it
/// waits.
fn parts() -> [Parts; 2] {
    let clock = |frequency: u64| {
        let mut clock = vec![50, 8];
        encode_varint(frequency, &mut clock);
        clock.extend([51, 1, 2, 3, 4]);
        clock
    };
    let strings = ["app::main", "src/main.rs", "sync: mutex", "request", "key", "hello"];
    let strings: Vec<_> = (1..).zip(strings.map(|text| text.as_bytes().to_vec())).collect();
    let stacks = vec![(1, vec![[1, 1, 2, 10]]), (2, vec![[2, 4, 2, 20], [1, 1, 2, 10]])];
    let eleven = vec![
        event(13, &[1, 1, 1]),
        event(48, &[1, 1, 11, RUNNING, 1]),
        event(9, &[1, 4, 0]),
        event(14, &[5, 2, 1, 2]),
        event(37, &[5, 4096]),
        event(40, &[5, 1, 0, 4, 2]),
        event(42, &[5, 1, 5, 2]),
        event(44, &[5, 1, 5, 6, 2]),
        event(43, &[5, 1, 5, 2]),
        event(41, &[5, 1, 2]),
        event(29, &[5, 7, 2]),
        event(26, &[5, 3, 0]),
        event(27, &[5]),
        event(32, &[5, 2]),
        event(33, &[5, 1, 2]),
        event(35, &[5, 2]),
        event(36, &[5]),
        event(30, &[5, 8]),
        event(22, &[5, 1, 2]),
        event(23, &[10]),
        event(21, &[900, 2, 2, 2]),
        event(20, &[50, 3, 2]),
    ];
    let twelve = vec![
        event(10, &[10, 2, 1]),
        event(16, &[1, 2, 1]),
        event(39, &[1, 6]),
        event(20, &[50, 3, 2]),
        event(16, &[1000, 2, 3]),
        event(17, &[10]),
        event(11, &[1]),
    ];
    let first = Parts {
        number: 1,
        begin: 1000,
        clock: clock(15_625_000),
        threads: vec![(11, 1000, eleven), (10, 1000, vec![event(13, &[0, 2, IDLE])]), (12, 1010, twelve)],
        strings: strings.clone(),
        stacks: stacks.clone(),
        samples: vec![[1020, 11, 1, 1, 2]],
        has_end: true,
    };
    let again = vec![event(13, &[1, 1, 1])];
    let others = vec![event(13, &[1, 2, IDLE]), event(48, &[1, 1, 0, 4, 1])];
    let second = Parts {
        number: 2,
        begin: 9000,
        threads: vec![(11, 9000, again), (10, 9000, others)],
        samples: Vec::new(),
        ..first.clone()
    };
    [first, second]
}

fn file(header: &[u8; 16], parts: &[Parts]) -> Vec<u8> {
    parts.iter().fold(header.to_vec(), |file, parts| [file, parts.bytes()].concat())
}

const HEADER: &[u8; 16] = b"go 1.26 trace\0\0\0";

#[test]
fn a_trace_has_the_events_of_the_first_format() {
    let parsed = validate(&file(HEADER, &parts())).unwrap_or_else(|invalid| panic!("{invalid}"));
    assert_eq!((parsed.generations(), parsed.ticks_per_second()), (&[1000, 9000][..], 15_625_000));
    let story: Vec<_> =
        parsed.events().filter(|event| event.g() == 1).map(|event| event.event_type()).collect();
    let expected = [
        &[E::GoStartLocal, E::GoCreate, E::HeapAlloc, E::UserTaskCreate, E::CpuSample, E::UserRegion][..],
        &[E::UserLog, E::UserRegion, E::UserTaskEnd, E::GcStart, E::StwStart, E::StwDone, E::GcSweepStart],
        &[E::GcSweepDone, E::GcMarkAssistStart, E::GcMarkAssistDone, E::GcDone, E::GoSysCall, E::GoSysBlock],
        &[E::GoSysExit, E::GoStartLocal, E::GoUnblock, E::GoBlockSync],
    ];
    assert_eq!(story, expected.concat());
    let names: Vec<_> = parsed.goroutines().collect();
    assert_eq!(names, [(1, "app::main"), (2, "app::main")]);
    let only = |kind| parsed.events_of(kind).next().unwrap();
    assert_eq!((only(E::UserLog).name(), only(E::UserLog).message()), ("key", "hello"));
    assert_eq!(only(E::GoStartLabel).name(), "hello");
    assert_eq!(only(E::GoBlockSync).reason(), "sync: mutex");
    assert_eq!(only(E::GoBlockSync).functions(), ["request", "app::main"]);
}

/// A change of the two generations.
type Change = fn(&mut [Parts; 2]);

const REFUSED: Consequence = Consequence::Refused;
const MISREAD: Consequence = Consequence::Misread;

#[rustfmt::skip]
const CASES: &[(&str, Change, Consequence, &str)] = &[
    ("no mark at the end", |it| it[1].has_end = false, REFUSED, "incomplete generation found"),
    ("no frequency", |it| it[0].clock = vec![50, 51, 1, 2, 3, 4], REFUSED, "no frequency event found"),
    ("no snapshot", |it| it[0].clock = vec![50, 8, 100], REFUSED, "no clock snapshot event found"),
    ("two frequencies", |it| it[0].clock.extend([8, 1]), REFUSED, "found multiple frequency events"),
    ("a clock that drifts", |it| it.iter_mut().for_each(|it| it.clock = vec![50, 8, 99, 51, 1, 2, 3, 4]), MISREAD, "a clock of 99"),
    ("generation 0", |it| it[0].number = 0, REFUSED, "invalid generation number 0"),
    ("no status of the goroutine", |it| it[0].remove(48), REFUSED, "expected a goroutine but didn't have one"),
    ("no status of the P", |it| it[0].remove(13), REFUSED, "expected a proc but didn't have one"),
    ("no status of the idle P", |it| it[0].threads[1].2.clear(), REFUSED, "broken trace: failed to advance"),
    ("a start too far", |it| it[0].set(16, &[1, 2, 2]), REFUSED, "broken trace: failed to advance"),
    ("a wake-up too early", |it| it[0].set(21, &[900, 2, 1, 2]), REFUSED, "broken trace: failed to advance"),
    ("a start of a P too far", |it| it[0].set(10, &[10, 2, 0]), REFUSED, "broken trace: failed to advance"),
    ("a system call with the wrong number", |it| it[0].set(22, &[5, 0, 2]), REFUSED, "failed to advance GoSyscallBegin"),
    ("a block without a goroutine", |it| it[0].before(11, event(20, &[1, 3, 2])), REFUSED, "expected a goroutine"),
    ("created twice", |it| it[0].before(37, event(14, &[1, 2, 1, 2])), REFUSED, "tried to create goroutine (2)"),
    ("an undefined stack", |it| it[0].set(20, &[50, 3, 99]), REFUSED, "found invalid stack ID 99 for event GoBlock"),
    ("an undefined string", |it| it[0].set(20, &[50, 99, 2]), REFUSED, "found invalid string ID 99 for event GoBlock"),
    ("an undefined string of a frame", |it| it[0].stacks[0].1[0][1] = 99, REFUSED, "found invalid string ID 99 for stack 1"),
    ("a long string", |it| it[0].strings[0].1 = vec![b'x'; 1025], REFUSED, "invalid string size 1025"),
    ("a deep stack", |it| it[0].stacks[0].1 = vec![[1, 1, 2, 10]; 129], REFUSED, "invalid stack size 129"),
    ("a string twice", |it| it[0].strings.push((1, b"x".to_vec())), REFUSED, "multiple strings with the same ID"),
    ("a stack twice", |it| it[0].stacks.push((1, vec![[1, 1, 2, 10]])), REFUSED, "multiple stacks with the same ID"),
    ("a PC of two frames", |it| it[0].stacks.push((3, vec![[1, 2, 2, 10]])), MISREAD, "PC 0x1 names two frames"),
    ("another region ends", |it| it[0].set(43, &[5, 1, 4, 2]), REFUSED, "misuse of region in goroutine 1"),
    ("a task twice", |it| it[0].before(41, event(40, &[1, 1, 0, 4, 2])), REFUSED, "task ID conflict: 1"),
    ("a collection ends too far", |it| it[0].set(30, &[5, 9]), REFUSED, "broken trace: failed to advance"),
    ("a stop twice", |it| it[0].before(27, event(26, &[1, 3, 0])), REFUSED, "discovered Stop(3) already in-flight"),
    ("an end of a sweep alone", |it| it[0].remove(32), REFUSED, "tried to end Sweep, but not in-flight"),
    ("a new goroutine in the second", |it| it[1].threads[1].2.push(event(25, &[1, 7, 0, 4])), REFUSED, "found goroutine status for new goroutine"),
    ("another state in the second", |it| it[1].set(48, &[1, 1, 0, 1, 1]), REFUSED, "inconsistent status for goroutine 1"),
    ("another state of a P", |it| it[1].set(13, &[1, 1, IDLE]), REFUSED, "inconsistent status for proc 1"),
    ("a goroutine that was not stated again", |it| {
        it[1].remove(48);
        it[1].threads[0].2.push(event(21, &[1, 1, 1, 0]));
    }, REFUSED, "broken trace: failed to advance"),
    ("an unknown event", |it| it[0].set(20, &[50, 3, 2, 200, 0]), REFUSED, "found invalid event type: 200"),
    ("a P that stops while its goroutine runs", |it| it[0].remove(17), MISREAD, "P 2 stops while goroutine 2 runs"),
    ("clocks that differ", |it| it[0].set(21, &[3000, 2, 2, 2]), MISREAD, "GoStart of thread 12 is"),
    ("an effect with the tick of its cause", |it| it[0].set(21, &[979, 2, 2, 2]), MISREAD, "GoStart of thread 12 is not later"),
];

#[test]
fn every_fault_is_found() {
    let mut wrong = Vec::new();
    for &(name, change, consequence, text) in CASES {
        let mut changed = parts();
        change(&mut changed);
        match validate(&file(HEADER, &changed)) {
            Err(found)
                if found.violation.consequence == consequence
                    && found.violation.message.starts_with(text) => {}
            found => wrong.push(format!("{name}: {consequence:?} {text}, but {:?}", found.err())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_broken_file_never_panics() {
    let bytes = file(HEADER, &parts());
    for at in 16..bytes.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut broken = bytes.clone();
            broken[at] = value;
            drop(Parsed::read(&broken));
        }
        drop(Parsed::read(&bytes[..at]));
    }
}
