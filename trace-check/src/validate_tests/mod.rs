//! Each case is one fault in a valid trace. Its verdict was compared with `go tool trace` of Go 1.27 and 1.21, their
//! pages included.

mod bytes;
mod format_cases;
mod span_cases;
mod state_cases;

use bytes::{T0, Trace};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::event::EventType as E;
use super::invalid::Consequence;
use super::parsed::Parsed;
use super::validate::validate;

/// The expected verdict on a trace, with the beginning of its message.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    Valid,
    Refused(&'static str),
    Crash(&'static str),
    Misread(&'static str),
}

fn cases() -> Vec<(&'static str, Vec<u8>, Verdict)> {
    [format_cases::cases(), state_cases::cases(), span_cases::cases()].into_iter().flatten().collect()
}

#[test]
fn every_fault_is_found() {
    let mut wrong = Vec::new();
    for (name, bytes, verdict) in cases() {
        let found = validate(&bytes).err();
        let (consequence, text) = match verdict {
            Verdict::Valid => {
                if let Some(found) = found {
                    wrong.push(format!("{name}: valid, but: {found}"));
                }
                continue;
            }
            Verdict::Refused(text) => (Consequence::Refused, text),
            Verdict::Crash(text) => (Consequence::Crash, text),
            Verdict::Misread(text) => (Consequence::Misread, text),
        };
        match found {
            Some(found)
                if found.violation.consequence == consequence
                    && found.violation.message.starts_with(text) => {}
            Some(found) => wrong.push(format!("{name}: {verdict:?}, but: {found}")),
            None => wrong.push(format!("{name}: {verdict:?}, but it is valid")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_fault_is_a_difference() {
    let cases = cases();
    assert!(cases.len() > 100);
    let names: std::collections::BTreeSet<_> = cases.iter().map(|case| case.0).collect();
    let files: std::collections::BTreeSet<_> = cases.iter().map(|case| &case.1).collect();
    assert_eq!((names.len(), files.len()), (cases.len(), cases.len()));
}

#[test]
fn a_trace_is_read_as_it_was_written() {
    let parsed = validate(&Trace::new().bytes()).unwrap();
    assert_eq!(parsed.ticks_per_second(), 1_000_000_000);
    assert_eq!(parsed.events().len(), 31);
    let times: Vec<u64> = parsed.events().map(|event| event.time()).collect();
    assert!(times.is_sorted());
    assert_eq!((times[0], parsed.duration().as_nanos()), (0, 781));
    assert_eq!(parsed.count(E::GoCreate), 3);
    let goroutines: Vec<_> = parsed.goroutines().collect();
    assert_eq!(goroutines, [(1, "app::main"), (2, "thread/worker-a"), (3, "thread/worker-b")]);
    assert_eq!(parsed.goroutine_name(2), Some("thread/worker-a"));
    assert_eq!(parsed.goroutine_name(4), None);
    assert_eq!(parsed.goroutines_named("thread/worker-b").collect::<Vec<_>>(), [3]);

    let create = parsed.events_of(E::GoCreate).nth(1).unwrap();
    assert_eq!((create.g(), create.p(), create.target()), (1, 0, Some(2)));
    assert_eq!(create.functions(), ["app::main", "app::main"]);
    assert_eq!(create.stack().map(|frame| frame.line).collect::<Vec<_>>(), [12, 10]);
    assert_eq!(create.start_stack().next().unwrap().function, "thread/worker-a");

    let block = parsed.events_of(E::GoBlockSync).next().unwrap();
    assert_eq!((block.g(), block.p(), block.tick(), block.time()), (2, 1, T0 + 95, 85));
    assert_eq!(block.functions(), ["std::sync::Mutex::lock", "app::worker", "thread/worker-a"]);
    let frame = block.stack().next().unwrap();
    assert_eq!((frame.file, frame.line, frame.pc), ("mutex.rs", 99, 0x1003));

    // The event names its time, and stands at the place of that time.
    let exit = parsed.events_of(E::GoSysExit).next().unwrap();
    assert_eq!(
        (exit.g(), exit.tick(), exit.argument("seq"), exit.argument("x")),
        (3, T0 + 720, Some(2), None)
    );
    let log = parsed.events_of(E::UserLog).next().unwrap();
    assert_eq!((log.name(), log.message(), log.argument("id")), ("key", "hello from rust", Some(1)));
    assert_eq!(log.args(), [1, 9, 6]);
    let task = parsed.events_of(E::UserTaskCreate).next().unwrap();
    assert_eq!((task.name(), task.message()), ("request", ""));
    let regions: Vec<_> = parsed.events_of(E::UserRegion).map(|region| region.argument("mode")).collect();
    assert_eq!(regions, [Some(0), Some(1)]);
    let sample = parsed.events_of(E::CpuSample).next().unwrap();
    assert_eq!((sample.p(), sample.g(), sample.time()), (1, 2, 90));
    assert_eq!(sample.functions()[0], "app::compute");
    assert_eq!(parsed.strings().count(), 13);
    assert_eq!(parsed.stacks().count(), 8);
    assert_eq!(
        format!("{log:?}"),
        "52 UserLog p=0 g=1 id=1 keyid=9 stack=6 name=\"key\" message=\"hello from rust\""
    );
    assert!(parsed.findings().is_empty());
}

#[test]
fn a_goroutine_runs_on_from_batch_to_batch() {
    let mut trace = Trace::new();
    let begin = trace.items[0].iter().position(|&(label, _)| label == "begin").unwrap();
    let mut second = trace.clone();
    second.items[0].drain(..begin);
    trace.items[0].drain(begin..);
    // The samples of the other P lie between them.
    trace.samples.splice(0..0, second.batch_bytes(0));
    let parsed = validate(&trace.bytes()).unwrap();
    assert_eq!(parsed.events_of(E::UserRegion).next().unwrap().g(), 1);
    assert_eq!(parsed.events().len(), 31);
}

/// Calls all functions that read a trace.
fn exercise(bytes: &[u8]) -> bool {
    let result = validate(bytes);
    assert!(result.as_ref().err().is_none_or(|invalid| !invalid.to_string().is_empty()));
    if let Ok(parsed) = Parsed::read(bytes) {
        for event in parsed.events() {
            assert!(!format!("{event:?} {:?} {:?}", event.functions(), event.target()).is_empty());
            event.start_stack().for_each(drop);
        }
        parsed.goroutines().for_each(drop);
        assert!(parsed.duration().as_nanos() < u128::from(u64::MAX));
    }
    result.is_ok()
}

#[test]
fn no_bytes_make_it_panic() {
    let good = Trace::new().bytes();
    let mut random = SmallRng::seed_from_u64(0x9e37_79b9_7f4a_7c15);
    let mut valid = 0;
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + random.random_range(0..4) {
            if bytes.is_empty() {
                break;
            }
            let at = random.random_range(0..bytes.len());
            let value = random.random_range(0..256) as u8;
            match random.random_range(0..5) {
                0 => bytes[at] = value,
                1 => bytes[at] ^= 1 << random.random_range(0..8),
                2 => bytes.insert(at, value),
                3 => drop(bytes.remove(at)),
                _ => bytes.truncate(at),
            }
        }
        valid += usize::from(exercise(&bytes));
    }
    assert!((100..15_000).contains(&valid), "{valid} of 20,000 are valid");
    for _ in 0..5_000 {
        let mut bytes = good[..16].to_vec();
        bytes.push(0x41);
        bytes.extend((0..random.random_range(0..300)).map(|_| random.random_range(0..256) as u8));
        exercise(&bytes);
    }
}

#[test]
fn no_events_make_it_panic() {
    // Random records with small numbers get further than random bytes.
    let mut random = SmallRng::seed_from_u64(0x2545_f491_4f6c_dd1d);
    for _ in 0..3_000 {
        let mut bytes = b"go 1.19 trace\0\0\0".to_vec();
        bytes.extend(bytes::batch(0, T0));
        bytes.extend(bytes::frequency(1_000));
        for _ in 0..random.random_range(0..60) {
            let event = E::ALL[random.random_range(0..E::ALL.len())];
            let values: Vec<u64> = (0..event.values())
                .map(|_| match random.random_range(0..12) {
                    0 => u64::MAX - random.random_range(0..3) as u64,
                    1 => T0 + random.random_range(0..50) as u64,
                    _ => random.random_range(0..4) as u64,
                })
                .collect();
            bytes.extend(bytes::record(event.number(), event.argument_bits(), &values));
            if event == E::UserLog {
                bytes.push(0);
            }
        }
        exercise(&bytes);
    }
}
