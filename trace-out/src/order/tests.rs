use std::collections::HashMap;

use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_tracer::record::{RecordKind, Status};

use super::*;
use crate::recorded::{RecordedLane, generation};

/// Writes down all calls.
#[derive(Default)]
struct Steps {
    steps: Vec<String>,
    ticks: Vec<u64>,
    /// The goroutines by their indices.
    ids: HashMap<u32, u64>,
    /// The targets of wakes and starts.
    targets: Vec<(String, u64)>,
}

impl Steps {
    fn tell(&mut self, at: EventPosition, what: String) {
        self.steps.push(what);
        self.ticks.push(at.tick);
    }
}

impl EventSink for Steps {
    fn lane(&mut self, _: u32, _: u64, _: u32) {}

    fn introduce(&mut self, at: EventPosition, goroutine: u32, _: Option<u32>, status: &Status) {
        self.ids.insert(goroutine, status.goroutine);
        self.tell(at, format!("{} is {:?}", status.goroutine, status.state));
    }

    fn bridge(&mut self, at: EventPosition, goroutine: u32, _: Option<u32>, state: State) {
        self.tell(at, format!("#{goroutine} spans {state:?}"));
    }

    fn record(&mut self, at: EventPosition, target: u32, record: &Record<'_>) {
        let text = format!("{record:?}");
        let kind = text.split([' ', '{']).next().unwrap().to_owned();
        if let Record::Create { goroutine, .. } = record {
            self.ids.insert(target, *goroutine);
        }
        if let Record::Unblock { .. } | Record::Start { .. } = record {
            self.targets.push((kind.clone(), self.ids[&target]));
        }
        self.tell(at, format!("#{} {kind}", at.goroutine));
    }

    fn resume(&mut self, at: EventPosition) {
        self.tell(at, format!("#{} goes on", at.goroutine));
    }

    fn lane_over(&mut self, lane: u32) {
        self.steps.push(format!("lane {lane} over"));
    }
}

fn order(generations: &[&[RecordedLane]]) -> (Steps, OrderCounts) {
    let (mut told, mut order) = (Steps::default(), Order::new());
    for (lanes, begin) in generations.iter().zip((0..).step_by(1000)) {
        order.generation(&generation(begin, begin + 1000, *lanes), &mut told);
    }
    (told, order.counts())
}

/// Returns every permutation of these lanes.
fn permutations(lanes: &[RecordedLane]) -> Vec<Vec<RecordedLane>> {
    if lanes.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for at in 0..lanes.len() {
        let mut rest = lanes.to_vec();
        let first = rest.remove(at);
        all.extend(permutations(&rest).into_iter().map(|mut others| {
            others.insert(0, first.clone());
            others
        }));
    }
    all
}

fn running(goroutine: u64) -> RecordedLane {
    let mut lane = RecordedLane::new(goroutine);
    lane.status(10, goroutine, 0, State::Running);
    lane
}

#[test]
fn causes_come_first_however_the_lanes_lie() {
    // 1 creates 2, which blocks; 3 wakes it; then it ends. 3 is declared on the shared lane.
    let mut creator = running(1);
    creator.put(100, RecordKind::Create, [2, 0, 0]);
    let mut created = RecordedLane::new(2);
    created.put(200, RecordKind::Start, [2, 1]).block(300, WaitReason::Park).put(
        500,
        RecordKind::Start,
        [2, 4],
    );
    created.put(600, RecordKind::End, []).over();
    let mut waker = RecordedLane::new(3);
    waker.put(400, RecordKind::Unblock, [2, 3, 0]);
    let mut shared = RecordedLane::new(0);
    shared.status(20, 3, 0, State::Running);
    for lanes in permutations(&[creator, created, waker, shared]) {
        let (told, counts) = order(&[&lanes]);
        let index = |what: &str| {
            let found = told.steps.iter().position(|step| step.ends_with(what));
            found.unwrap_or_else(|| panic!("no {what} in {:?}", told.steps))
        };
        assert!(index("1 is Running") < index("Create") && index("Create") < index("Start"));
        assert!(index("Start") < index("Block") && index("Block") < index("Unblock"));
        assert!(index("3 is Running") < index("Unblock") && index("Unblock") < index("End"));
        assert_eq!(told.steps.iter().filter(|step| step.ends_with("Start")).count(), 2);
        assert_eq!(counts, OrderCounts { records: 8, ..OrderCounts::default() });
    }
}

#[test]
fn effects_are_lifted_over_their_causes() {
    let mut waiter = running(1);
    waiter.block(100, WaitReason::Park).put(150, RecordKind::Start, [1, 3]).put(
        160,
        RecordKind::HeapAlloc,
        [1],
    );
    let mut waker = running(2);
    // The waker's clock is 60 ticks behind.
    waker.put(40, RecordKind::Unblock, [1, 2, 0]).put(45, RecordKind::HeapAlloc, [1]).put(
        200,
        RecordKind::HeapAlloc,
        [1],
    );
    for lanes in permutations(&[waiter, waker]) {
        let (told, counts) = order(&[&lanes]);
        let tick = |what: &str| {
            let at = told.steps.iter().position(|step| step.ends_with(what)).unwrap();
            told.ticks[at]
        };
        assert_eq!((tick("Block"), tick("Unblock"), tick("Start")), (100, 101, 150));
        assert_eq!((counts.lifted, counts.largest_lift), (1, 61), "{:?}", told.steps);
        // Later records of the lane are not counted, but are in order.
        assert!(told.ticks.contains(&101) && told.ticks.contains(&200) && !told.ticks.contains(&45));
    }
}

#[test]
fn turns_are_taken_in_their_order() {
    // The collections 0 to 3 begin and end on different lanes.
    let mut first = running(1);
    first.put(100, RecordKind::GcStart, [0, 0]).put(400, RecordKind::GcDone, [1]).put(
        700,
        RecordKind::GcStart,
        [3, 0],
    );
    let mut second = running(2);
    second.put(200, RecordKind::GcDone, [0]).put(300, RecordKind::GcStart, [1, 0]).put(
        600,
        RecordKind::GcDone,
        [2],
    );
    let mut third = running(3);
    third.put(500, RecordKind::GcStart, [2, 0]).put(800, RecordKind::GcDone, [3]);
    for lanes in permutations(&[first, second, third]) {
        let (told, counts) = order(&[&lanes]);
        let spans: Vec<_> =
            told.steps.iter().zip(&told.ticks).filter(|(step, _)| step.contains("Gc")).collect();
        let ticks: Vec<_> = spans.iter().map(|&(_, &tick)| tick).collect();
        assert_eq!(ticks, [100, 200, 300, 400, 500, 600, 700, 800], "{spans:?}");
        assert_eq!((counts.stale, counts.lifted, counts.stuck_generations), (0, 0, 0));
    }
}

#[test]
fn who_waits_for_what_was_lost_gives_up_for_a_generation() {
    let mut waiter = running(1);
    waiter.block(100, WaitReason::Park).put(300, RecordKind::HeapAlloc, [1]);
    // Its wake-up is unrecorded, and the wake of 2 belongs to an unrecorded wait.
    let mut waker = running(2);
    waker
        .put(200, RecordKind::Unblock, [1, 9, 0])
        .put(210, RecordKind::HeapAlloc, [1])
        .put(220, RecordKind::End, [])
        .over();
    let mut shared = RecordedLane::new(0);
    shared.status(1010, 1, 12, State::Running);
    let mut after = RecordedLane::new(1);
    after.put(1100, RecordKind::RegionBegin, [0, 1, 0]).block(1200, WaitReason::Sleep);
    let (told, counts) = order(&[&[waiter, waker], &[after, shared]]);
    assert_eq!((counts.stuck_generations, counts.stuck_records, counts.bridged), (1, 3, 1));
    assert!(told.steps.contains(&"#2 spans Dead".to_owned()), "its thread is over: {:?}", told.steps);
    let came_back = told.steps.iter().position(|step| step == "#1 spans Running").unwrap();
    assert_eq!(told.steps[came_back + 1..], ["#1 RegionBegin", "#1 Block"]);
}

#[test]
fn a_declaration_after_a_loss_wins() {
    let mut lane = running(1);
    lane.block(100, WaitReason::Park);
    lane.buffer(500, 1, true).status_after_loss(500, 1, 7, State::Running).put(510, RecordKind::Yield, [0]);
    // Records from the time in between come too late, or not at all.
    let mut waker = running(2);
    waker.put(200, RecordKind::Unblock, [1, 2, 0]).put(490, RecordKind::Unblock, [1, 6, 0]);
    for lanes in permutations(&[lane, waker]) {
        let (told, counts) = order(&[&lanes]);
        assert_eq!((counts.stuck_generations, counts.bridged), (0, 1), "{:?}", told.steps);
        assert!(told.steps.iter().any(|step| step.ends_with(" spans Running")));
        assert!(told.steps.iter().any(|step| step.ends_with(" Yield")));
    }
}

#[test]
fn a_declaration_elsewhere_waits_for_what_was_before_the_loss() {
    let before = running(1);
    let mut lane = RecordedLane::new(1);
    lane.status(1010, 1, 0, State::Running).block(1100, WaitReason::Park).put(1200, RecordKind::Wake, []);
    let mut shared = RecordedLane::new(0);
    shared.status_after_loss(1900, 1, 6, State::Runnable);
    lane.buffer(1950, 0, true).put(1950, RecordKind::Start, [1, 7]);
    for lanes in permutations(&[lane, shared]) {
        let (told, counts) = order(&[std::slice::from_ref(&before), &lanes]);
        let own: Vec<_> = told.steps.iter().map(|step| step.split_once(' ').unwrap().1).collect();
        assert_eq!(own, ["is Running", "Block", "Wake", "spans Runnable", "Start"]);
        assert_eq!((counts.stale, counts.stuck_generations), (0, 0));
    }
}

#[test]
fn a_start_is_believed_where_no_declaration_comes() {
    let mut lane = running(1);
    lane.block(100, WaitReason::Park)
        .buffer(500, 0, true)
        .put(500, RecordKind::Start, [1, 5])
        .block(600, WaitReason::Park);
    let (told, counts) = order(&[&[lane]]);
    assert_eq!(told.steps, ["1 is Running", "#1 Block", "#1 spans Runnable", "#1 Start", "#1 Block"]);
    assert_eq!((counts.bridged, counts.stuck_generations), (1, 0));
}

#[test]
fn what_is_no_record_ends_its_buffer() {
    let mut lane = running(1);
    lane.put(100, RecordKind::HeapAlloc, [1]).tear().buffer(200, 1, true).put(
        200,
        RecordKind::HeapAlloc,
        [1],
    );
    let (told, counts) = order(&[&[lane]]);
    assert_eq!(told.steps, ["1 is Running", "#1 HeapAlloc", "#1 HeapAlloc"]);
    assert_eq!(counts.torn, 1);
}

#[test]
fn a_thread_that_polls_is_its_own_again_afterwards() {
    let mut lane = running(1);
    lane.put(50, RecordKind::Create, [2, 0, 0]).put(60, RecordKind::Create, [3, 0, 0]);
    lane.put(200, RecordKind::Poll, [2, 1]).put(205, RecordKind::TaskEnd, [9, 0]);
    lane.put(206, RecordKind::Poll, [3, 1]).block(207, WaitReason::Park).put(208, RecordKind::Wake, []);
    lane.put(209, RecordKind::Ready, [3, 2]).put(210, RecordKind::Await, [2, 2, WaitReason::Await as u64, 0]);
    lane.block(300, WaitReason::Net).put(310, RecordKind::Wake, []);
    let (told, counts) = order(&[&[lane]]);
    let expected = [
        "1 is Running",
        "#1 Create",
        "#1 Create",
        "#1 Poll",
        "#2 TaskEnd",
        "#2 Poll",
        "#3 Block",
        "#3 Wake",
        "#3 Ready",
        "#2 goes on",
        "#2 Await",
        "#1 Block",
        "#1 Wake",
    ];
    assert_eq!(told.steps, expected);
    assert_eq!((counts.stuck_generations, counts.stale), (0, 0));
}

#[test]
fn a_wake_of_a_thread_is_that_of_the_task_it_polls() {
    let mut lane = running(1);
    lane.put(50, RecordKind::Create, [2, 0, 0])
        .put(60, RecordKind::Poll, [2, 1])
        .block(100, WaitReason::Park);
    lane.put(300, RecordKind::Start, [1, 3]).put(310, RecordKind::Reschedule, [2, 2, 0]);
    let mut waker = running(4);
    waker.put(200, RecordKind::Unblock, [1, 2, 0]);
    for lanes in permutations(&[lane, waker]) {
        let (told, counts) = order(&[&lanes]);
        assert_eq!(told.targets, [("Unblock".to_owned(), 2), ("Start".to_owned(), 2)]);
        assert_eq!((counts.stuck_generations, counts.stale), (0, 0));
    }
}
