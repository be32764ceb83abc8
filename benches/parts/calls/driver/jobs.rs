//! Measures programs that make many calls.

use std::io;

use super::{ALL, BASELINE, CONTENDERS, Children, OFF, TRACE, USUAL, Values};
use crate::binaries::{Binaries, workspace};
use crate::effort::Effort;
use crate::limit::{Limit, Measured};
use crate::order::Order;
use crate::table::{Row, Table, Unit};

/// A request to a part, and the meaning of its numbers.
struct Job {
    part: &'static str,
    request: [String; 1],
    figures: &'static [Figure],
    /// Whether the job can be traced.
    is_traced: bool,
}

struct Figure {
    what: &'static str,
    /// The index of the number in the answer, and the value of one in nanoseconds.
    at: usize,
    scale: f64,
    unit: Unit,
    /// How many times the baseline the named contenders may take.
    budget: Option<(f64, &'static [usize])>,
}

const MICROS: f64 = 1e3;

fn jobs() -> [Job; 5] {
    [
        Job {
            part: "part-calls",
            request: [format!("walk {} 10", workspace().display())],
            figures: &[
                Figure {
                    what: "walk over this repository's files, CPU time",
                    at: 1,
                    scale: 1.0,
                    unit: Unit::Millis,
                    budget: Some((1.02, &[OFF, USUAL, ALL])),
                },
                Figure { what: "the same, time", at: 0, scale: 1.0, unit: Unit::Millis, budget: None },
            ],
            is_traced: true,
        },
        Job {
            part: "part-calls",
            request: ["service 300".into()],
            figures: &[
                Figure {
                    what: "request to a server of tokio, 8 clients, CPU time of both",
                    at: 0,
                    scale: MICROS,
                    unit: Unit::Nanos,
                    budget: Some((1.02, &[OFF, USUAL, ALL])),
                },
                Figure {
                    what: "the same, median latency",
                    at: 1,
                    scale: MICROS,
                    unit: Unit::Nanos,
                    budget: None,
                },
                Figure { what: "the same, p99 of it", at: 2, scale: MICROS, unit: Unit::Nanos, budget: None },
            ],
            is_traced: true,
        },
        Job {
            part: "part-wait",
            request: ["ping-pong std one-core 1 400".into()],
            figures: &[Figure { what: "ping-pong through std's channel, one core", ..NANOS }],
            is_traced: true,
        },
        Job {
            part: "part-wait",
            request: ["ping-pong std apart 1 400".into()],
            figures: &[Figure { what: "ping-pong through std's channel, two cores", ..NANOS }],
            is_traced: true,
        },
        Job {
            part: "part-lock",
            request: ["turn mutex std 0 200000".into()],
            figures: &[Figure { what: "lock+unlock, uncontended: std's Mutex", ..NANOS }],
            is_traced: false,
        },
    ]
}

const NANOS: Figure = Figure { what: "", at: 0, scale: 1.0, unit: Unit::Nanos, budget: None };

pub(super) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    for job in jobs() {
        let mut values: Vec<Values> = job.figures.iter().map(|_| Values::default()).collect();
        let mut order = Order::of(CONTENDERS.len());
        for _ in 0..effort.interpose_processes {
            let mut children = Children::start(binaries, job.part)?;
            for _ in 0..effort.interpose_rounds {
                for place in order.next_round().filter(|&place| job.is_traced || place != TRACE) {
                    let numbers = children.ask(place, &job.request)?;
                    for (figure, values) in job.figures.iter().zip(&mut values) {
                        values[place].push(numbers[0][figure.at] * figure.scale);
                    }
                }
            }
        }
        for (figure, values) in job.figures.iter().zip(&values) {
            for place in (0..CONTENDERS.len()).filter(|&place| !values[place].is_empty()) {
                table.add(figure.row(place, values));
            }
        }
    }
    Ok(())
}

impl Figure {
    fn row(&self, place: usize, values: &Values) -> Row {
        let row = Row::of(self.what, CONTENDERS[place].who, &values[place], self.unit);
        if place == BASELINE {
            return row.notes(format!("{} rounds", values[place].len()));
        }
        let row = row.against(CONTENDERS[BASELINE].who, &values[place], &values[BASELINE], self.unit);
        match self.budget {
            Some((most, whose)) if whose.contains(&place) => {
                row.within(&Limit::times(most), Measured::ratio(&values[place], &values[BASELINE]))
            }
            _ => row,
        }
    }
}
