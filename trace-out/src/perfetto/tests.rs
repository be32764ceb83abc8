//! Properties of Perfetto's format alone. Its waits are compared with those of Go's formats in `crate::simulated` and
//! in the tests of whole programs.

use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_trace_check::perfetto::{Event, EventKind, Trace, check, check_window};
use rtprof_tracer::record::RecordKind;

use super::*;
use crate::recorded::{RecordedLane, Texts, encode, generation};
use crate::schedule::OPEN_REGIONS;

const CLOCK: Clock = Clock { ticks_per_second: 1_000_000_000, start: 1_000_000 };
const LENGTH: u64 = 1_000_000_000;

/// The generation `number`, from its lanes.
fn at(generation: u64, tick: u64) -> u64 {
    CLOCK.start + generation * LENGTH + tick
}

fn bytes(generations: &[Vec<RecordedLane>]) -> Vec<u8> {
    let mut perfetto = Perfetto::new(CLOCK, View::default());
    let generations: Vec<_> = (0..)
        .zip(generations)
        .map(|(number, lanes)| generation(at(number, 0), at(number + 1, 0), lanes))
        .collect();
    encode(&mut perfetto, &generations, at(generations.len() as u64, 0))
}

fn trace(generations: &[Vec<RecordedLane>]) -> Trace {
    check(&bytes(generations)).unwrap()
}

/// Encodes generations one after the other, to be kept.
fn parts(
    perfetto: &mut Perfetto,
    generations: impl IntoIterator<Item = Vec<RecordedLane>>,
) -> Vec<UnnamedGeneration> {
    let parts = (0..).zip(generations).map(|(number, lanes)| {
        let generation = generation(at(number, 0), at(number + 1, 0), &lanes);
        perfetto.generation(&generation, &Texts::new(), &mut Vec::new());
        perfetto.end_part(&Texts::new())
    });
    parts.collect()
}

fn window(parts: &[UnnamedGeneration]) -> Trace {
    let mut bytes = Vec::new();
    let mut file = GenerationFile::begin(&mut bytes);
    for part in parts {
        file.put(part, &Texts::new(), View::default(), &mut bytes);
    }
    check_window(&bytes).unwrap()
}

/// Returns the slices of a track: depth, name, category, and how long they lasted.
fn story<'a>(trace: &'a Trace, track: &str) -> Vec<(usize, &'a str, &'a str, Option<u64>)> {
    let tracks = trace.tracks_named(track);
    assert_eq!(tracks.len(), 1, "{track}");
    let slices = trace.slices_on(tracks[0]);
    slices.map(|slice| (slice.depth, &*slice.begin.name, &*slice.begin.category, slice.nanos())).collect()
}

/// A thread that takes a lock which another one holds.
fn contention() -> Vec<RecordedLane> {
    let mut waiter = RecordedLane::new(1);
    waiter
        .status(at(0, 10), 1, 0, State::Running)
        .put(at(0, 100), RecordKind::RegionBegin, [0, 5, 1])
        .block(at(0, 500), WaitReason::MutexLock)
        .put(at(0, 20_000), RecordKind::Start, [1, 3])
        .put(at(0, 21_000), RecordKind::RegionEnd, [0, 5])
        .put(at(0, 22_000), RecordKind::End, [])
        .over();
    let mut holder = RecordedLane::new(2);
    holder.status(at(0, 20), 2, 0, State::Running).put(at(0, 15_000), RecordKind::Unblock, [1, 2, 1]);
    vec![waiter, holder]
}

#[test]
fn a_wait_lasts_until_it_is_ended_and_an_arrow_says_by_whom() {
    let trace = trace(&[contention()]);
    let states = [
        (0, "running", "", Some(490)),
        (0, "sync: mutex", "wait", Some(14_500)),
        (0, "running", "", Some(2_000)),
    ];
    assert_eq!(story(&trace, "main"), states);
    assert_eq!(story(&trace, "regions"), [(0, "parse", "", Some(20_900))]);
    assert_eq!(story(&trace, "worker"), [(0, "running", "", None)]);
    let unblocks: Vec<&Event> = trace.events.iter().filter(|event| &*event.name == "unblock").collect();
    let [unblock] = unblocks[..] else { panic!("{unblocks:?}") };
    assert_eq!((trace.track(unblock.track).name.as_str(), unblock.kind), ("worker", EventKind::Instant));
    assert!(!unblock.stack.is_empty());
    let ends: Vec<&Event> = trace.events.iter().filter(|event| event.ended_flows == unblock.flows).collect();
    let [end] = ends[..] else { panic!("{ends:?}") };
    assert_eq!((&*end.name, end.time - unblock.time), ("running", 5_000));
    let waits = trace.slices.iter().find(|slice| &*slice.begin.category == "wait").unwrap();
    assert!(waits.begin.stack.len() > 2, "{:?}", waits.begin.stack);
}

/// A thread that polls a task, which waits, in the generation `number`.
fn polls(number: u64) -> Vec<RecordedLane> {
    let mut lane = RecordedLane::new(1);
    let changes = number * 2;
    lane.status(at(number, 10), 1, 0, State::Running);
    if number == 0 {
        lane.put(at(0, 20), RecordKind::CreateAsync, [50, 4, 1]);
    } else {
        let waits = State::Waiting(WaitReason::Await).number().into();
        lane.put(at(number, 20), RecordKind::Status, [50, changes, waits, 0, 0, 4, 1, 2]);
    }
    lane.put(at(number, 1_000), RecordKind::Poll, [50, changes + 1])
        .put(at(number, 3_000), RecordKind::RegionBegin, [0, 5, 1])
        .put(at(number, 4_000), RecordKind::RegionEnd, [0, 5])
        .put(at(number, 5_000), RecordKind::Await, [50, changes + 2, WaitReason::Await as u64, 1]);
    vec![lane]
}

#[test]
fn a_task_has_its_track_and_its_polls_are_on_the_threads() {
    let trace = trace(&[polls(0), polls(1)]);
    let task = trace.tracks_named("request 50")[0];
    assert_eq!(trace.path(task)[1..], ["async tasks", "request", "request 50"]);
    let states = [
        (0, "running", "", Some(4_000)),
        (0, "sync: await", "wait", Some(LENGTH - 4_000)),
        (0, "running", "", Some(4_000)),
        (0, "sync: await", "wait", None),
    ];
    assert_eq!(story(&trace, "request 50"), states);
    let polls: Vec<_> = story(&trace, "main").into_iter().filter(|slice| slice.2 == "poll").collect();
    assert_eq!(polls, [(0, "request", "poll", Some(4_000)); 2]);
    let regions = trace.slices.iter().filter(|slice| &*slice.begin.name == "parse");
    assert!(regions.into_iter().all(|slice| trace.path(slice.begin.track).contains(&"request 50")));
    // The task is created where it runs first.
    let spawn = trace.events.iter().find(|event| &*event.name == "spawn").unwrap();
    let first = trace.events.iter().find(|event| event.ended_flows == spawn.flows).unwrap();
    assert_eq!(first.track, task);
}

/// Returns the values of a counter, with the time since the beginning of the trace in ms.
fn counts(trace: &Trace, name: &str) -> Vec<(f64, i64)> {
    let track = trace.tracks_named(name)[0];
    let events = trace.events.iter().filter(|event| event.track == track);
    let start = events.clone().map(|event| event.time).min().unwrap();
    let value = |event: &Event| match event.kind {
        EventKind::Counter(value) => value,
        other => panic!("{other:?}"),
    };
    events.map(|event| ((event.time - start) as f64 / 1e6, value(event))).collect()
}

#[test]
fn counters_show_how_many_tasks_could_run() {
    let mut first = RecordedLane::new(1);
    first
        .status(at(0, 10), 1, 0, State::Running)
        .put(at(0, 2_000_000), RecordKind::CreateAsync, [50, 4, 1])
        .put(at(0, 2_100_000), RecordKind::CreateAsync, [51, 4, 1])
        .put(at(0, 5_500_000), RecordKind::Poll, [50, 1])
        .put(at(0, 7_500_000), RecordKind::Await, [50, 2, WaitReason::Await as u64, 1]);
    let mut second = RecordedLane::new(1);
    let waits = State::Waiting(WaitReason::Await).number().into();
    let runnable = State::Runnable.number().into();
    second
        .status(at(1, 10), 1, 0, State::Running)
        .put(at(1, 20), RecordKind::Status, [50, 2, waits, 0, 0, 4, 1, 2])
        .put(at(1, 20), RecordKind::Status, [51, 0, runnable, 0, 0, 4, 1, 2])
        .put(at(1, 1_500_000), RecordKind::Poll, [51, 1])
        .put(at(1, 2_500_000), RecordKind::Ready, [51, 2]);
    let mut ends = RecordedLane::new(2);
    ends.status(at(0, 20), 2, 0, State::Running).put(at(0, 4_200_000), RecordKind::End, []).over();
    let trace = trace(&[vec![first, ends], vec![second]]);
    assert_eq!(counts(&trace, "runnable tasks"), [(0.0, 0), (3.0, 2), (6.0, 1), (1000.0, 1), (1002.0, 0)]);
    assert_eq!(counts(&trace, "waiting tasks"), [(0.0, 0), (8.0, 1), (1000.0, 1)]);
    assert_eq!(counts(&trace, "threads"), [(0.0, 2), (5.0, 1), (1000.0, 1)]);
}

/// Checks all beginnings of a file. Only arrows may miss their ends.
fn check_beginnings(whole: &[u8], mut check_one: impl FnMut(&Trace)) {
    let mut rest = whole;
    let mut most = 0;
    while !rest.is_empty() {
        prost::encoding::decode_key(&mut rest).unwrap();
        let len = prost::encoding::decode_varint(&mut rest).unwrap() as usize;
        rest = &rest[len..];
        match check(&whole[..whole.len() - rest.len()]) {
            Ok(trace) => {
                assert!(trace.events.len() >= most);
                most = trace.events.len();
                check_one(&trace);
            }
            Err(fault) => assert!(fault.contains("its flow has no end"), "{fault}"),
        }
    }
    assert!(most > 10, "{most}");
}

#[test]
fn a_file_that_was_cut_shows_what_is_complete() {
    check_beginnings(&bytes(&[polls(0), polls(1)]), |_| {});
}

#[test]
fn in_a_file_that_was_cut_waits_end_as_they_did() {
    let mut waiter = RecordedLane::new(1);
    waiter.status(at(0, 10), 1, 0, State::Running);
    let mut holder = RecordedLane::new(2);
    holder.status(at(0, 20), 2, 0, State::Running);
    for round in 0..20 {
        waiter.block(at(0, round * 1_000 + 100), WaitReason::MutexLock).put(
            at(0, round * 1_000 + 300),
            RecordKind::Start,
            [1, round * 2 + 3],
        );
        holder.put(at(0, round * 1_000 + 200), RecordKind::Unblock, [1, round * 2 + 2, 1]);
    }
    let mut depths = 0;
    check_beginnings(&bytes(&[vec![waiter, holder]]), |trace| {
        depths += trace.slices.len();
        assert!(trace.slices.iter().all(|slice| slice.depth == 0), "{:?}", trace.slices);
    });
    assert!(depths > 100, "{depths}");
}

#[test]
fn a_window_has_the_parents_of_its_user_tasks() {
    let mut begins = RecordedLane::new(1);
    begins.status(at(0, 10), 1, 0, State::Running).put(at(0, 100), RecordKind::TaskCreate, [7, 0, 4, 1]);
    let mut has_child = RecordedLane::new(1);
    has_child.status(at(1, 10), 1, 0, State::Running).put(at(1, 50), RecordKind::TaskCreate, [9, 7, 5, 1]);
    let parts = parts(&mut Perfetto::new(CLOCK, View::default()), [vec![begins], vec![has_child]]);
    let window = window(&parts[1..]);
    let child = window.tracks_named("parse")[0];
    assert_eq!(window.path(child)[window.path(child).len() - 2..], ["request", "parse"]);
}

#[test]
fn the_same_region_soon_after_has_no_stack() {
    let mut lane = RecordedLane::new(1);
    lane.status(at(0, 10), 1, 0, State::Running);
    for begin in [1_000, 2_000, 3_000, 20_000] {
        lane.put(at(0, begin), RecordKind::RegionBegin, [0, 5, 1]);
        lane.put(at(0, begin + 10), RecordKind::RegionEnd, [0, 5]);
    }
    let trace = trace(&[vec![lane]]);
    let regions = trace.slices_on(trace.tracks_named("regions")[0]);
    let have: Vec<bool> = regions.map(|slice| !slice.begin.stack.is_empty()).collect();
    assert_eq!(have, [true, false, false, true]);
}

#[test]
fn a_region_ends_with_its_goroutine() {
    let mut lane = RecordedLane::new(1);
    lane.status(at(0, 10), 1, 0, State::Running)
        .put(at(0, 100), RecordKind::RegionBegin, [0, 5, 1])
        .put(at(0, 200), RecordKind::RegionBegin, [0, 6, 1])
        .put(at(0, 300), RecordKind::End, [])
        .over();
    let trace = trace(&[vec![lane]]);
    assert_eq!(story(&trace, "regions"), [(0, "parse", "", Some(200)), (1, "note", "", Some(100))]);
}

#[test]
fn so_many_open_regions_are_ended() {
    let mut lane = RecordedLane::new(1);
    lane.status(at(0, 10), 1, 0, State::Running);
    let most = OPEN_REGIONS as u64;
    for number in 0..=most {
        lane.put(at(0, 100 + number), RecordKind::RegionBegin, [0, 5, 1]);
    }
    lane.put(at(0, 1_000 + most), RecordKind::RegionEnd, [0, 5]);
    // Its beginning is one of those that were ended.
    lane.put(at(0, 2_000 + most), RecordKind::RegionEnd, [0, 5]);
    let trace = trace(&[vec![lane]]);
    let regions = story(&trace, "regions");
    let (last, others) = regions.split_last().unwrap();
    assert_eq!((*last, others.len()), ((0, "parse", "", Some(900)), OPEN_REGIONS));
    assert!(others.iter().all(|region| region.3.is_some()));
}

#[test]
fn a_stop_of_the_world_without_its_end_lasts_until_the_next_one() {
    let mut lane = RecordedLane::new(1);
    lane.status(at(0, 10), 1, 0, State::Running)
        .put(at(0, 100), RecordKind::StwStart, [0, 0, 1])
        .block(at(0, 500), WaitReason::MutexLock);
    let mut other = RecordedLane::new(2);
    other.status(at(0, 20), 2, 0, State::Running).put(at(0, 900), RecordKind::StwStart, [1, 1, 1]).put(
        at(0, 950),
        RecordKind::StwDone,
        [1],
    );
    let trace = trace(&[vec![lane, other]]);
    let stops = story(&trace, "stops of the world");
    assert_eq!(
        stops.iter().map(|stop| stop.1).collect::<Vec<_>>(),
        ["GC mark termination", "GC sweep termination"]
    );
    assert!(stops.iter().all(|stop| stop.0 == 0 && stop.3.is_some()), "{stops:?}");
}

#[test]
fn a_thread_or_a_task_that_is_found_after_losses_is_shown_as_what_it_is() {
    // The task is being polled, by a thread that is not known.
    let mut first = RecordedLane::new(0);
    first.put(at(0, 10), RecordKind::Status, [50, 3, State::Running.number().into(), 0, 0, 4, 1, 2]);
    // It comes to wait without a record of how, which is shown on a P that stands in.
    let mut second = RecordedLane::new(0);
    let waits = State::Waiting(WaitReason::Await).number().into();
    second.put(at(1, 10), RecordKind::Status, [50, 6, waits, 0, 0, 4, 1, 3]);
    let trace = trace(&[vec![first], vec![second]]);
    let task = trace.tracks_named("request 50")[0];
    assert_eq!(trace.path(task)[1..], ["async tasks", "request", "request 50"]);
}

#[test]
fn a_task_whose_records_were_lost_is_not_counted_for_long() {
    let generations: Vec<Vec<RecordedLane>> = (0..4)
        .map(|number| {
            let mut lane = RecordedLane::new(1);
            lane.status(at(number, 10), 1, 0, State::Running);
            if number == 0 {
                lane.put(at(0, 2_000_000), RecordKind::CreateAsync, [50, 4, 1]);
            }
            vec![lane]
        })
        .collect();
    let counts = counts(&trace(&generations), "runnable tasks");
    assert_eq!(counts.iter().map(|count| count.1).collect::<Vec<_>>(), [0, 1, 1, 1, 0, 0], "{counts:?}");
}

#[test]
fn a_window_names_a_stop_by_its_reason_and_has_one_time_since_boot() {
    let mut first = RecordedLane::new(1);
    first.status(at(0, 10), 1, 0, State::Running).put(at(0, 100), RecordKind::StwStart, [0, 1, 1]);
    let mut second = RecordedLane::new(1);
    second.status(at(1, 10), 1, 0, State::Running).put(at(1, 400), RecordKind::StwDone, [0]);
    let mut third = RecordedLane::new(1);
    third.status(at(2, 10), 1, 0, State::Running).block(at(2, 700), WaitReason::MutexLock);
    let mut perfetto = Perfetto::new(CLOCK, View::default());
    let mut parts = parts(&mut perfetto, [vec![first], vec![second], vec![third]]);
    // The clocks have drifted.
    (parts[1].boot, parts[2].boot) = (7_000, 5_000);
    let window = window(&parts[1..]);
    assert_eq!(story(&window, "stops of the world"), [(0, "GC sweep termination", "collector", Some(401))]);
    let wait = window.slices.iter().find(|slice| &*slice.begin.name == "sync: mutex").unwrap();
    assert_eq!(wait.begin.time, 7_000 + at(2, 700));
}

#[test]
fn too_many_open_user_tasks_end_the_oldest() {
    let mut lane = RecordedLane::new(1);
    lane.status(at(0, 10), 1, 0, State::Running);
    let most = 1 << 16;
    for task in 1..=most + 1 {
        lane.put(at(0, 100 + task), RecordKind::TaskCreate, [task, 0, 4, 1]);
    }
    let trace = trace(&[vec![lane]]);
    let tasks = trace.slices.iter().filter(|slice| &*slice.begin.category == "task");
    let ended: Vec<_> = tasks.filter_map(|slice| Some((slice.begin.track >> 2, slice.nanos()?))).collect();
    assert_eq!(ended, [(1, most)]);
}

#[test]
fn lists_of_open_user_tasks_share_what_has_not_changed() {
    let begun: Vec<RecordedLane> = {
        let mut lane = RecordedLane::new(1);
        lane.status(at(0, 10), 1, 0, State::Running);
        for task in 1..=10_000 {
            lane.put(at(0, 100 + task), RecordKind::TaskCreate, [task, task / 2, 4, 1]);
        }
        vec![lane]
    };
    let mut ends = RecordedLane::new(1);
    ends.status(at(1, 10), 1, 0, State::Running).put(at(1, 50), RecordKind::TaskEnd, [5_000, 1]);
    let mut perfetto = Perfetto::new(CLOCK, View::default());
    let parts = parts(&mut perfetto, [begun, vec![ends], Vec::new()]);
    let memory: Vec<usize> = parts.iter().map(|part| part.openings.memory()).collect();
    let (pointers, block) = (10_000 / 256 * 16, 256 * 40);
    assert!(memory[1] > 10_000 * 32 && memory[2] < pointers + 2 * block, "{memory:?}");
    let window = window(&parts[2..]);
    let open = window.slices.iter().filter(|slice| &*slice.begin.category == "task").count();
    assert_eq!(open, 9_999);
    let parent = |task: u64| window.path(task << 2 | 2).len();
    assert_eq!([parent(1), parent(2), parent(5_000 * 2), parent(9_999)], [3, 4, 3, 16]);
}

#[test]
fn a_user_task_may_end_on_a_thread_that_is_read_first() {
    let mut ends = RecordedLane::new(1);
    ends.status(at(0, 10), 1, 0, State::Running).put(at(0, 900), RecordKind::TaskEnd, [8, 1]);
    ends.put(at(0, 950), RecordKind::TaskEnd, [7, 1]);
    let mut begins = RecordedLane::new(2);
    begins.status(at(0, 20), 2, 0, State::Running);
    begins.put(at(0, 100), RecordKind::TaskCreate, [7, 0, 4, 1]);
    begins.put(at(0, 200), RecordKind::TaskCreate, [9, 7, 5, 1]);
    let trace = trace(&[vec![ends, begins]]);
    assert_eq!(story(&trace, "request"), [(0, "request", "task", Some(850))]);
    assert_eq!(story(&trace, "parse"), [(0, "parse", "task", None)]);
    assert_eq!(trace.path(trace.tracks_named("parse")[0])[1..], ["user tasks", "request", "parse"]);
}
