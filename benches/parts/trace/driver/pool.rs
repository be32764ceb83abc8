//! Measures a pool of workers, by the length of its jobs. The trace is read and encoded meanwhile.

use std::io;

use crate::binaries::{Binaries, Build};
use crate::child::Child;
use crate::effort::Effort;
use crate::order::Order;
use crate::table::{Row, Table, Unit};

/// Nanoseconds of a job, and the cost in Go.
const JOBS: [(usize, &str, &str); 3] = [
    (1_000, "pool of 4 workers, jobs of 1 µs", "Go 1.20×"),
    (10_000, "pool of 4 workers, jobs of 10 µs", "Go 1.04×"),
    (100_000, "pool of 4 workers, jobs of 100 µs", "Go 1.00×"),
];

const CONTENDERS: [(&str, bool); 3] = [("trace off", false), (super::AGAIN, false), ("trace on", true)];

/// Measures pools with jobs of all lengths and adds their rows.
pub(super) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let mut results: [[Vec<f64>; CONTENDERS.len()]; JOBS.len()] = Default::default();
    // The number of events, and of the jobs that recorded them.
    let mut events = [[0.0; 2]; JOBS.len()];
    let mut order = Order::of(CONTENDERS.len());
    for _ in 0..effort.pool_processes {
        let mut child = Child::start(&binaries.path(Build::Plain, "part-trace"))?;
        for (job, (nanos, _, _)) in JOBS.iter().enumerate() {
            for _ in 0..effort.pool_rounds {
                for place in order.next_round() {
                    let is_on = CONTENDERS[place].1;
                    if is_on {
                        child.ask("begin")?;
                    }
                    let [each, jobs] = child.numbers(&format!("pool {nanos} {}", effort.pool_millis))?;
                    if is_on {
                        let [recorded, _, _, dropped] = child.numbers("end")?;
                        if dropped > 0.0 {
                            return Err(io::Error::other(format!("{dropped} events were dropped")));
                        }
                        events[job][0] += recorded;
                        events[job][1] += jobs;
                    }
                    results[job][place].push(each);
                }
            }
        }
    }
    for ((nanos, events), (_, what, anchor)) in results.iter().zip(&events).zip(JOBS) {
        for (place, (who, is_on)) in CONTENDERS.iter().enumerate() {
            let row = Row::of(what, *who, &nanos[place], Unit::Nanos);
            let row = match place {
                0 => row.notes(format!("{} pairs of {} ms", nanos[0].len(), effort.pool_millis)),
                _ => row.against(CONTENDERS[0].0, &nanos[place], &nanos[0], Unit::Nanos),
            };
            let each = events[0] / events[1];
            let of_trace = |row: Row| row.anchor(anchor).notes(format!("{each:.2} events a job"));
            table.add(if *is_on { of_trace(row) } else { row });
        }
    }
    Ok(())
}
