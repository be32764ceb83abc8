//! Async tasks: what they cost that are followed, and what snapshots of them cost.

use std::io;

use rtprof_benches::statistics::{excess, median};

use crate::binaries::{Binaries, Build};
use crate::child::Child;
use crate::effort::Effort;
use crate::order::Order;
use crate::table::{Row, Table, Unit};

/// Followed by console-subscriber, in a program of its own.
const CONSOLE: &str = "console";
/// It is given so much less to do: it takes longer, and memory for each task.
const CONSOLE_SHARE: usize = 10;

/// How tasks are followed, as it is asked for and as it is told; the first is the baseline, and the last the peer.
const WAYS: [(&str, &str); 5] = [
    ("plain", "tokio"),
    ("off", "rtprof, off"),
    ("on", "rtprof, stacks at each await"),
    ("block", "rtprof, block 10 µs"),
    (CONSOLE, "console-subscriber"),
];

const RUNTIMES: [(&str, &str); 2] = [("current", "current-thread"), ("multi", "two workers")];

/// Tasks or polls in a stretch: some milliseconds.
const COUNT: usize = 20_000;

/// Frames of tasks that wait, without those of the leaf.
const FRAMES: usize = 10;
const COUNTS: [usize; 3] = [1_000, 10_000, 100_000];

/// Measures what it costs to be followed, and then snapshots of all numbers of tasks.
pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    for (name, told) in RUNTIMES {
        followed(binaries, effort, (name, told), ("spawn", "spawn and join", "≤ 60 ns", 60.0), table)?;
        followed(
            binaries,
            effort,
            (name, told),
            ("ping", "channel ping-pong, a poll", "≤ 15 ns", 15.0),
            table,
        )?;
    }
    for count in COUNTS {
        snapshots(binaries, effort, count, table)?;
    }
    Ok(())
}

fn followed(
    binaries: &Binaries,
    effort: &Effort,
    (runtime, on): (&str, &str),
    (work, what, limit, nanos): (&str, &str, &str, f64),
    table: &mut Table,
) -> io::Result<()> {
    let ways = if effort.peers { &WAYS[..] } else { &WAYS[..WAYS.len() - 1] };
    let mut values = vec![vec![]; ways.len()];
    for _ in 0..effort.parts {
        let mut ours = Child::start(&binaries.path(Build::Plain, "part-tasks"))?;
        let mut peer = match effort.peers {
            true => Some(Child::start(&binaries.path(Build::TokioUnstable, "part-task-peer"))?),
            false => None,
        };
        let mut order = Order::of(ways.len());
        for _ in 0..effort.part_rounds {
            for at in order.next_round() {
                let (how, _) = ways[at];
                let (child, count) = match &mut peer {
                    Some(peer) if how == CONSOLE => (peer, COUNT / CONSOLE_SHARE),
                    _ => (&mut ours, COUNT),
                };
                let [took] = child.numbers(&format!("work {runtime} {work} {how} {count}"))?;
                values[at].push(took);
            }
        }
    }
    for ((how, who), taken) in ways.iter().zip(&values) {
        let row = Row::of(format!("{what}, {on}"), *who, taken, Unit::Nanos);
        table.add(match *how {
            "plain" => row,
            "off" => row.against("tokio", taken, &values[0], Unit::Nanos).budget(
                limit,
                excess(taken, &values[0]) <= nanos,
                "",
            ),
            _ => row.against("tokio", taken, &values[0], Unit::Nanos),
        });
    }
    Ok(())
}

fn snapshots(binaries: &Binaries, effort: &Effort, count: usize, table: &mut Table) -> io::Result<()> {
    let what = |which: &str| format!("{which}, {count} tasks that wait");
    let mut child = Child::start(&binaries.path(Build::Plain, "part-tasks"))?;
    let [cold, with_stacks] = child.numbers(&format!("start {count} {FRAMES}"))?;
    let row = Row::of(what("the first goroutine profile"), "goroutine_profile", &[cold], Unit::Millis);
    table.add(row.notes(format!("{with_stacks} have a stack: tasks are polled for it")));
    let mut millis = vec![];
    for _ in 0..effort.snapshots {
        let [took, _] = child.numbers("snapshot")?;
        millis.push(took);
    }
    let row = Row::of(what("goroutine profile"), "goroutine_profile", &millis, Unit::Millis)
        .notes(format!("{:.0} ns a task", median(&millis) * 1e6 / count as f64));
    table.add(match count {
        10_000 => row.budget("≤ 4 ms", median(&millis) <= 4.0, "Go 7.2 ms"),
        100_000 => row.budget("≤ 40 ms", median(&millis) <= 40.0, "Go 66 ms"),
        _ => row,
    });
    let pauses = child.ask(&format!("stall {}", effort.snapshots))?;
    let (with, without): (Vec<f64>, Vec<f64>) = pauses.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip();
    let over = excess(&with, &without);
    table.add(
        Row::of(what("longest pause of a task that runs"), "goroutine_profile", &with, Unit::Millis)
            .against("as long without", &with, &without, Unit::Millis)
            .budget("≤ 0.1 ms over idle", over <= 0.1, "Go 0.14 to 0.17 ms"),
    );
    Ok(())
}
