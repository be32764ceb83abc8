//! Measures a pool of workers, by the length of its jobs. The trace is read and encoded at the same time.

use std::io;

use crate::binaries::{Binaries, Build};
use crate::child::Child;
use crate::effort::Effort;
use crate::order::Order;
use crate::table::{Row, Table, Unit};

/// Nanoseconds of a job, and the costs of a trace and of a flight recorder in Go.
const JOBS: [(usize, &str, &str, &str); 3] = [
    (1_000, "pool of 4 workers, jobs of 1 µs", "Go 1.20×", "Go 1.27 1.06×"),
    (10_000, "pool of 4 workers, jobs of 10 µs", "Go 1.04×", "Go 1.27 1.00×"),
    (100_000, "pool of 4 workers, jobs of 100 µs", "Go 1.00×", "Go 1.27 1.00×"),
];

/// Names, and the requests that begin and end recording.
const CONTENDERS: [(&str, Option<[&str; 2]>); 5] = [
    ("trace off", None),
    (super::AGAIN, None),
    ("trace on", Some(["begin", "end"])),
    ("trace on, first format", Some(["begin-v1", "end"])),
    ("flight recorder on", Some(["fly", "land"])),
];

/// Measures pools with jobs of all lengths and adds their rows.
pub(super) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let mut results: [[Vec<f64>; CONTENDERS.len()]; JOBS.len()] = Default::default();
    // The number of events, and of the jobs that recorded them.
    let mut events = [[[0.0; 2]; CONTENDERS.len()]; JOBS.len()];
    let mut order = Order::of(CONTENDERS.len());
    for _ in 0..effort.pool_processes {
        let mut child = Child::start(&binaries.path(Build::Plain, "part-trace"))?;
        for (job, (nanos, ..)) in JOBS.iter().enumerate() {
            for _ in 0..effort.pool_rounds {
                for place in order.next_round() {
                    let recording = CONTENDERS[place].1;
                    if let Some([begin, _]) = recording {
                        child.ask(begin)?;
                    }
                    let [each, jobs] = child.numbers(&format!("pool {nanos} {}", effort.pool_millis))?;
                    if let Some([_, end]) = recording {
                        let [recorded, _, _, dropped] = child.numbers(end)?;
                        if dropped > 0.0 {
                            return Err(io::Error::other(format!("{dropped} events were dropped")));
                        }
                        events[job][place][0] += recorded;
                        events[job][place][1] += jobs;
                    }
                    results[job][place].push(each);
                }
            }
        }
    }
    for ((nanos, events), (_, what, of_trace, of_flight)) in results.iter().zip(&events).zip(JOBS) {
        for (place, (who, recording)) in CONTENDERS.iter().enumerate() {
            let row = Row::of(what, *who, &nanos[place], Unit::Nanos);
            let row = match place {
                0 => row.notes(format!("{} pairs of {} ms", nanos[0].len(), effort.pool_millis)),
                _ => row.against(CONTENDERS[0].0, &nanos[place], &nanos[0], Unit::Nanos),
            };
            let [recorded, jobs] = events[place];
            table.add(match recording {
                None => row,
                Some([begin, _]) => row
                    .anchor(if *begin == "fly" { of_flight } else { of_trace })
                    .notes(format!("{:.2} events a job", recorded / jobs)),
            });
        }
    }
    Ok(())
}
