//! Work with events of both profiles at a steady pace, and the same work without.

use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender, channel};

use rtprof_benches::descent::{at_depth, depth_for};
use rtprof_benches::processor::Stopwatch;
use rtprof_benches::work::{steps, steps_in};
use rtprof_profiler::BlockKinds;
use rtprof_profiler::contention::{block_event, mutex_event};
use rtprof_runtime::clock;

use super::recorded::{Profile, set_rates};

/// The rates of `init`.
const RATES: (usize, usize) = (10_000, 10);
/// The budget of `init`, in percent.
const BUDGET: f64 = 1.0;
/// Each wait takes a millisecond, so that at the rate each is sampled.
const WAITS_A_SECOND: u64 = 1_000;
/// The turns of a thread in a measurement,
const TURNS: usize = 30;
/// and those in a second: few events, because the machine may be half as fast some milliseconds later.
const TURNS_A_SECOND: usize = 250;
/// The turns with events before a measurement, in which the rates follow them.
const WARM_UP: usize = 15;

/// Threads that take turns: a budget is kept by each thread, so the one with events does nothing else.
pub(crate) struct Load {
    without: Worker,
    without_again: Worker,
    with: Worker,
}

/// A part of the work.
#[derive(Clone, Copy)]
struct Order {
    has_events: bool,
    /// The steps of work before each event.
    work: usize,
    count: usize,
    /// The stack of the events.
    at: (usize, usize),
}

struct Worker {
    orders: Sender<Order>,
    /// Nanoseconds of processor time for an event with the work before it.
    nanos: Receiver<f64>,
}

impl Load {
    pub(crate) fn start() -> Self {
        Self { without: Worker::start(), without_again: Worker::start(), with: Worker::start() }
    }

    /// Returns the depth of recursion that gives the events stacks of so many frames, and the frames that they have.
    pub(crate) fn depth_for(&self, way: usize, wanted: usize) -> [f64; 2] {
        set_rates(1, 0);
        let frames_at = |depth| {
            let one = Order { has_events: true, work: 0, count: 1, at: (way, depth) };
            Profile::Block.frames_of(|| _ = self.with.take(one))
        };
        let depth = depth_for(wanted, frames_at(1));
        let frames = frames_at(depth);
        set_rates(0, 0);
        [depth, frames].map(|number| number as f64)
    }

    /// Returns the nanoseconds of processor time for an event with the work before it, turn by turn: of two threads that
    /// leave the events out, and of one with events. HOW is `rates` for both rates, or `budget` for a budget also.
    pub(crate) fn nanos(&self, how: &str, per_second: usize, at: (usize, usize)) -> Vec<f64> {
        match how {
            "rates" => {}
            "budget" => rtprof::set_profile_budget(BUDGET).expect("a budget"),
            other => panic!("unknown way {other}"),
        }
        set_rates(RATES.0, RATES.1);
        let work = steps_in(1_000_000_000 / per_second);
        let order = Order { has_events: false, work, count: per_second / TURNS_A_SECOND, at };
        let with = Order { has_events: true, ..order };
        let workers = [(&self.without, order), (&self.without_again, order), (&self.with, with)];
        (0..WARM_UP).for_each(|_| _ = self.with.take(with));
        let mut nanos = vec![];
        for turn in 0..TURNS {
            let mut of_turn = [0.0; 3];
            for step in 0..workers.len() {
                let place = (turn + step) % workers.len();
                let (worker, order) = workers[place];
                of_turn[place] = worker.take(order);
            }
            nanos.extend(of_turn);
        }
        set_rates(0, 0);
        rtprof::clear_profile_budget();
        nanos
    }
}

impl Worker {
    fn start() -> Self {
        let ((orders, to_do), (done, nanos)) = (channel::<Order>(), channel());
        std::thread::spawn(move || to_do.iter().map(timed).try_for_each(|nanos| done.send(nanos)));
        Self { orders, nanos }
    }

    fn take(&self, order: Order) -> f64 {
        self.orders.send(order).expect("the thread lives");
        self.nanos.recv().expect("the thread lives")
    }
}

fn timed(Order { has_events, work, count, at: (way, depth) }: Order) -> f64 {
    let wait = clock::ticks_per_second() / WAITS_A_SECOND;
    let mut nanos = 0.0;
    at_depth(way, depth, &mut || {
        let watch = Stopwatch::start();
        events(has_events, work, wait, count);
        nanos = watch.nanos_each(count);
    });
    nanos
}

/// Waits and contended unlocks in turns.
#[inline(never)]
fn events(are_recorded: bool, work: usize, wait: u64, count: usize) {
    let mut value = 0;
    for event in 0..count {
        value = black_box(steps(value, work));
        match (are_recorded, event % 2 == 0) {
            (false, _) => {}
            (true, true) => block_event(BlockKinds::SYNC, black_box(wait)),
            (true, false) => mutex_event(black_box(1), black_box(wait)),
        }
    }
}
