//! Traces of random programs.

use std::collections::HashMap;

use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_symbols::view::View;
use rtprof_trace_check::{EventType, Parsed, validate};
use rtprof_tracer::record::RecordKind;
use test_support::{go_raw, rounds};

use crate::Format;
use crate::encode::{Clock, Counts, Encode};
use crate::recorded::{
    RecordedLane, Texts, check_lost_generation, check_perfetto, check_second, check_windows, encode,
    generation,
};
use crate::simulated::{Mishaps, Simulation};
use crate::v1::V1;

const CLOCK: Clock = Clock { ticks_per_second: 2_900_000_000, start: 5_000_000 };

struct Run {
    parsed: Parsed,
    second: Parsed,
    counts: Counts,
    simulation: Simulation,
}

fn run(seed: u64, threads: u64, generations: usize, steps: usize, mishaps: Mishaps) -> Run {
    let mut simulation = Simulation::new(seed, threads, CLOCK.start, mishaps);
    let mut recorded = Vec::new();
    for at in 0..generations {
        if at + 3 == generations {
            simulation.calm();
        }
        let begin = simulation.now;
        let lanes = simulation.generation(steps);
        recorded.push((begin, simulation.now, lanes));
    }
    let read = recorded.iter().map(|(begin, end, lanes)| generation(*begin, *end, lanes));
    let mut v1 = V1::new(CLOCK, 4, View::default());
    let (read, end) = (read.collect::<Vec<_>>(), simulation.now + 1_000_000);
    let bytes = encode(&mut v1, &read, end);
    if seed.is_multiple_of(10) {
        go_raw::trace_is_read(&bytes, &format!("simulation-{seed}-{}", mishaps.loss));
    }
    let parsed = validate(&bytes).unwrap_or_else(|invalid| panic!("seed {seed}: {invalid}"));
    let comparable = mishaps.leave_formats_equal().then_some(&parsed);
    let (second, parsed_second) = check_second(comparable, CLOCK, (&read, end), &format!("seed {seed}"));
    let comparable = mishaps.leave_formats_equal().then_some(&parsed_second);
    check_perfetto(comparable, CLOCK, (&read, end), &format!("seed {seed}"));
    check_windows(CLOCK, &read, &format!("seed {seed}"));
    if seed.is_multiple_of(4) {
        check_lost_generation(CLOCK, &read, end, &format!("seed {seed}"));
    }
    if seed.is_multiple_of(10) {
        go_raw::trace_is_read(&second, &format!("simulation-{seed}-{}-v2", mishaps.loss));
    }
    Run { parsed, second: parsed_second, counts: v1.counts(), simulation }
}

/// Returns the last event of each live goroutine until a tick.
fn phases(parsed: &Parsed, end: u64) -> HashMap<u64, EventType> {
    let mut last = HashMap::new();
    for event in parsed.events().filter(|event| event.tick() <= end) {
        let goroutine = event.target().unwrap_or(event.g());
        match event.event_type() {
            EventType::GoEnd => {
                last.remove(&event.g());
            }
            kind if kind == EventType::GoCreate
                || format!("{kind:?}").starts_with("Go") && goroutine != 0 =>
            {
                last.insert(goroutine, kind);
            }
            _ => {}
        }
    }
    last
}

fn agrees(state: State, last: EventType) -> bool {
    let name = format!("{last:?}");
    match state {
        State::Running => name.starts_with("GoStart"),
        State::Waiting(_) => name.starts_with("GoBlock") || name == "GoSleep",
        State::Syscall => name == "GoSysBlock",
        State::Runnable => name.starts_with("GoUnblock") || ["GoCreate", "GoSched"].contains(&&*name),
        State::Dead => false,
    }
}

fn check_ends(run: &Run, seed: u64) {
    // Before the first format closes the trace.
    check_states(run, phases(&run.parsed, (run.simulation.now >> 1) + 200_000), seed);
}

fn check_states(run: &Run, last: HashMap<u64, EventType>, seed: u64) {
    for (id, state) in run.simulation.states() {
        // A goroutine that was taken for dead for a while has another id.
        if let Some(&last) = last.get(&id) {
            assert!(agrees(state, last), "seed {seed}: {id} is {state:?}, its last event {last:?}");
        } else {
            assert!(last.keys().any(|&id| id > 1 << 40), "seed {seed}: nothing is known of {id}, {state:?}");
        }
    }
}

/// Returns a third of the seeds below `all`; all of them in a long run.
fn seeds(all: u64) -> impl Iterator<Item = u64> {
    (0..all).step_by(rounds(3, 1))
}

#[test]
fn nothing_is_missing_without_mishaps() {
    for seed in seeds(24) {
        let tasks = if seed < 12 { 0 } else { 10 };
        let run =
            run(seed, 8, 5, 1500, Mishaps { loss: 0, vanish: 0, skew: 300, tasks, pace: 200, calls: true });
        let counts = run.counts;
        assert_eq!(
            (counts.order.stuck_generations, counts.order.stale, counts.order.torn),
            (0, 0, 0),
            "seed {seed}: {counts:?}"
        );
        assert!(counts.order.lifted > 0 && counts.order.largest_lift <= 302, "seed {seed}: {counts:?}");
        let written = |kind: RecordKind| run.simulation.written.get(&(kind as u8)).copied().unwrap_or(0);
        let of = |kinds: &[EventType]| kinds.iter().map(|&kind| run.parsed.count(kind)).sum::<usize>();
        use EventType as E;
        let blocks =
            [E::GoBlockSync, E::GoBlockCond, E::GoBlockRecv, E::GoBlockSelect, E::GoBlockNet, E::GoSleep];
        let (open_syscalls, open_waits): (Vec<_>, Vec<_>) =
            run.simulation.open_calls().partition(|&(_, state)| state == State::Syscall);
        let waits_in_calls = run.simulation.waits_in_calls + open_waits.len();
        let awaits = written(RecordKind::Await) + written(RecordKind::AwaitSeveral);
        assert!(tasks == 0 || awaits > 50, "{awaits} polls");
        assert_eq!(of(&blocks), written(RecordKind::Block) + waits_in_calls + awaits, "seed {seed}");
        // Includes goroutines that are in a system call when the trace begins.
        let calls = written(RecordKind::Call) - run.simulation.waits_in_calls + open_syscalls.len();
        let system_calls = written(RecordKind::SyscallBegin) + calls;
        assert!((system_calls..=system_calls + 8).contains(&of(&[E::GoSysCall])), "seed {seed}");
        let ends = written(RecordKind::End) + written(RecordKind::CreateFailed) + written(RecordKind::Ready);
        assert_eq!(of(&[E::GoEnd]), ends, "seed {seed}");
        let creations = written(RecordKind::Create) + written(RecordKind::CreateAsync);
        assert_eq!(of(&[E::GoCreate]), creations + 8 + tasks as usize, "seed {seed}");
        assert_eq!(of(&[E::UserTaskCreate]), written(RecordKind::TaskCreate));
        assert_eq!(of(&[E::UserRegion]), written(RecordKind::RegionBegin) + written(RecordKind::RegionEnd));
        assert_eq!(of(&[E::HeapAlloc]), written(RecordKind::HeapAlloc));
        assert_eq!(of(&[E::GcStart]), written(RecordKind::GcStart));
        assert_eq!(of(&[E::StwStart]), written(RecordKind::StwStart));
        check_ends(&run, seed);
    }
}

#[test]
fn a_trace_with_losses_is_whole_and_true_in_the_end() {
    let (mut runs, mut stale, mut stuck, mut fresh) = (0, 0, 0, 0);
    for seed in seeds(60) {
        let tasks = if seed < 30 { 0 } else { 10 };
        let run = run(
            seed,
            8,
            8,
            600,
            Mishaps { loss: 20, vanish: 200, skew: 300, tasks, pace: 200, calls: false },
        );
        assert!(run.simulation.lost > 10);
        runs += 1;
        stale += run.counts.order.stale;
        stuck += run.counts.order.stuck_generations;
        fresh += run.parsed.goroutines().filter(|&(id, _)| id > 1 << 40).count();
        check_ends(&run, seed);
    }
    // Nearly all generations, of eight a run, are complete even with so many losses.
    assert!(stale > 0 && stuck < runs * 8 / 8, "{stale} stale, {stuck} stuck, {fresh} taken for dead");
}

#[test]
fn calls_in_progress_are_true_in_the_end_whatever_was_lost() {
    let mut open = 0;
    for seed in seeds(30) {
        let tasks = if seed < 15 { 0 } else { 10 };
        let mishaps = Mishaps { loss: 20, vanish: 200, skew: 300, tasks, pace: 200, calls: true };
        let run = run(seed, 8, 8, 600, mishaps);
        check_ends(&run, seed);
        check_states(&run, phases(&run.second, u64::MAX), seed);
        open += run.simulation.open_calls().count();
    }
    assert!(open > 10, "{open} calls in progress");
}

/// In the second format a P stops only after a millisecond without a goroutine.
#[test]
fn threads_that_wait_for_milliseconds_agree_too() {
    for seed in seeds(20) {
        let (tasks, loss) = (if seed < 10 { 0 } else { 10 }, if seed % 2 == 0 { 0 } else { 20 });
        let run = run(
            seed,
            8,
            5,
            600,
            Mishaps { loss, vanish: loss, skew: 300, tasks, pace: 3_000_000, calls: loss == 0 },
        );
        check_ends(&run, seed);
    }
}

/// Pairs of threads that wait for each other, the most common pattern in traces.
fn pairs(threads: u64, rounds: u64) -> Vec<RecordedLane> {
    let mut lanes: Vec<RecordedLane> = (1..=threads).map(RecordedLane::new).collect();
    let start = CLOCK.start;
    for thread in 1..=threads {
        lanes[thread as usize - 1].status(start, thread, 0, State::Running);
    }
    for round in 0..rounds {
        let tick = start + 100 + round * 10_000;
        for pair in lanes.chunks_exact_mut(2) {
            let [waiter, waker] = pair else { unreachable!() };
            let thread = waiter.goroutine();
            waiter.block(tick, WaitReason::MutexLock);
            waker.put(tick + 1000, RecordKind::Unblock, [thread, round * 3 + 2, 1]);
            waker.put(tick + 1100, RecordKind::RegionBegin, [1, 4, 1]);
            waiter.put(tick + 2000, RecordKind::Start, [thread, round * 3 + 3]);
            waker.put(tick + 3000, RecordKind::RegionEnd, [1, 4]);
        }
    }
    lanes
}

/// Returns the processor time of this thread in nanoseconds.
fn on_processor() -> u64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    times.split(' ').next().unwrap().parse().unwrap()
}

/// `cargo test --release -p rtprof-trace-out -- --ignored --nocapture nanoseconds_a_record`
#[test]
#[ignore = "a measurement, not a test"]
fn nanoseconds_a_record() {
    let texts = Texts::new();
    let measure = |what: &str, begin: u64, end: u64, lanes: &[RecordedLane]| {
        let read = generation(begin, end, lanes);
        for format in [Format::V1, Format::V2] {
            let mut fastest = f64::MAX;
            let mut last = String::new();
            for _ in 0..15 {
                let mut encoder = crate::encoders::encoder(format, CLOCK, 4, View::default());
                let mut out = Vec::with_capacity(16 << 20);
                encoder.begin(&mut out);
                let start = on_processor();
                encoder.generation(&read, &texts, &mut out);
                encoder.end_generation(&texts, &mut out);
                let took = (on_processor() - start) as f64;
                let Counts { order, events, .. } = encoder.counts();
                fastest = fastest.min(took / order.records as f64);
                let bytes = out.len() as f64 / events as f64;
                last = format!("{} records, {events} events, {bytes:.2} bytes an event", order.records);
            }
            println!("{what}, {format:?}: {fastest:.1} ns a record; {last}");
        }
    };
    for threads in [2, 16, 200] {
        let rounds = 200_000 / threads;
        let lanes = pairs(threads, rounds);
        measure(&format!("{threads} in pairs"), CLOCK.start, CLOCK.start + (rounds + 1) * 10_000, &lanes);
    }
    for threads in [4, 200] {
        let mut simulation = Simulation::new(
            1,
            threads,
            CLOCK.start,
            Mishaps { loss: 0, vanish: 0, skew: 100, tasks: 0, pace: 200, calls: false },
        );
        let begin = simulation.now;
        let lanes = simulation.generation(400_000);
        measure(
            &format!("by chance, a twentieth new threads, from {threads}"),
            begin,
            simulation.now,
            &lanes,
        );
    }
}
