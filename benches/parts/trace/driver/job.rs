//! Measures threads that do nothing but wait for each other.

use std::io;

use rtprof_benches::statistics::excess;
use rtprof_benches::team::Placement;

use crate::binaries::{Binaries, Build};
use crate::child::Child;
use crate::effort::Effort;
use crate::order::Order;
use crate::table::{Row, Table, Unit};

struct Job {
    what: &'static str,
    word: &'static str,
    place: Placement,
    /// Operations in a measurement, of a few milliseconds.
    count: usize,
    anchor: &'static str,
}

const JOBS: [Job; 4] = [
    Job {
        what: "channel ping-pong, one core",
        word: "channel",
        place: Placement::OneCore,
        count: 400,
        anchor: "Go 2.62×, 87 ns an event",
    },
    Job {
        what: "channel ping-pong, two cores",
        word: "channel",
        place: Placement::Apart,
        count: 100,
        anchor: "Go 2.79×",
    },
    Job {
        what: "condition ping-pong, one core",
        word: "condvar",
        place: Placement::OneCore,
        count: 400,
        anchor: "",
    },
    Job {
        what: "yield, alone on its core",
        word: "yield",
        place: Placement::OneCore,
        count: 10_000,
        anchor: "Go 2.70×, 70 ns an event",
    },
];

const CONTENDERS: [(&str, bool); 3] = [("trace off", false), (super::AGAIN, false), ("trace on", true)];

/// Measures all jobs and adds their rows.
pub(super) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let mut results: [[Vec<f64>; CONTENDERS.len()]; JOBS.len()] = Default::default();
    let mut order = Order::of(CONTENDERS.len());
    for _ in 0..effort.wait_processes {
        let mut child = Child::start(&binaries.path(Build::Plain, "part-trace"))?;
        for (job, nanos) in JOBS.iter().zip(&mut results) {
            let request = format!("job {} {} {}", job.word, job.place.word(), job.count);
            for _ in 0..effort.wait_rounds {
                for place in order.next_round() {
                    let is_on = CONTENDERS[place].1;
                    if is_on {
                        child.ask("unread")?;
                    }
                    let [value] = child.numbers(&request)?;
                    if is_on {
                        child.ask("drop")?;
                    }
                    nanos[place].push(value);
                }
            }
        }
    }
    for (job, nanos) in JOBS.iter().zip(&results) {
        let events = events_of(binaries, job)?;
        for (place, (who, is_on)) in CONTENDERS.iter().enumerate() {
            let row = Row::of(job.what, *who, &nanos[place], Unit::Nanos);
            table.add(match place {
                0 => row.notes(format!("{} pairs", nanos[0].len())),
                _ => row.against(CONTENDERS[0].0, &nanos[place], &nanos[0], Unit::Nanos),
            });
            if *is_on {
                let more = excess(&nanos[place], &nanos[0]);
                table.amend(|row| {
                    row.anchor = job.anchor;
                    let each = Unit::Nanos.show_excess(more / events);
                    row.notes = format!("{events:.2} events an operation; {each} an event");
                });
            }
        }
    }
    Ok(())
}

/// Returns the number of events of an operation, from a separate trace that is long enough for one-time events to
/// vanish.
fn events_of(binaries: &Binaries, job: &Job) -> io::Result<f64> {
    let mut child = Child::start(&binaries.path(Build::Plain, "part-trace"))?;
    let count = job.count * 10;
    child.ask("begin")?;
    child.ask(&format!("job {} {} {count}", job.word, job.place.word()))?;
    let [events, _, _, _] = child.numbers("end")?;
    // The warm-up is an eighth more.
    Ok(events / (count + count / 8) as f64)
}
