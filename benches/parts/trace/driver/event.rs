//! Measures what an event costs the thread that records it, and what other tracers take for a span.

use std::io;

use rtprof_benches::statistics::{excess, max, median, min, ratio};
use rtprof_benches::yardstick::Yardstick;

use crate::binaries::{Binaries, Build};
use crate::budgets::{Budget, TRACE_PLAIN, TRACE_STACK};
use crate::child::Child;
use crate::effort::Effort;
use crate::limit::Measured;
use crate::order::Order;
use crate::pace::Pace;
use crate::table::{Row, Table, Unit};

/// Events, or spans, in a measurement: about a millisecond.
const COUNT: usize = 30_000;

struct Case {
    name: &'static str,
    kind: &'static str,
    /// Frames of the recorded stack, including the tracer's own frame; 0 if no stack is recorded.
    frames: usize,
    threads: usize,
    budget: Option<&'static Budget>,
    anchor: &'static str,
}

const fn case(
    name: &'static str,
    kind: &'static str,
    frames: usize,
    budget: Option<&'static Budget>,
) -> Case {
    Case { name, kind, frames, threads: 1, budget, anchor: "" }
}

/// Makes a case in which another thread does the same at the same time, on another core. It follows the case that it is
/// compared with.
const fn by_two(name: &'static str, kind: &'static str, frames: usize) -> Case {
    Case { threads: 2, ..case(name, kind, frames, None) }
}

const WITHOUT: Option<&Budget> = Some(&TRACE_PLAIN);
const WITH_TEN: Option<&Budget> = Some(&TRACE_STACK);
const GO: &str = "Go 1.21 50 ns, 1.27 87 ns";

const CASES: [Case; 8] = [
    Case { anchor: GO, ..case("trace event: heap goal", "goal", 0, WITHOUT) },
    by_two("trace event: heap goal", "goal", 0),
    case("trace event: region end", "end", 0, WITHOUT),
    Case { anchor: GO, ..case("trace event: region begin", "begin", 10, WITH_TEN) },
    by_two("trace event: region begin", "begin", 10),
    case("trace event: region begin", "begin", 32, None),
    Case { anchor: "Go 141 to 190 ns", ..case("trace event: log of 24 bytes", "log", 10, WITH_TEN) },
    case("trace event: log of 24 bytes", "log", 32, None),
];

const BUILDS: [(Build, &str); 2] =
    [(Build::Plain, "rtprof, frame pointers"), (Build::NoFramePointers, "rtprof, no frame pointers")];

/// A span: two events of ours, the first with a stack; the peers record their own spans.
const SPAN: Case = case("a span, 10 frames", "pair", 10, None);

/// Requests and names of the peers, which capture no stack, and their costs as published elsewhere.
const PEERS: [(&str, &str, &str); 4] = [
    ("fastrace", "fastrace, 1000 spans under a root", "126 ns"),
    ("fastrace-short", "fastrace, 10 spans under a root", "223 ns"),
    ("puffin", "puffin", "75 ns"),
    ("tracing-chrome", "tracing-chrome", "723 to 1270 ns, and as much again in its writer"),
];

/// Measures all cases of both builds, then spans, and adds their rows.
pub(super) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    for (build, who) in BUILDS {
        let mut results: [Costs; CASES.len()] = Default::default();
        let mut pace = Pace::by(Yardstick::Walk);
        for way in 0..effort.trace_processes {
            let mut child = Child::start(&binaries.path(build, "part-trace"))?;
            process(&mut child, way, effort.trace_rounds, &CASES, &mut results, &mut pace)?;
        }
        for (place, case) in CASES.iter().enumerate() {
            // Without frame pointers only the stacks differ.
            if build == Build::Plain || case.frames > 0 {
                let alone = (case.threads > 1).then(|| &results[place - 1]);
                table.add(results[place].row(case, who, alone, &pace));
            }
        }
    }
    spans(binaries, effort, table)
}

/// The costs of a case in nanoseconds, with nothing recorded, and in a trace.
#[derive(Default)]
struct Costs {
    off: Vec<f64>,
    on: Vec<f64>,
    by_process: Vec<f64>,
    frames: f64,
}

/// Measures all cases in turns in one process, whose stacks go their own way. One trace serves all cases: the time
/// after its start is measured in another row.
fn process(
    child: &mut Child,
    way: usize,
    rounds: usize,
    cases: &[Case],
    results: &mut [Costs],
    pace: &mut Pace,
) -> io::Result<()> {
    let mut requests = vec![];
    for (case, costs) in cases.iter().zip(&mut *results) {
        let Case { kind, frames, threads, .. } = case;
        // If no stack is captured, its depth makes no difference.
        let probed = if *frames == 0 { ("begin", 10) } else { (*kind, *frames) };
        let [depth, real] = child.numbers(&format!("depth {} {way} {}", probed.0, probed.1))?;
        costs.frames = if *frames == 0 { 0.0 } else { real };
        requests.push(format!("event {kind} {way} {depth} {threads} {COUNT}"));
    }
    let mut order = Order::of(cases.len());
    let mut all = |child: &mut Child, of: fn(&mut Costs) -> &mut Vec<f64>| -> io::Result<()> {
        for _ in 0..rounds {
            pace.measure(child)?;
            for place in order.next_round() {
                let [nanos] = child.numbers(&requests[place])?;
                of(&mut results[place]).push(nanos);
            }
        }
        Ok(())
    };
    all(child, |costs| &mut costs.off)?;
    begin(child)?;
    all(child, |costs| &mut costs.on)?;
    end(child)?;
    for costs in results {
        let of_this = |values: &[f64]| values[values.len() - rounds..].to_vec();
        costs.by_process.push(excess(&of_this(&costs.on), &of_this(&costs.off)));
    }
    Ok(())
}

fn begin(child: &mut Child) -> io::Result<()> {
    child.ask("begin")?;
    child.ask("warm")?;
    Ok(())
}

/// # Errors
/// When events were dropped: a dropped event has another cost.
fn end(child: &mut Child) -> io::Result<()> {
    let [_, _, _, dropped] = child.numbers("end")?;
    if dropped > 0.0 {
        return Err(io::Error::other(format!("{dropped} events were dropped")));
    }
    Ok(())
}

impl Costs {
    fn row(&self, case: &Case, who: &str, alone: Option<&Self>, pace: &Pace) -> Row {
        let cost = median(&self.by_process);
        let what = match (self.frames, case.threads) {
            (0.0, 1) => format!("{}, no stack", case.name),
            (0.0, _) => format!("{}, no stack, two threads at once", case.name),
            (frames, 1) => format!("{}, {frames} frames", case.name),
            (frames, _) => format!("{}, {frames} frames, two threads at once", case.name),
        };
        let row = Row {
            what,
            who: who.to_owned(),
            median: Unit::Nanos.show(cost),
            min: Unit::Nanos.show(min(&self.by_process)),
            ..Row::default()
        };
        let row = match alone {
            None => row.against("trace off", &self.on, &self.off, Unit::Nanos),
            Some(alone) => row.against("one thread", &self.on, &alone.on, Unit::Nanos),
        };
        let row = row.notes(format!("slowest way {}", Unit::Nanos.show(max(&self.by_process))));
        match case.budget {
            Some(budget) => {
                row.keeps(budget, Measured::median(&self.by_process).at(pace)).anchor(case.anchor)
            }
            None => row.anchor(case.anchor),
        }
    }
}

/// Measures our own spans and those of the peers, in turns.
fn spans(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let peers: &[_] = if effort.peers { &PEERS } else { &[] };
    // Our own spans are measured twice: the second is the control.
    let mut nanos: Vec<Vec<f64>> = vec![vec![]; 2 + peers.len()];
    let mut frames = 0.0;
    let mut pace = Pace::by(Yardstick::Walk);
    let mut order = Order::of(nanos.len());
    for way in 0..effort.trace_processes {
        let mut ours = Child::start(&binaries.path(Build::Plain, "part-trace"))?;
        let [depth, real] = ours.numbers(&format!("depth {} {way} {}", SPAN.kind, SPAN.frames))?;
        frames = real;
        begin(&mut ours)?;
        let mut theirs = match peers {
            [] => None,
            _ => Some(Child::start(&binaries.path(Build::Plain, "part-trace-peers"))?),
        };
        for _ in 0..effort.trace_rounds {
            pace.measure(&mut ours)?;
            for place in order.next_round() {
                let [value] = match (place, &mut theirs) {
                    (2.., Some(theirs)) => theirs.numbers(&format!("span {} {COUNT}", peers[place - 2].0))?,
                    _ => ours.numbers(&format!("event {} {way} {depth} 1 {COUNT}", SPAN.kind))?,
                };
                nanos[place].push(value);
            }
        }
        end(&mut ours)?;
    }
    let what = format!("a span: begun and ended, {frames} frames of ours");
    let name = "rtprof, with_region";
    table.add(Row::of(&what, name, &nanos[0], Unit::Nanos).anchor("Go 190 to 198 ns").notes(format!(
        "{} an event, {} pairs",
        Unit::Nanos.show(median(&nanos[0]) / 2.0),
        nanos[0].len()
    )));
    let others = [(super::AGAIN, "")].into_iter().chain(peers.iter().map(|&(_, who, anchor)| (who, anchor)));
    for ((who, anchor), values) in others.zip(&nanos[1..]) {
        let row = Row::of("a span: begun and ended", who, values, Unit::Nanos).anchor(anchor);
        let row = row.against(name, values, &nanos[0], Unit::Nanos);
        table.add(match who {
            super::AGAIN => row,
            // An event is one end of a span.
            _ => row.notes(slower(ratio(values, &nanos[0]))).beside(
                &TRACE_PLAIN,
                who.split(',').next().unwrap_or(who),
                Measured::median(values).times(0.5).at(&pace),
            ),
        });
    }
    Ok(())
}

fn slower(ratio: f64) -> String {
    if ratio > 1.0 { String::from("no stack") } else { String::from("no stack; faster than ours") }
}
