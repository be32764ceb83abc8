//! Traces of few records, and the resulting events.

use std::slice::from_ref;

use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::{WaitClass, WaitReason};
use rtprof_tracer::record::RecordKind;

use rtprof_trace_check::{Event, EventType, EventType as E, Parsed, validate};

use super::*;
use crate::recorded::{RecordedLane, check_second, encode, generation};

const CLOCK: Clock = Clock { ticks_per_second: 1_000_000_000, start: 1_000_000 };
const START: u64 = CLOCK.start;

fn trace(lanes: &[RecordedLane]) -> (Parsed, Counts) {
    trace_of(&[lanes])
}

fn trace_of(generations: &[&[RecordedLane]]) -> (Parsed, Counts) {
    let mut v1 = V1::new(CLOCK, 4, View::default());
    let count = generations.len() as u64;
    let generations: Vec<_> = (START..)
        .step_by(1_000_000)
        .zip(generations)
        .map(|(begin, lanes)| generation(begin, begin + 1_000_000, *lanes))
        .collect();
    let bytes = encode(&mut v1, &generations, START + count * 1_000_000);
    let parsed = validate(&bytes).unwrap_or_else(|invalid| panic!("{invalid}"));
    if count > 0 {
        check_second(Some(&parsed), CLOCK, (&generations, START + count * 1_000_000), "the trace");
    }
    assert_eq!(parsed.events().count() as u64, v1.counts().events);
    (parsed, v1.counts())
}

/// Returns the events of goroutine `g` and events about it, without those of Ps and without the end of the trace.
fn story(parsed: &Parsed, g: u64) -> Vec<EventType> {
    story_of(parsed, g, 1)
}

fn story_of(parsed: &Parsed, g: u64, generations: u64) -> Vec<EventType> {
    let is_its = |event: &Event<'_>| event.target().map_or(event.g() == g, |target| target == g);
    let end = START + generations * 1_000_000;
    let before_end = parsed.events().filter(|event| event.tick() < end);
    before_end.filter(is_its).map(|event| event.event_type()).collect()
}

fn main_thread() -> RecordedLane {
    let mut main = RecordedLane::new(1);
    main.status(START + 10, 1, 3, State::Running);
    main
}

/// Returns the events that result from these records of a running thread, beyond its introduction.
fn records(record: impl FnOnce(&mut RecordedLane)) -> (Parsed, Counts, Vec<EventType>) {
    let mut main = main_thread();
    record(&mut main);
    let (parsed, counts) = trace(&[main]);
    let story = story(&parsed, 1);
    assert_eq!(story[..2], [E::GoCreate, E::GoStartLocal]);
    (parsed, counts, story[2..].to_vec())
}

#[test]
fn nothing_at_all_is_a_trace() {
    let (parsed, counts) = trace_of(&[]);
    let types: Vec<_> = parsed.events().map(|event| event.event_type()).collect();
    assert_eq!((types, counts.events), (vec![E::Gomaxprocs], 1));
    assert_eq!(parsed.events().next().unwrap().args(), [4, 0]);
    assert_eq!(parsed.ticks_per_second(), CLOCK.ticks_per_second);
}

#[test]
fn each_state_is_introduced() {
    let wait = State::Waiting(WaitReason::Net);
    for (state, expected) in [
        (State::Running, &[E::GoCreate, E::GoStartLocal][..]),
        (State::Runnable, &[E::GoCreate]),
        (wait, &[E::GoCreate, E::GoStartLocal, E::GoBlock]),
        (State::Syscall, &[E::GoCreate, E::GoStartLocal, E::GoSysCall, E::GoSysBlock]),
    ] {
        for recorder in [0, 1, 5] {
            let mut lane = RecordedLane::new(recorder);
            if recorder == 1 {
                lane.status(START + 5, 1, 3, State::Running);
            }
            lane.status(START + 10, 5, 9, state);
            let (parsed, counts) = trace(&[lane]);
            assert_eq!(story(&parsed, 5), expected, "{state:?} told by {recorder}");
            assert_eq!(counts.order.lifted, 0);
            // Goroutine 5 has the first name.
            assert_eq!(parsed.goroutine_name(5), Some("main"));
        }
    }
}

#[test]
fn waits_are_told_apart() {
    let events = [
        (WaitClass::Sync, E::GoBlockSync),
        (WaitClass::Condition, E::GoBlockCond),
        (WaitClass::Send, E::GoBlockSend),
        (WaitClass::Receive, E::GoBlockRecv),
        (WaitClass::Select, E::GoBlockSelect),
        (WaitClass::Network, E::GoBlockNet),
        (WaitClass::Sleep, E::GoSleep),
        (WaitClass::Join, E::GoBlockSync),
        (WaitClass::Await, E::GoBlockSync),
    ];
    for reason in WaitReason::ALL {
        let (_, event) = events.into_iter().find(|(class, _)| *class == reason.class()).unwrap();
        let (parsed, _, story) = records(|main| {
            main.block(START + 100, reason).put(START + 200, RecordKind::Wake, []);
        });
        assert_eq!(story, [event, E::GoUnblockLocal, E::GoStartLocal], "{reason:?}");
        let block = parsed.events_of(event).next().unwrap();
        let functions = block.functions();
        assert_eq!(functions.last(), Some(&"main"), "the name is the root");
        assert!(functions[0].ends_with("Texts::new"), "{functions:?}");
    }
}

#[test]
fn what_a_thread_does_is_told() {
    let (parsed, counts, story) = records(|main| {
        main.put(START + 100, RecordKind::HeapAlloc, [4096])
            .put(START + 110, RecordKind::HeapGoal, [1 << 20])
            .put(START + 120, RecordKind::TaskCreate, [1, 0, 4, 1])
            .put(START + 130, RecordKind::RegionBegin, [1, 5, 1])
            .log(START + 140, 1, 6, "hello")
            .put(START + 150, RecordKind::RegionEnd, [1, 5])
            .put(START + 160, RecordKind::TaskEnd, [1, 1])
            .put(START + 170, RecordKind::GcStart, [7, 1])
            .put(START + 180, RecordKind::StwStart, [9, 1, 1])
            .put(START + 190, RecordKind::StwDone, [9])
            .put(START + 200, RecordKind::SweepStart, [1])
            .put(START + 210, RecordKind::SweepDone, [10, 5])
            .put(START + 220, RecordKind::AssistStart, [1])
            .put(START + 230, RecordKind::AssistDone, [])
            .put(START + 240, RecordKind::GcDone, [7])
            .put(START + 250, RecordKind::SyscallBegin, [1])
            .put(START + 260, RecordKind::SyscallEnd, [])
            .put(START + 270, RecordKind::Yield, [1])
            .put(START + 280, RecordKind::Start, [1, 7])
            .put(START + 290, RecordKind::End, []);
    });
    let expected = [
        &[E::HeapAlloc, E::HeapGoal, E::UserTaskCreate, E::UserRegion, E::UserLog, E::UserRegion][..],
        &[E::UserTaskEnd, E::GcStart, E::StwStart, E::StwDone, E::GcSweepStart, E::GcSweepDone],
        &[E::GcMarkAssistStart, E::GcMarkAssistDone, E::GcDone, E::GoSysCall, E::GoSysBlock, E::GoSysExit],
        &[E::GoStartLocal, E::GoSched, E::GoStartLocal, E::GoEnd],
    ];
    assert_eq!(story, expected.concat());
    let only = |event| parsed.events_of(event).next().unwrap();
    assert_eq!((only(E::HeapAlloc).args(), only(E::HeapGoal).args()), (&[4096][..], &[1 << 20][..]));
    assert_eq!(only(E::UserTaskCreate).name(), "request");
    assert_eq!((only(E::UserRegion).name(), only(E::UserRegion).argument("mode")), ("parse", Some(0)));
    assert_eq!((only(E::UserLog).name(), only(E::UserLog).message()), ("note", "hello"));
    // The first collection of this trace, whatever its number in the program.
    assert_eq!((only(E::GcStart).args()[0], only(E::StwStart).args()), (0, &[1][..]));
    assert_eq!(only(E::GcSweepDone).args(), [10, 5]);
    assert_eq!(only(E::GoSysCall).time(), 249);
    assert_eq!((counts.order.stale, counts.unmatched.others, counts.order.lifted), (0, 0, 0));
    // The P stopped for the wait and the system call, but not to yield.
    assert_eq!(parsed.count(E::ProcStart), 2);
    assert!(parsed.events_of(E::ProcStart).all(|event| event.args() == [101]));
}

#[test]
fn threads_create_and_wake_each_other() {
    let mut main = main_thread();
    main.put(START + 1000, RecordKind::Create, [2, 2, 1])
        .put(START + 1100, RecordKind::Create, [3, 3, 1])
        .put(START + 1200, RecordKind::CreateFailed, [3])
        .put(START + 1900, RecordKind::Unblock, [2, 3, 1]);
    let mut worker = RecordedLane::new(2);
    worker.put(START + 1500, RecordKind::Start, [2, 1]).block(START + 1600, WaitReason::Park);
    worker.put(START + 2000, RecordKind::Start, [2, 4]).put(START + 2100, RecordKind::End, []).over();
    for lanes in [[main.clone(), worker.clone()], [worker, main]] {
        let (parsed, counts) = trace(&lanes);
        assert_eq!(
            story(&parsed, 2),
            [E::GoCreate, E::GoStart, E::GoBlockSync, E::GoUnblock, E::GoStart, E::GoEnd]
        );
        assert_eq!(story(&parsed, 3), [E::GoCreate, E::GoStart, E::GoEnd]);
        assert_eq!((counts.order.lifted, counts.order.stale, counts.order.stuck_generations), (0, 0, 0));
        let names: Vec<_> = parsed.goroutines().collect();
        // Go's tools hide functions whose name begins with `runtime.`.
        assert_eq!(names, [(1, "main"), (2, "worker"), (3, "thread runtime.hidden")]);
    }
}

#[test]
fn what_is_open_twice_or_not_at_all_is_repaired() {
    let (parsed, counts, story) = records(|main| {
        main.put(START + 100, RecordKind::RegionEnd, [0, 4])
            .put(START + 110, RecordKind::RegionBegin, [0, 4, 1])
            .put(START + 120, RecordKind::RegionBegin, [0, 5, 1])
            // Ends the inner one too, whose own end comes too late.
            .put(START + 130, RecordKind::RegionEnd, [0, 4])
            .put(START + 140, RecordKind::RegionEnd, [0, 5])
            .put(START + 150, RecordKind::SweepDone, [1, 1])
            .put(START + 160, RecordKind::SweepStart, [1])
            .put(START + 170, RecordKind::SweepStart, [1])
            .put(START + 180, RecordKind::AssistDone, [])
            .put(START + 190, RecordKind::AssistStart, [1])
            .put(START + 200, RecordKind::AssistStart, [1])
            .put(START + 210, RecordKind::GcDone, [2])
            .put(START + 220, RecordKind::GcStart, [3, 1])
            .put(START + 230, RecordKind::GcStart, [5, 1])
            .put(START + 240, RecordKind::StwDone, [0])
            .put(START + 250, RecordKind::StwStart, [1, 0, 1])
            .block(START + 300, WaitReason::Sleep);
    });
    let expected = [
        &[E::UserRegion, E::UserRegion, E::UserRegion, E::UserRegion, E::GcSweepStart, E::GcSweepDone][..],
        &[E::GcSweepStart, E::GcMarkAssistStart, E::GcMarkAssistDone, E::GcMarkAssistStart, E::GcStart],
        &[E::GcDone, E::GcStart, E::StwStart, E::GcSweepDone, E::GoSleep],
    ];
    assert_eq!(story, expected.concat());
    let regions = parsed.events_of(E::UserRegion);
    assert!(regions.map(|event| (event.args()[1], event.name())).eq([
        (0, "request"),
        (0, "parse"),
        (1, "parse"),
        (1, "request")
    ]));
    assert_eq!(
        (counts.unmatched.region_ends, counts.unmatched.others, counts.order.stale),
        (2, 2, 2),
        "{counts:?}"
    );
    // Items that are open at the end are closed there.
    assert_eq!((parsed.count(E::StwDone), parsed.count(E::GcDone)), (1, 2));
}

#[test]
fn what_nobody_runs_for_is_left_out_or_told_of_nobody() {
    let mut main = main_thread();
    main.put(START + 100, RecordKind::End, [])
        .put(START + 110, RecordKind::HeapAlloc, [1])
        .put(START + 120, RecordKind::RegionBegin, [0, 4, 1])
        .put(START + 130, RecordKind::RegionEnd, [0, 4])
        .put(START + 140, RecordKind::AssistStart, [1])
        .put(START + 150, RecordKind::StwStart, [0, 0, 1])
        .put(START + 160, RecordKind::SweepStart, [1])
        .put(START + 170, RecordKind::GcStart, [0, 1])
        .log(START + 180, 0, 6, "late")
        .over();
    let mut shared = RecordedLane::new(0);
    shared
        .put(START + 10, RecordKind::HeapAlloc, [1])
        .put(START + 20, RecordKind::TaskCreate, [1, 0, 4, 2])
        .put(START + 30, RecordKind::TaskEnd, [1, 2])
        .log(START + 40, 0, 6, "outside");
    let (parsed, counts) = trace(&[main, shared]);
    for event in [E::UserRegion, E::GcMarkAssistStart, E::StwStart, E::GcSweepStart] {
        assert_eq!(parsed.count(event), 0, "{event:?}");
    }
    assert_eq!(counts.unmatched.others, 5);
    assert_eq!((parsed.count(E::HeapAlloc), parsed.count(E::UserLog), parsed.count(E::GcDone)), (2, 2, 1));
    let outside = parsed.events_of(E::UserTaskCreate).next().unwrap();
    // An address in no module stands for itself, and a stack of no goroutine has no root.
    assert_eq!((outside.p(), outside.functions()), (NO_PROC, vec!["0x10", "0x20"]));
}

#[test]
fn processors_are_few_and_pass_from_thread_to_thread() {
    let mut main = main_thread();
    let mut workers = Vec::new();
    for worker in 0..100 {
        let (id, tick) = (worker + 2, START + 1000 + worker * 1000);
        main.put(tick, RecordKind::Create, [id, 2, 1]);
        let mut lane = RecordedLane::new(id);
        lane.put(tick + 100, RecordKind::Start, [id, 1]).put(tick + 200, RecordKind::End, []).over();
        workers.push(lane);
    }
    workers.push(main);
    let (parsed, counts) = trace(&workers);
    assert_eq!(parsed.events_of(E::GoEnd).map(|event| event.p()).max(), Some(2));
    assert_eq!(counts.order.lifted, 0);
    // Lanes that live at the same time have separate Ps.
    let both: Vec<RecordedLane> = (1..=2)
        .map(|id| {
            let mut lane = RecordedLane::new(id);
            lane.status(START + 10, id, 0, State::Running).put(START + 500, RecordKind::End, []).over();
            lane
        })
        .collect();
    let (parsed, _) = trace(&both);
    assert_eq!(parsed.events_of(E::GoEnd).map(|event| event.p()).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_goroutine_goes_on_from_generation_to_generation() {
    let mut first = main_thread();
    first.block(START + 100, WaitReason::Join);
    let second_start = START + 1_000_000;
    let mut shared = RecordedLane::new(0);
    shared.status(second_start + 10, 1, 4, State::Waiting(WaitReason::Join));
    let mut second = RecordedLane::new(1);
    second.buffer(second_start, 0, false).put(second_start + 5, RecordKind::Wake, []);
    let (parsed, counts) = trace_of(&[&[first], &[second, shared]]);
    assert_eq!(
        story_of(&parsed, 1, 2),
        [E::GoCreate, E::GoStartLocal, E::GoBlockSync, E::GoUnblockLocal, E::GoStartLocal]
    );
    assert_eq!((counts.order.bridged, counts.order.stale), (0, 0));
}

#[test]
fn who_dies_without_a_word_is_missed() {
    let waiting = State::Waiting(WaitReason::Sleep);
    let mut shared = RecordedLane::new(0);
    shared.status(START + 10, 7, 1, waiting).status(START + 20, 8, 1, State::Running);
    let mut later = RecordedLane::new(0);
    later.put(START + 3_000_000, RecordKind::HeapAlloc, [1]);
    let empty = RecordedLane::new(0);
    let (parsed, counts) =
        trace_of(&[from_ref(&shared), from_ref(&empty), from_ref(&empty), from_ref(&later)]);
    assert_eq!(
        story_of(&parsed, 7, 4),
        [E::GoCreate, E::GoStartLocal, E::GoBlock, E::GoUnblock, E::GoStart, E::GoEnd]
    );
    assert_eq!(story_of(&parsed, 8, 4), [E::GoCreate, E::GoStartLocal, E::GoEnd]);
    assert_eq!(counts.order.stuck_generations, 0);
    // It was alive all the same: it is shown as another goroutine, because ids cannot be used twice.
    let mut back = RecordedLane::new(7);
    back.status(START + 3_000_010, 7, 5, State::Running);
    let none: &[RecordedLane] = &[];
    let (parsed, _) = trace_of(&[&[shared], none, none, &[later, back]]);
    let ids: Vec<u64> = parsed.goroutines().map(|(id, _)| id).collect();
    assert_eq!(ids, [7, 8, (1 << 40) + 1]);
}

/// Go 1.21 rejects a goroutine whose sample is as old as its creation. A thread may be interrupted while it introduces
/// itself.
#[test]
fn samples_are_later_than_the_goroutine() {
    for sampled in START + 5..START + 20 {
        let mut sampler = RecordedLane::new(2);
        sampler.put(sampled, RecordKind::CpuSample, [1, 0, 0, 1]);
        let (parsed, _) = trace(&[main_thread(), sampler]);
        let tick_of = |event| parsed.events_of(event).next().expect("it is there").tick();
        assert_eq!(tick_of(E::CpuSample), sampled.max(tick_of(E::GoCreate) + 1));
    }
}
