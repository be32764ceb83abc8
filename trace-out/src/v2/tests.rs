//! Properties of the second format alone. Its events are compared with those of the first format in the tests there and
//! in `crate::simulated`.

use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_trace_check::{EventType as E, Parsed, validate};
use rtprof_tracer::record::{RecordKind, StwReason};

use super::*;
use crate::recorded::{RecordedLane, encode, generation};

const CLOCK: Clock = Clock { ticks_per_second: 1_000_000_000, start: 1_000_000 };
const LENGTH: u64 = 1_000_000_000;

/// Encodes generations of a second each.
fn encoded(version: Version, generations: &[Vec<RecordedLane>]) -> Vec<u8> {
    let mut v2 = V2::new(version, CLOCK, 4, View::default());
    let begins = (CLOCK.start..).step_by(LENGTH as usize);
    let generations: Vec<_> =
        begins.zip(generations).map(|(begin, lanes)| generation(begin, begin + LENGTH, lanes)).collect();
    encode(&mut v2, &generations, CLOCK.start + generations.len() as u64 * LENGTH)
}

fn parsed(version: Version, generations: &[Vec<RecordedLane>]) -> Parsed {
    validate(&encoded(version, generations)).unwrap_or_else(|invalid| panic!("{version:?}: {invalid}"))
}

/// Three generations in which a thread waits, helps the collector, stops the world and logs.
fn three() -> [Vec<RecordedLane>; 3] {
    let at = |generation: u64, tick: u64| CLOCK.start + generation * LENGTH + tick;
    let mut first = RecordedLane::new(1);
    first
        .status(at(0, 10), 1, 3, State::Running)
        .put(at(0, 100), RecordKind::RegionBegin, [0, 5, 1])
        .put(at(0, 200), RecordKind::GcStart, [7, 1])
        .put(at(0, 300), RecordKind::AssistStart, [1])
        .put(at(0, 350), RecordKind::SweepStart, [1])
        .put(at(0, 400), RecordKind::StwStart, [9, StwReason::SweepTermination as u64, 1]);
    // The recorder declares every goroutine in each generation.
    let others = |generation| {
        let mut others = RecordedLane::new(0);
        others.status(at(generation, 20), 2, 1, State::Waiting(WaitReason::Net));
        others.status(at(generation, 30), 3, 1, State::Syscall);
        others
    };
    let mut second = RecordedLane::new(1);
    second
        .status(at(1, 10), 1, 3, State::Running)
        .put(at(1, 100), RecordKind::StwDone, [9])
        .put(at(1, 150), RecordKind::SweepDone, [1, 2])
        .put(at(1, 200), RecordKind::AssistDone, [])
        .put(at(1, 300), RecordKind::GcDone, [7])
        .put(at(1, 400), RecordKind::RegionEnd, [0, 5])
        .block(at(1, 500), WaitReason::MutexLock);
    let mut third = RecordedLane::new(1);
    third.buffer(at(2, 0), 0, false).status(at(2, 10), 1, 4, State::Waiting(WaitReason::MutexLock));
    third.put(at(2, 100), RecordKind::Wake, []).log(at(2, 200), 0, 6, "hello");
    [vec![others(0), first], vec![second, others(1)], vec![others(2), third]]
}

#[test]
fn what_is_open_goes_on_in_the_next_generation() {
    for version in [Version::Go122, Version::Go126] {
        let parsed = parsed(version, &three());
        assert_eq!(parsed.generations().len(), 3);
        // The world is stopped in both generations.
        assert_eq!((parsed.count(E::StwStart), parsed.count(E::StwDone)), (2, 2));
        assert!(parsed.events_of(E::StwStart).all(|stop| stop.args()[0] == 1));
        for kind in [
            E::GcStart,
            E::GcDone,
            E::GcSweepStart,
            E::GcSweepDone,
            E::GcMarkAssistStart,
            E::GcMarkAssistDone,
        ] {
            assert_eq!(parsed.count(kind), 1, "{kind:?}");
        }
        assert_eq!((parsed.count(E::UserRegion), parsed.count(E::UserLog)), (2, 1));
        let wait = parsed.events_of(E::GoBlockSync).next().unwrap();
        assert_eq!(wait.reason(), "sync: mutex");
        assert!(wait.functions()[0].ends_with("Texts::new"), "{:?}", wait.functions());
    }
}

/// A reader may begin with any generation, as if the file began there.
#[test]
fn each_generation_is_complete() {
    let bytes = encoded(Version::Go126, &three());
    let header = &bytes[..16];
    let mut begins = vec![16];
    let mut known = 0;
    for end in 17..=bytes.len() {
        let (read, _) = Parsed::read_complete(&bytes[..end]).unwrap();
        if read.generations().len() > known {
            known += 1;
            begins.push(end);
        }
    }
    assert_eq!((known, begins.last()), (3, Some(&bytes.len())));
    for from in 0..3 {
        let window = [header, &bytes[begins[from]..]].concat();
        let parsed = validate(&window).unwrap_or_else(|invalid| panic!("from generation {from}: {invalid}"));
        assert_eq!(parsed.generations().len(), 3 - from);
        // Each goroutine is there, under its name.
        let names: Vec<_> = parsed.goroutines().collect();
        assert_eq!(names, [(1, "main"), (2, "worker"), (3, "thread runtime.hidden")], "{from}");
        assert_eq!(parsed.count(E::UserLog), 1);
    }
}

/// A call in progress at the end of a window is shown there, and goes on in the next one.
#[test]
fn calls_in_progress_go_on() {
    let at = |generation: u64, tick: u64| CLOCK.start + generation * LENGTH + tick;
    for state in [State::Syscall, State::Waiting(WaitReason::Sleep)] {
        let mut first = RecordedLane::new(1);
        first.status(at(0, 10), 1, 3, State::Running).log(at(0, 100), 0, 6, "before");
        let mut told = RecordedLane::new(0);
        told.put(at(0, 900_000), RecordKind::InCall, [1, state.number().into(), at(0, 5_000)]);
        // DeclaredReasons again in a generation in which nothing else happens.
        let mut again = RecordedLane::new(0);
        again.status(at(1, 10), 1, 3, State::Running);
        again.put(at(1, 900_000), RecordKind::InCall, [1, state.number().into(), at(0, 5_000)]);
        let mut last = RecordedLane::new(1);
        last.status(at(2, 10), 1, 3, State::Running);
        last.put(at(2, 50_000), RecordKind::Call, [state.number().into(), 1, at(2, 50_000) - at(0, 5_000)]);
        last.log(at(2, 60_000), 0, 6, "after");
        let parsed = parsed(Version::Go126, &[vec![first, told], vec![again], vec![last]]);
        let begin = match state {
            State::Syscall => E::GoSysCall,
            _ => E::GoSleep,
        };
        let times = |kind| parsed.events_of(kind).map(|event| event.time()).collect::<Vec<_>>();
        let logs = times(E::UserLog);
        assert_eq!((times(begin).len(), logs.len()), (1, 2), "{state:?}");
        let [began, before, after] = [times(begin)[0], logs[0], logs[1]];
        assert!(before < began && began < before + 10_000, "{state:?}: from {began} on, after {before}");
        let back = parsed.events().filter(|event| event.g() == 1 || event.target() == Some(1));
        let back = back.filter(|event| event.time() > began && event.time() < after);
        let back: Vec<_> = back.map(|event| event.time()).collect();
        assert!(
            !back.is_empty() && back.iter().all(|&time| time + 11_000 > after),
            "{state:?}: {back:?}, {after}"
        );
    }
}

/// A call that began before its goroutine is shown, or too late in a generation to be told in it.
#[test]
fn calls_in_progress_are_shown_from_the_next_generation_on() {
    let at = |generation: u64, tick: u64| CLOCK.start + generation * LENGTH + tick;
    let state = State::Waiting(WaitReason::Sleep);
    for begin in [at(0, LENGTH - 10), at(0, 5)] {
        let mut first = RecordedLane::new(1);
        first.status(at(0, 10), 1, 3, State::Running);
        let mut told = RecordedLane::new(0);
        told.status(at(1, 10), 1, 3, State::Running);
        told.put(at(1, 900_000), RecordKind::InCall, [1, state.number().into(), begin]);
        let mut last = RecordedLane::new(1);
        last.status(at(2, 10), 1, 3, State::Running);
        last.put(at(2, 50_000), RecordKind::Call, [state.number().into(), 1, at(2, 50_000) - begin]);
        let parsed = parsed(Version::Go126, &[vec![first], vec![told], vec![last]]);
        let ticks = |kind| parsed.events_of(kind).map(|event| event.tick()).collect::<Vec<_>>();
        let waits = ticks(E::GoSleep);
        let wakes = [ticks(E::GoUnblock), ticks(E::GoUnblockLocal)].concat();
        assert_eq!((waits.len(), wakes.len()), (1, 1), "{begin}");
        assert!(waits[0].abs_diff(at(1, 0) / 64) < 3, "{begin}: {waits:?}");
        assert!(wakes[0].abs_diff(at(2, 50_000) / 64) < 3, "{begin}: {wakes:?}");
    }
}

/// A file that ends anywhere shows its complete generations, and nothing wrong.
#[test]
fn a_file_that_was_cut_keeps_its_complete_generations() {
    for version in [Version::Go122, Version::Go126] {
        let bytes = encoded(version, &three());
        let parsed = validate(&bytes).unwrap();
        let whole: Vec<String> = parsed.events().map(|event| format!("{event:?}")).collect();
        let before = |generation: usize| {
            let begin = parsed.generations()[generation];
            parsed.events().filter(|event| event.tick() < begin).count()
        };
        let mut most = 0;
        for end in 16..bytes.len() {
            let (read, _) = Parsed::read_complete(&bytes[..end]).unwrap();
            let events: Vec<String> = read.events().map(|event| format!("{event:?}")).collect();
            most = most.max(read.generations().len());
            // Without a mark at the end of a generation, a part of the last one may be shown as if it were whole.
            let certain = match (version, read.generations().len()) {
                (Version::Go126, _) => events.len(),
                (Version::Go122, 0) => 0,
                (Version::Go122, shown) => before(shown - 1),
            };
            assert_eq!(events[..certain], whole[..certain], "{version:?}, cut at {end}");
        }
        assert!(most >= 2, "{most}");
    }
}

/// However long the threads play, because the sequence numbers stay small.
#[test]
fn waits_and_wake_ups_take_at_most_five_bytes() {
    const ROUNDS: u64 = 20_000;
    let mut lanes = vec![RecordedLane::new(1), RecordedLane::new(2)];
    for lane in &mut lanes {
        lane.status(CLOCK.start, lane.goroutine(), 0, State::Running);
    }
    for round in 0..ROUNDS {
        let tick = CLOCK.start + 100 + round * 3_000;
        lanes[0].block(tick, WaitReason::MutexLock);
        lanes[1].put(tick + 1000, RecordKind::Unblock, [1, round * 3 + 2, 1]);
        lanes[0].put(tick + 2000, RecordKind::Start, [1, round * 3 + 3]);
    }
    for version in [Version::Go122, Version::Go126] {
        let bytes = encoded(version, &[lanes.clone()]);
        let parsed = validate(&bytes).unwrap_or_else(|invalid| panic!("{version:?}: {invalid}"));
        assert_eq!(parsed.count(E::GoBlockSync) as u64, ROUNDS);
        let each = bytes.len() as f64 / (3 * ROUNDS) as f64;
        assert!(each <= 5.0, "{each} bytes an event");
    }
}

#[test]
fn ticks_are_multiples_of_64_nanoseconds() {
    let parsed = parsed(Version::Go126, &three());
    assert_eq!(parsed.ticks_per_second(), 15_625_000);
    let log = parsed.events_of(E::UserLog).next().unwrap();
    assert_eq!(log.tick(), (CLOCK.start + 2 * LENGTH + 200) / 64);
}

/// An executor's worker waits for the network when it has polled its tasks.
#[test]
fn a_call_after_a_poll_lasts_as_long_as_it_did() {
    let at = |generation: u64, tick: u64| CLOCK.start + generation * LENGTH + tick;
    let net = u64::from(State::Waiting(WaitReason::Net).number());
    let mut worker = RecordedLane::new(1);
    worker.status(at(0, 10), 1, 3, State::Running).put(at(0, 20), RecordKind::Create, [2, 0, 1]);
    worker.put(at(0, 100), RecordKind::Poll, [2, 1]).put(at(0, 200), RecordKind::Reschedule, [2, 2, 1]);
    worker.put(at(0, 500_000), RecordKind::Call, [net, 1, 400_000]);
    worker.put(at(0, 600_000), RecordKind::Poll, [2, 3]).put(
        at(0, 600_100),
        RecordKind::Reschedule,
        [2, 4, 1],
    );
    let mut told = RecordedLane::new(0);
    told.put(at(0, 900_000), RecordKind::InCall, [1, net, at(0, 700_000)]);
    let mut last = RecordedLane::new(1);
    last.status(at(1, 10), 1, 3, State::Running).status(at(1, 10), 2, 4, State::Runnable);
    last.put(at(1, 50_000), RecordKind::Call, [net, 1, at(1, 50_000) - at(0, 700_000)]);
    let parsed = parsed(Version::Go126, &[vec![worker, told], vec![last]]);
    let waits: Vec<_> = parsed.events_of(E::GoBlockNet).map(|event| event.tick() * 64).collect();
    assert_eq!(waits.len(), 2, "{waits:?}");
    for (wait, begin) in waits.into_iter().zip([at(0, 100_000), at(0, 700_000)]) {
        assert!(wait.abs_diff(begin) < 128, "from {wait} on, not {begin}");
    }
}

/// Without its record, a call lasts until the thread's next record, or until the end of the first generation in which it
/// was not seen.
#[test]
fn a_call_whose_record_was_lost_ends() {
    let at = |generation: u64, tick: u64| CLOCK.start + generation * LENGTH + tick;
    let sleep = u64::from(State::Waiting(WaitReason::Sleep).number());
    for has_record in [true, false] {
        let mut first = RecordedLane::new(1);
        first.status(at(0, 10), 1, 3, State::Running);
        let mut told = RecordedLane::new(0);
        told.put(at(0, 900_000), RecordKind::InCall, [1, sleep, at(0, 5_000)]);
        let mut second = RecordedLane::new(1);
        second.buffer(at(1, 10), 1, true).status_after_loss(at(1, 10), 1, 3, State::Running);
        if has_record {
            second.log(at(1, 60_000), 0, 6, "after");
        }
        let mut third = RecordedLane::new(0);
        third.status(at(2, 10), 1, 3, State::Running);
        let parsed = parsed(Version::Go126, &[vec![first, told], vec![second], vec![third]]);
        let back = [E::GoUnblock, E::GoUnblockLocal].map(|kind| parsed.events_of(kind).collect::<Vec<_>>());
        let back = back.concat();
        let end = if has_record { at(1, 60_000) } else { at(2, 0) };
        assert_eq!((parsed.count(E::GoSleep), back.len()), (1, 1), "{has_record}");
        assert!((back[0].tick() * 64).abs_diff(end) < 128, "{has_record}: {} and {end}", back[0].tick() * 64);
    }
}

/// A thread was preempted for 5 ms between the beginning of its record and the record's tick, and a cut came meanwhile.
#[test]
fn a_record_after_the_cut_moves_no_others() {
    let cut = CLOCK.start + LENGTH;
    let mut late = RecordedLane::new(1);
    late.status(CLOCK.start + 10, 1, 3, State::Running).log(cut + 5_000_000, 0, 6, "hello");
    let mut others = RecordedLane::new(0);
    others.status(CLOCK.start + 20, 2, 1, State::Waiting(WaitReason::Net));
    let mut ran_on = RecordedLane::new(1);
    ran_on.status(cut + 10, 1, 3, State::Running).block(cut + 6_400_000, WaitReason::MutexLock);
    let mut second = RecordedLane::new(2);
    second.buffer(cut + 20, 0, false).status(cut + 20, 2, 1, State::Waiting(WaitReason::Net));
    second.put(cut + 640_000, RecordKind::Wake, []).log(cut + 1_280_000, 0, 6, "hello");
    for version in [Version::Go122, Version::Go126] {
        let mut generations = [
            generation(CLOCK.start, cut, [&others, &late]),
            generation(cut, cut + LENGTH, [&ran_on, &second]),
        ];
        generations[0].closed = cut + 64;
        let mut v2 = V2::new(version, CLOCK, 4, View::default());
        let bytes = encode(&mut v2, &generations, cut + LENGTH);
        let parsed = validate(&bytes).unwrap_or_else(|invalid| panic!("{version:?}: {invalid}"));
        let since_cut = |event: rtprof_trace_check::Event<'_>| {
            (event.tick() * 64) as i64 - (cut as i64 - cut as i64 % 64)
        };
        let logs: Vec<_> = parsed.events_of(E::UserLog).map(since_cut).collect();
        assert!(logs[0].abs() < 640 && (logs[1] - 1_280_000).abs() < 640, "{version:?}: {logs:?}");
        let block = parsed.events_of(E::GoBlockSync).map(since_cut).next().unwrap();
        assert!((block - 6_400_000).abs() < 640, "{version:?}: {block}");
    }
}
