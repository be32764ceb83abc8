//! Measures the cost of recording one event of the block or mutex profile, beyond the wait.

use std::io;

use rtprof_benches::statistics::{max, median, min, ratio};

use crate::binaries::{Binaries, Build};
use crate::budgets::{BLOCK_EVENT, Budget, MUTEX_EVENT};
use crate::child::Child;
use crate::effort::Effort;
use crate::flips::Flips;
use crate::limit::{Limit, Measured};
use crate::table::{Row, Table, Unit};

const BUILDS: [(Build, &str); 2] =
    [(Build::Plain, "rtprof, frame pointers"), (Build::NoFramePointers, "rtprof, no frame pointers")];

struct Case {
    /// The beginning of the row's name, before the frames.
    name: &'static str,
    profile: &'static str,
    /// The rate of the block profile in nanoseconds, or the fraction of the mutex profile.
    rate: usize,
    frames: usize,
    count: usize,
    /// The budget of a recorded event.
    budget: Option<&'static Budget>,
    anchor: &'static str,
}

const fn recorded(
    name: &'static str,
    profile: &'static str,
    frames: usize,
    budget: &'static Budget,
    anchor: &'static str,
) -> Case {
    Case { name, profile, rate: 1, frames, count: 10_000, budget: Some(budget), anchor }
}

const fn passed_over(name: &'static str, profile: &'static str, rate: usize, anchor: &'static str) -> Case {
    Case { name, profile, rate, frames: 10, count: 50_000, budget: None, anchor }
}

const CASES: [Case; 6] = [
    recorded("one block event, hot", "block", 10, &BLOCK_EVENT, "Go 167 ns"),
    recorded("one block event, hot", "block", 32, &BLOCK_EVENT, "Go 328 ns at ~30"),
    recorded("one mutex event, hot", "mutex", 10, &MUTEX_EVENT, "Go 251 ns"),
    recorded("one mutex event, hot", "mutex", 32, &MUTEX_EVENT, ""),
    passed_over("one block event that is not sampled (10000)", "block", 10_000, "Go 73 ns, with the clock"),
    passed_over("one mutex event, 1 in 100 sampled", "mutex", 100, ""),
];

/// Measures all cases of both builds and adds their rows.
pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    for (build, who) in BUILDS {
        let mut results: [Flips; CASES.len()] = std::array::from_fn(|_| Flips::new());
        for way in 0..effort.parts {
            let mut child = Child::start(&binaries.path(build, "part-event"))?;
            child.ask(&format!("way {way}"))?;
            for (case, result) in CASES.iter().zip(&mut results) {
                case.measure(result, &mut child, effort.part_rounds)?;
            }
        }
        for (case, result) in CASES.iter().zip(&results) {
            table.add(case.row(result, who));
        }
    }
    for (build, who) in BUILDS {
        for per_second in LOADS {
            load(binaries, effort, (build, who), per_second, table)?;
        }
    }
    Ok(())
}

/// Events in a second of processor time.
const LOADS: [usize; 3] = [10_000, 100_000, 1_000_000];
const LOAD_FRAMES: usize = 30;
/// How they are sampled: the word of the request, the text of the row, and the most that they may cost in percent.
const WAYS: [(&str, &str, Option<f64>); 2] =
    [("rates", "no budget", None), ("budget", "a budget of 1 %", Some(1.2))];

/// Measures what both profiles cost a thread whose waits and contended unlocks come at a steady pace.
fn load(
    binaries: &Binaries,
    effort: &Effort,
    (build, who): (Build, &str),
    per_second: usize,
    table: &mut Table,
) -> io::Result<()> {
    let mut nanos: [[Vec<f64>; 3]; WAYS.len()] = Default::default();
    let mut frames = 0.0;
    for way in 0..effort.load_processes {
        let mut child = Child::start(&binaries.path(build, "part-event"))?;
        child.ask(&format!("way {way}"))?;
        let [depth, real] = child.numbers(&format!("load-depth {LOAD_FRAMES}"))?;
        frames = real;
        for _ in 0..effort.load_rounds {
            for ((how, ..), nanos) in WAYS.iter().zip(&mut nanos) {
                for turn in child.ask(&format!("load {how} {per_second} {depth}"))?.chunks_exact(3) {
                    nanos.iter_mut().zip(turn).for_each(|(values, value)| values.push(*value));
                }
            }
        }
    }
    for ((_, how, most), [without, again, with]) in WAYS.iter().zip(&nanos) {
        let percent = |values: &[f64]| (ratio(values, without) - 1.0) * 100.0;
        let what = format!("{per_second} events a second of both profiles, {frames} frames, {how}");
        let row = Row::of(what, who, with, Unit::Nanos)
            .against("the work alone", with, without, Unit::Nanos)
            .notes(format!(
                "{:+.2} % of the processor time; the work alone again (A/A) {:+.2} %; {} pairs",
                percent(with),
                percent(again),
                with.len()
            ));
        table.add(match most {
            Some(most) => row.within(&Limit::times(1.0 + most / 100.0), Measured::ratio(with, without)),
            None => row,
        });
    }
    Ok(())
}

impl Case {
    /// Measures this case in one process.
    fn measure(&self, flips: &mut Flips, child: &mut Child, rounds: usize) -> io::Result<()> {
        let Self { profile, rate, frames, count, .. } = self;
        let [depth, real] = child.numbers(&format!("depth {profile} {frames}"))?;
        flips.frames = real;
        flips.measure(child, rounds, 1.0, &format!("events {profile}"), |is_on| {
            format!("at {profile} {} {depth} {count}", if is_on { *rate } else { 0 })
        })
    }

    fn row(&self, flips: &Flips, who: &str) -> Row {
        let row = Row {
            what: format!("{}, {} frames", self.name, flips.frames),
            who: who.to_owned(),
            median: Unit::Nanos.show(median(&flips.by_process)),
            min: Unit::Nanos.show(min(&flips.by_process)),
            ..Row::default()
        }
        .against("profile off", &flips.on, &flips.off, Unit::Nanos)
        .notes(format!("slowest way {}", Unit::Nanos.show(max(&flips.by_process))));
        match self.budget {
            Some(budget) => row
                .samples(flips.recorded)
                .keeps(budget, Measured::median(&flips.by_process).at(&flips.pace))
                .anchor(self.anchor),
            None => row.anchor(self.anchor),
        }
    }
}
