//! Measures async tasks: the cost of following and tracing them, and of snapshots of them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;

use rtprof_benches::statistics::median;
use rtprof_benches::yardstick::Yardstick;

use crate::binaries::{Binaries, Build};
use crate::budgets::{TASKS_10_000, TASKS_100_000};
use crate::child::Child;
use crate::effort::Effort;
use crate::limit::{Limit, Measured, Scale};
use crate::order::Order;
use crate::pace::Pace;
use crate::stall;
use crate::table::{Row, Table, Unit};

/// A way of following tasks.
struct Way {
    /// The word of the request.
    how: &'static str,
    who: &'static str,
    build: Build,
    binary: &'static str,
    /// Tasks or polls in a stretch: some milliseconds.
    count: usize,
}

const COUNT: usize = 20_000;

const fn own(how: &'static str, who: &'static str) -> Way {
    Way { how, who, build: Build::Plain, binary: OWN, count: COUNT }
}

const fn peer(who: &'static str, build: Build, binary: &'static str) -> Way {
    Way { how: "peer", who, build, binary, count: COUNT }
}

const OWN: &str = "part-tasks";
const TRACED: &str = "traced";

/// The first is the baseline. Ours come before the peers, so that an index means the same without these.
const WAYS: [Way; 8] = [
    own("plain", "tokio"),
    own("off", "rtprof, off"),
    own("on", "rtprof, stacks at each await"),
    own("block", "rtprof, block 10 µs"),
    own(TRACED, "rtprof, traced"),
    peer("dial9, recording", Build::TokioUnstable, "part-task-dial9"),
    peer("hotpath, counting", Build::Plain, "part-task-hotpath"),
    // It takes much longer, and needs memory for each task.
    Way { count: COUNT / 10, ..peer("console-subscriber", Build::TokioUnstable, "part-task-console") },
];

/// The work of tasks.
struct Work {
    name: &'static str,
    what: &'static str,
    /// The budget in nanoseconds for following a task while nothing is recorded.
    followed: f64,
    /// The budget in nanoseconds for tracing it: 40 for each event, and 20 more for the stack of a waker.
    traced: f64,
    /// The events of one unit of work in a trace.
    events: &'static str,
    /// The index of the way to compare with. If stacks of awaits or creators are captured, they are captured there too.
    beside: usize,
}

const WORKS: [Work; 3] = [
    Work {
        name: "spawn",
        what: "spawn and join",
        followed: 60.0,
        traced: 120.0,
        events: "created, polled, over",
        beside: 2,
    },
    Work {
        name: "ping",
        what: "channel ping-pong, a poll",
        followed: 15.0,
        traced: 140.0,
        events: "woken, polled, waits",
        beside: 2,
    },
    Work {
        name: "wake",
        what: "a task that wakes itself, a poll",
        followed: 15.0,
        traced: 80.0,
        events: "polled, can run again",
        beside: 1,
    },
];

const RUNTIMES: [(&str, &str); 2] = [("current", "current-thread"), ("multi", "two workers")];

/// How long clients send requests to a service at a time, with a trace or without.
const STRETCH_MILLIS: usize = 1_000;

/// Frames of waiting tasks, without those of the leaf.
const FRAMES: usize = 10;
const COUNTS: [usize; 3] = [1_000, 10_000, 100_000];

/// Measures the cost of following tasks, and then snapshots of all numbers of tasks.
pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    for (name, told) in RUNTIMES {
        for work in &WORKS {
            followed(binaries, effort, (name, told), work, table)?;
        }
    }
    service(binaries, effort, table)?;
    for count in COUNTS {
        snapshots(binaries, effort, count, table)?;
    }
    Ok(())
}

fn followed(
    binaries: &Binaries,
    effort: &Effort,
    (runtime, on): (&str, &str),
    work: &Work,
    table: &mut Table,
) -> io::Result<()> {
    let ways: Vec<&Way> = WAYS.iter().filter(|way| effort.peers || way.binary == OWN).collect();
    let (mut values, mut of_all) = (vec![vec![]; ways.len()], vec![vec![]; ways.len()]);
    // Sums over all traces: events, their bytes in the buffers, and those in the file.
    let mut recorded = [0.0; 3];
    let mut pace = Pace::by(Yardstick::Pair);
    for _ in 0..effort.parts {
        let mut children = HashMap::new();
        for way in &ways {
            if let Entry::Vacant(place) = children.entry(way.binary) {
                place.insert(Child::start(&binaries.path(way.build, way.binary))?);
            }
        }
        let mut order = Order::of(ways.len());
        for _ in 0..effort.part_rounds {
            pace.measure(children.get_mut(OWN).expect("it takes part"))?;
            for at in order.next_round() {
                let Way { how, binary, count, .. } = *ways[at];
                let child = children.get_mut(binary).expect("all are started");
                let [took, by_all, sums @ ..] =
                    child.numbers::<5>(&format!("work {runtime} {} {how} {count}", work.name))?;
                values[at].push(took);
                of_all[at].push(by_all);
                recorded.iter_mut().zip(sums).for_each(|(all, one)| *all += one);
            }
        }
    }
    for (way, taken) in ways.iter().zip(&values) {
        let row = Row::of(format!("{}, {on}", work.what), way.who, taken, Unit::Nanos);
        let against = |row: Row, way: usize| row.against(ways[way].who, taken, &values[way], Unit::Nanos);
        let held = |row: Row, way: usize, limit: f64| {
            let limit = Limit::of_time(Scale::More(Unit::Nanos), limit, Yardstick::Pair);
            against(row, way).within(&limit, Measured::excess(taken, &values[way]).at(&pace))
        };
        table.add(match way.how {
            "plain" => row,
            "off" => held(row, 0, work.followed),
            TRACED => held(row, work.beside, work.traced).notes(weight(work, taken.len(), recorded)),
            _ => against(row, 0),
        });
    }
    // A trace is encoded by a thread of its own, as hotpath's figures are added up by one; dial9 encodes in the workers.
    for (way, taken) in ways.iter().zip(&of_all) {
        let row = Row::of(format!("{}, {on}, all threads", work.what), way.who, taken, Unit::Nanos);
        table.add(match way.how {
            "plain" => row,
            _ => row.against(ways[0].who, taken, &of_all[0], Unit::Nanos),
        });
    }
    Ok(())
}

/// Describes the contents of a trace of so many stretches.
fn weight(work: &Work, stretches: usize, [events, in_buffers, in_file]: [f64; 3]) -> String {
    format!(
        "{:.2} events: {}; {} an event in the buffers, {} in the file",
        events / (stretches * COUNT) as f64,
        work.events,
        Unit::Bytes.show(in_buffers / events),
        Unit::Bytes.show(in_file / events),
    )
}

/// Measures the latency of a service whose requests are tasks, with a trace and without.
fn service(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    const WAYS: [(&str, usize); 3] = [("no trace", 0), ("the same again (A/A)", 0), ("traced", 1)];
    let mut child = Child::start(&binaries.path(Build::Plain, "part-tasks"))?;
    let (mut medians, mut late) = ([const { vec![] }; WAYS.len()], [const { vec![] }; WAYS.len()]);
    let (mut requests, mut events) = (0.0, 0.0);
    let mut order = Order::of(WAYS.len());
    for _ in 0..effort.service_rounds {
        for at in order.next_round() {
            let (_, traced) = WAYS[at];
            let [median, p99, asked, recorded] =
                child.numbers(&format!("service {traced} {STRETCH_MILLIS}"))?;
            medians[at].push(median * 1e3);
            late[at].push(p99 * 1e3);
            if traced == 1 {
                requests += asked;
                events += recorded;
            }
        }
    }
    for (at, (who, traced)) in WAYS.iter().enumerate() {
        for (which, values) in [("p50", &medians), ("p99", &late)] {
            let row = Row::of(format!("latency of a tokio service, {which}"), *who, &values[at], Unit::Nanos);
            let against = |row: Row| row.against(WAYS[0].0, &values[at], &values[0], Unit::Nanos);
            table.add(match (at, which) {
                (0, _) => row,
                (_, "p99") if *traced == 1 => against(row)
                    .within(&Limit::times(1.05), Measured::ratio(&values[at], &values[0]))
                    .notes(format!("{:.1} events a request", events / requests)),
                _ => against(row),
            });
        }
    }
    Ok(())
}

fn snapshots(binaries: &Binaries, effort: &Effort, count: usize, table: &mut Table) -> io::Result<()> {
    let what = |which: &str| format!("{which}, {count} tasks that wait");
    let mut child = Child::start(&binaries.path(Build::Plain, "part-tasks"))?;
    let [_, cold, with_stacks] = child.numbers(&format!("start {count} {FRAMES}"))?;
    let row = Row::of(what("the first goroutine profile"), "CPU time", &[cold], Unit::Millis);
    table.add(row.notes(format!("{with_stacks} have a stack: tasks are polled for it")));
    let (mut used, mut millis) = (vec![], vec![]);
    let mut pace = Pace::by(Yardstick::Pair);
    for _ in 0..effort.snapshots {
        pace.measure(&mut child)?;
        let [took, of_all, _] = child.numbers("snapshot")?;
        millis.push(took);
        used.push(of_all);
    }
    let row = Row::of(what("goroutine profile"), "CPU time", &used, Unit::Millis).notes(format!(
        "{:.0} ns a task; it takes {}",
        median(&used) * 1e6 / count as f64,
        Unit::Millis.show(median(&millis))
    ));
    let measured = Measured::median(&used).at(&pace);
    table.add(match count {
        10_000 => row.keeps(&TASKS_10_000, measured).anchor("Go 7.2 ms"),
        100_000 => row.keeps(&TASKS_100_000, measured).anchor("Go 66 ms"),
        _ => row,
    });
    let pauses = child.ask(&format!("stall {}", effort.snapshots))?;
    let (with, without): (Vec<f64>, Vec<f64>) = pauses.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip();
    table.add(stall::row(what("longest pause of a task that runs"), &with, &without));
    Ok(())
}
