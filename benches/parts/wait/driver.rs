//! Measures threads that wait for each other, with the profiles off and on.

use std::io;

use rtprof_benches::statistics::excess;
use rtprof_benches::team::Placement;

use crate::binaries::{Binaries, Build};
use crate::child::Child;
use crate::effort::Effort;
use crate::order::Order;
use crate::table::{Row, Table, Unit};

/// The work of the threads.
enum Job {
    /// Pass a lock on, each time to a thread that sleeps for it.
    HandOver { frames: usize },
    /// Send a message back and forth.
    PingPong { place: Placement, frames: usize },
    /// Send many messages in one direction, through a channel with room for `bound` messages (0: any number).
    Stream { bound: usize },
    /// Contend for one lock: `inside` steps of work under it, then `outside` steps without it, again and again.
    Contend { threads: usize, inside: usize, outside: usize, micros: usize },
    /// Put jobs of a microsecond into a queue, and do them; notify one waiting thread of each change, or all.
    WorkQueue { producers: usize, workers: usize, tells: &'static str },
}

/// A contender, which takes turns with the others of its group.
struct Contender {
    who: &'static str,
    whose: &'static str,
    /// The rate of the block profile in nanoseconds, and the fraction of the mutex profile.
    rates: (u64, u64),
    anchor: &'static str,
}

const fn peer(who: &'static str, whose: &'static str) -> Contender {
    Contender { who, whose, rates: (0, 0), anchor: "" }
}

const fn ours(who: &'static str, rates: (u64, u64), anchor: &'static str) -> Contender {
    Contender { who, whose: "rtprof", rates, anchor }
}

const OFF: Contender = ours("rtprof, profiles off", (0, 0), "");
const AGAIN: &str = "the same again (A/A)";
const OFF_AGAIN: Contender = ours(AGAIN, (0, 0), "");
const BOTH: Contender = ours("rtprof, block 1, mutex 1", (1, 1), "");

/// A job and the contenders that are compared. The first contender is the baseline.
struct Group {
    what: &'static str,
    job: Job,
    contenders: &'static [Contender],
}

const GROUPS: [Group; 18] = [
    Group {
        what: "a lock handed to a sleeper, one core",
        job: Job::HandOver { frames: 1 },
        contenders: &[
            OFF,
            OFF_AGAIN,
            ours("rtprof, mutex 100", (0, 100), "Go 1.093×"),
            ours("rtprof, mutex 1", (0, 1), "Go 1.533×, 251 ns an event"),
            ours("rtprof, block 10000", (10_000, 0), "Go 1.124×"),
            ours("rtprof, block 1", (1, 0), "Go 1.461×, 219 ns an event"),
            ours("rtprof, block 1, mutex 1", (1, 1), "Go 1.917×"),
        ],
    },
    Group {
        what: "a lock handed to a sleeper, one core",
        job: Job::HandOver { frames: 30 },
        contenders: &[
            OFF,
            OFF_AGAIN,
            ours("rtprof, mutex 1", (0, 1), ""),
            ours("rtprof, block 1", (1, 0), ""),
            BOTH,
        ],
    },
    Group {
        what: "channel ping-pong, one core",
        job: Job::PingPong { place: Placement::OneCore, frames: 1 },
        contenders: &[
            OFF,
            OFF_AGAIN,
            ours("rtprof, mutex 1", (0, 1), "Go 1.046×"),
            ours("rtprof, block 10000", (10_000, 0), "Go 1.442×, 73 ns an event"),
            ours("rtprof, block 1", (1, 0), "Go 1.933×, 167 ns an event"),
            peer("std", "std"),
        ],
    },
    Group {
        what: "channel ping-pong, one core",
        job: Job::PingPong { place: Placement::OneCore, frames: 30 },
        contenders: &[
            OFF,
            OFF_AGAIN,
            ours("rtprof, block 10000", (10_000, 0), "Go 1.467×, 90 ns an event"),
            ours("rtprof, block 1", (1, 0), "Go 2.713×, 328 ns an event"),
        ],
    },
    Group {
        what: "channel ping-pong, two cores",
        job: Job::PingPong { place: Placement::Apart, frames: 1 },
        contenders: &[
            OFF,
            OFF_AGAIN,
            ours("rtprof, block 10000", (10_000, 0), "Go 1.442×"),
            ours("rtprof, block 1", (1, 0), "Go 1.933×"),
            peer("std", "std"),
        ],
    },
    Group {
        what: "channel, any number of messages, two cores",
        job: Job::Stream { bound: 0 },
        contenders: &STREAM,
    },
    Group { what: "channel of 64 messages, two cores", job: Job::Stream { bound: 64 }, contenders: &STREAM },
    contended("2 threads want a lock, for ~20 ns", 2, [20, 0], 4_000),
    contended("2 threads want a lock, for ~1 µs", 2, [1_000, 0], 4_000),
    // With more threads than cores, the window is long enough for all of them to run.
    contended("4 threads want a lock, for ~20 ns", 4, [20, 0], 10_000),
    contended("4 threads want a lock, for ~1 µs", 4, [1_000, 0], 10_000),
    contended("4 threads want a lock, for ~1 µs of 2", 4, [1_000, 1_000], 10_000),
    work_queue("work queue, jobs of ~1 µs, 1 worker", 1, 1),
    work_queue("work queue, jobs of ~1 µs, 2 workers", 1, 2),
    work_queue("work queue, jobs of ~1 µs, 4 workers", 1, 4),
    work_queue("work queue, jobs of ~1 µs, 16 workers", 1, 16),
    told_all("work queue, notify_all, 1 producer, 10 workers", 1, 10),
    told_all("work queue, notify_all, 10 producers, 1 worker", 10, 1),
];

const STREAM: [Contender; 4] = [peer("std", "std"), peer(AGAIN, "std"), OFF, BOTH];

const fn contended(
    what: &'static str,
    threads: usize,
    [inside, outside]: [usize; 2],
    micros: usize,
) -> Group {
    Group { what, job: Job::Contend { threads, inside, outside, micros }, contenders: &CONTENDED }
}

const CONTENDED: [Contender; 5] =
    [peer("parking_lot", "parking_lot"), peer(AGAIN, "parking_lot"), peer("std", "std"), OFF, BOTH];

const fn work_queue(what: &'static str, producers: usize, workers: usize) -> Group {
    Group { what, job: Job::WorkQueue { producers, workers, tells: "one" }, contenders: &WORK_QUEUE }
}

const WORK_QUEUE: [Contender; 6] = [
    peer("parking_lot", "parking_lot"),
    peer(AGAIN, "parking_lot"),
    peer("std", "std"),
    peer("crossbeam-channel", "crossbeam-channel"),
    OFF,
    BOTH,
];

const fn told_all(what: &'static str, producers: usize, workers: usize) -> Group {
    Group { what, job: Job::WorkQueue { producers, workers, tells: "all" }, contenders: &CONTENDED }
}

impl Job {
    /// Returns the request that runs the job once, for a few milliseconds.
    fn request(&self, whose: &str, depth: usize) -> String {
        match self {
            Self::HandOver { .. } => format!("hand-over {depth} 250"),
            Self::PingPong { place, .. } => format!("ping-pong {whose} {} {depth} 400", place.word()),
            Self::Stream { bound } => format!("stream {whose} {} {bound} 20000", Placement::Apart.word()),
            Self::Contend { threads, inside, outside, micros } => {
                format!("contend {whose} {threads} {inside} {outside} {micros}")
            }
            Self::WorkQueue { producers, workers, tells } => {
                format!("work-queue {whose} {producers} {workers} {tells} 4000")
            }
        }
    }

    /// Returns the job's name in a request for its depth, and the number of frames that its stacks should have.
    fn frames(&self) -> Option<(&'static str, usize)> {
        match self {
            Self::HandOver { frames } => Some(("hand-over", *frames)),
            Self::PingPong { frames, .. } => Some(("ping-pong", *frames)),
            Self::Stream { .. } | Self::Contend { .. } | Self::WorkQueue { .. } => None,
        }
    }
}

/// Measures all groups and adds their rows.
pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let mut results = GROUPS.map(Results::of);
    for way in 0..effort.wait_processes {
        let mut child = Child::start(&binaries.path(Build::Plain, "part-wait"))?;
        child.ask(&format!("way {way}"))?;
        for result in &mut results {
            result.measure(&mut child, effort.wait_rounds)?;
        }
        let [dropped] = child.numbers("dropped")?;
        if dropped > 0.0 {
            return Err(io::Error::other(format!("{dropped} events were not recorded in full")));
        }
    }
    for result in &results {
        for place in 0..result.group.contenders.len() {
            table.add(result.row(place));
        }
    }
    Ok(())
}

struct Results {
    group: Group,
    order: Order,
    /// By contender: one value per round, for one operation.
    nanos: Vec<Vec<f64>>,
    /// By contender: waits and contended unlocks for one operation, as sums over the rounds.
    events: Vec<[f64; 2]>,
    /// Frames of the stacks.
    frames: f64,
}

impl Results {
    fn of(group: Group) -> Self {
        let count = group.contenders.len();
        Self {
            group,
            order: Order::of(count),
            nanos: vec![vec![]; count],
            events: vec![[0.0; 2]; count],
            frames: 0.0,
        }
    }

    fn measure(&mut self, child: &mut Child, rounds: usize) -> io::Result<()> {
        let mut depth = 1;
        if let Some((job, frames)) = self.group.job.frames() {
            let [found, real] = child.numbers(&format!("depth {job} {frames}"))?;
            (depth, self.frames) = (found as usize, real);
        }
        for _ in 0..rounds {
            for place in self.order.next_round() {
                let Contender { whose, rates: (block, mutex), .. } = self.group.contenders[place];
                child.ask(&format!("rates {block} {mutex}"))?;
                let [nanos, waits, unlocks] = child.numbers(&self.group.job.request(whose, depth))?;
                self.nanos[place].push(nanos);
                self.events[place][0] += waits;
                self.events[place][1] += unlocks;
            }
        }
        Ok(())
    }

    fn row(&self, place: usize) -> Row {
        let contender = &self.group.contenders[place];
        let nanos = &self.nanos[place];
        let row = Row::of(self.what(), contender.who, nanos, Unit::Nanos).anchor(contender.anchor);
        if place == 0 {
            return row.notes(format!("{} pairs", nanos.len()));
        }
        let baseline = &self.nanos[0];
        row.against(self.group.contenders[0].who, nanos, baseline, Unit::Nanos)
            .notes(self.notes(place, excess(nanos, baseline)))
    }

    fn what(&self) -> String {
        match self.group.job.frames() {
            Some(_) => format!("{}, {} frames", self.group.what, self.frames),
            None => self.group.what.to_owned(),
        }
    }

    /// Returns the number of events, and the cost of an event if each operation has one.
    fn notes(&self, place: usize, more: f64) -> String {
        let rounds = self.nanos[place].len() as f64;
        let [waits, unlocks] = self.events[place].map(|sum| sum / rounds);
        let counts = match self.group.contenders[place].rates {
            (0, 0) => return String::new(),
            (_, 0) => format!("{waits:.3} waits"),
            (0, _) => format!("{unlocks:.3} charged unlocks"),
            _ => format!("{waits:.3} waits, {unlocks:.3} charged unlocks"),
        };
        if self.group.job.frames().is_some() && waits + unlocks > 0.5 {
            format!("{counts} an operation; {} an event", Unit::Nanos.show_excess(more / (waits + unlocks)))
        } else {
            format!("{counts} an operation")
        }
    }
}
