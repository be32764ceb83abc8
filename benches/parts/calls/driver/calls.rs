//! Measures single calls: the C library's own function, and the one in front of it that records its waits, in turns in
//! one process. Two processes differ by more than the few nanoseconds in question.

use std::io;

use rtprof_benches::calls::names;
use rtprof_benches::statistics::{excess, median};
use rtprof_benches::yardstick::Yardstick;

use crate::binaries::{Binaries, Build};
use crate::child::Child;
use crate::effort::Effort;
use crate::limit::{Limit, Measured, Scale};
use crate::pace::Pace;
use crate::table::{Row, Table, Unit};

/// Calls of one kind in one measurement, which take about a millisecond.
const COUNT: usize = 4_500;
/// The nanoseconds that a call may cost more while nothing is recorded.
const MORE: f64 = 2.0;
/// The time in nanoseconds from which a call varies by more than that, on the machine on which the limit was set.
const LONG: f64 = 500.0;

/// What is recorded while the calls are measured: the text of the row, the rate of the block profile in nanoseconds
/// with the fraction of the mutex profile, and whether there is a trace. The first has the limit.
const RECORDED: [(&str, (u64, u64), bool); 3] =
    [("profiles off", (0, 0), false), ("block 1, mutex 1", (1, 1), false), ("a trace", (0, 0), true)];

/// Nanoseconds for a call, by what is recorded: one value per round.
#[derive(Default)]
struct Calls([Turns; RECORDED.len()]);

/// Values at the same index are from the same round.
#[derive(Default)]
struct Turns {
    own: Vec<f64>,
    own_again: Vec<f64>,
    recorded: Vec<f64>,
}

pub(super) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let names: Vec<_> = names().collect();
    let mut results: Vec<Calls> = names.iter().map(|_| Calls::default()).collect();
    let mut pace = Pace::by(Yardstick::Walk);
    for _ in 0..effort.interpose_processes {
        let mut child = Child::start(&binaries.path(Build::Interposed, "part-calls"))?;
        for _ in 0..effort.interpose_rounds {
            pace.measure(&mut child)?;
            for (place, (_, (block, mutex), trace)) in RECORDED.iter().enumerate() {
                child.ask(&format!("rates {block} {mutex}"))?;
                if *trace {
                    child.ask("trace on")?;
                }
                for (name, calls) in names.iter().zip(&mut results) {
                    calls.0[place].add(child.numbers(&format!("call {name} {COUNT}"))?);
                }
                if *trace {
                    child.ask("trace off")?;
                }
            }
        }
    }
    for (name, calls) in names.iter().zip(&results) {
        table.add(calls.row(name, &pace));
    }
    Ok(())
}

impl Turns {
    fn add(&mut self, [own, again, recorded]: [f64; 3]) {
        self.own.push(own);
        self.own_again.push(again);
        self.recorded.push(recorded);
    }
}

impl Calls {
    fn row(&self, name: &str, pace: &Pace) -> Row {
        let calls = 1.0 + name.matches('+').count() as f64;
        let off = &self.0[0];
        let more = |turns: &Turns| Unit::Nanos.show_excess(excess(&turns.recorded, &turns.own));
        let others = RECORDED
            .iter()
            .zip(&self.0)
            .skip(1)
            .map(|((what, ..), turns)| format!("; {what}: {}", more(turns)));
        let again = Unit::Nanos.show_excess(excess(&off.own_again, &off.own));
        let row =
            Row::of(format!("call: {name}"), "with `interpose`, profiles off", &off.recorded, Unit::Nanos)
                .against("the C library's function", &off.recorded, &off.own, Unit::Nanos)
                .notes(format!("the same again (A/A): {again}{}", others.collect::<String>()));
        if median(&off.own) / calls > LONG * pace.slowdown() {
            return row;
        }
        let limit = Limit::of_time(Scale::More(Unit::Nanos), MORE * calls, Yardstick::Walk);
        row.within(&limit, Measured::excess(&off.recorded, &off.own).at(pace))
    }
}
