//! Measures hooks while nothing is recorded.

use std::io;

use rtprof_benches::yardstick::Yardstick;

use crate::binaries::{Binaries, Build};
use crate::budgets::TRACE_OFF;
use crate::child::Child;
use crate::effort::Effort;
use crate::limit::Measured;
use crate::order::Order;
use crate::pace::Pace;
use crate::table::{Row, Table, Unit};

/// Copies of each loop in memory, and calls in a measurement.
const COPIES: usize = 8;
const COUNT: usize = 200_000;

/// Requests and names. The first is the loop itself, the second the same loop in another copy.
const HOOKS: [(&str, &str); 7] = [
    ("nothing", "an empty loop"),
    ("nothing", super::AGAIN),
    ("is-enabled", "trace::is_enabled"),
    ("with-region", "trace::with_region"),
    ("log", "trace::log"),
    ("syscall", "trace::syscall"),
    ("wait", "trace::wait"),
];

/// Measures all hooks and adds their rows.
pub(super) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let mut nanos: [Vec<f64>; HOOKS.len()] = Default::default();
    let mut pace = Pace::by(Yardstick::Walk);
    let mut order = Order::of(HOOKS.len());
    for _ in 0..effort.lock_processes {
        let mut child = Child::start(&binaries.path(Build::Plain, "part-trace"))?;
        for round in 0..effort.lock_rounds * COPIES {
            pace.measure(&mut child)?;
            for place in order.next_round() {
                let copy = if place == 1 { round + COPIES / 2 } else { round } % COPIES;
                let [value] = child.numbers(&format!("off {} {copy} {COUNT}", HOOKS[place].0))?;
                nanos[place].push(value);
            }
        }
    }
    for (place, (_, who)) in HOOKS.iter().enumerate() {
        let row = Row::of("tracing off: a hook", *who, &nanos[place], Unit::Nanos);
        let row = match place {
            0 => row.notes(format!("{} pairs, {COPIES} copies of the code", nanos[0].len())),
            _ => row.against(HOOKS[0].1, &nanos[place], &nanos[0], Unit::Nanos),
        };
        let more = Measured::excess(&nanos[place], &nanos[0]).at(&pace);
        table.add(if place > 1 { row.keeps(&TRACE_OFF, more) } else { row });
    }
    Ok(())
}
