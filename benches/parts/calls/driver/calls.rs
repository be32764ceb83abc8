//! Measures single calls.

use std::io;

use rtprof_benches::calls::names;
use rtprof_benches::statistics::min;

use super::{AGAIN, ALL, BASELINE, CONTENDERS, Children, OFF, TRACE, Values};
use crate::binaries::Binaries;
use crate::effort::Effort;
use crate::order::Order;
use crate::table::{Row, Table, Unit};

/// Calls of one kind in one turn, which take about a millisecond.
const COUNT: usize = 4_000;
/// The budget in nanoseconds that a call may cost more while nothing is recorded.
const BUDGET: f64 = 2.0;
/// The time in nanoseconds from which a call varies by more than the budget.
const LONG: f64 = 700.0;

pub(super) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let names: Vec<_> = names().collect();
    let requests: Vec<_> = names.iter().map(|name| format!("call {name} {COUNT}")).collect();
    let mut values: Vec<Values> = names.iter().map(|_| Values::default()).collect();
    let mut order = Order::of(CONTENDERS.len());
    for _ in 0..effort.interpose_processes {
        let mut children = Children::start(binaries, "part-calls")?;
        for _ in 0..effort.interpose_rounds {
            for place in order.next_round() {
                let answers = children.ask(place, &requests)?;
                for (values, answer) in values.iter_mut().zip(answers) {
                    values[place].extend(answer);
                }
            }
        }
    }
    for (name, values) in names.iter().zip(&values) {
        table.add(row(name, values));
    }
    Ok(())
}

fn row(name: &str, values: &Values) -> Row {
    let calls = 1.0 + name.matches('+').count() as f64;
    // By the minima: the kernel's part of a call varies by more than the part before it takes.
    let more = |place: usize| min(&values[place]) - min(&values[BASELINE]);
    let others = [AGAIN, ALL, TRACE]
        .map(|place| format!("{}: {}", CONTENDERS[place].who, Unit::Nanos.show_excess(more(place))));
    let row = Row::of(format!("call: {name}"), CONTENDERS[OFF].who, &values[OFF], Unit::Nanos)
        .against(CONTENDERS[BASELINE].who, &values[OFF], &values[BASELINE], Unit::Nanos)
        .notes(format!("by the least {}; {}", Unit::Nanos.show_excess(more(OFF)), others.join("; ")));
    if min(&values[BASELINE]) / calls > LONG {
        return row;
    }
    row.budget(format!("≤ +{BUDGET} ns a call, by the least"), more(OFF) <= BUDGET * calls, "")
}
