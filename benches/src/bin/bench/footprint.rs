//! Measures the memory of the profiler beside a large heap.

use std::io;

use rtprof_benches::statistics::excess;

use crate::binaries::{Binaries, Build};
use crate::budgets::MEMORY;
use crate::child::Child;
use crate::effort::Effort;
use crate::table::{Row, Table, Unit};

/// The heap: one GiB.
const HEAP: usize = 1 << 30;

/// A name, a binary, and its setup.
struct Process(&'static str, &'static str, Option<&'static str>);

/// The first is the baseline.
const PROCESSES: [Process; 4] = [
    Process("System (std's default)", "subject-none", None),
    Process("the same again (A/A)", "subject-none", None),
    Process("rtprof over System, rate 0", "subject-rtprof", Some("rate 0")),
    Process(RTPROF, "subject-rtprof", None),
];

const RTPROF: &str = "rtprof over System";

/// Grows the heap in every process and compares the resident bytes.
pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let mut resident = vec![vec![]; PROCESSES.len()];
    let mut samples = [[0.0; 2]; PROCESSES.len()];
    let mut heap = HEAP as f64;
    for _ in 0..effort.heaps {
        for (place, Process(_, binary, set_up)) in PROCESSES.iter().enumerate() {
            // One at a time, so that a small machine has to hold one heap only.
            let mut child = Child::start(&binaries.path(Build::Plain, binary))?;
            if let Some(request) = set_up {
                child.ask(request)?;
            }
            [heap] = child.numbers(&format!("live {HEAP}"))?;
            let [bytes] = child.numbers("resident")?;
            resident[place].push(bytes);
            samples[place] = child.numbers("samples")?;
        }
    }
    for (place, Process(name, binary, _)) in PROCESSES.iter().enumerate() {
        let mut row =
            Row::of("resident with 1 GiB alive, 64..512 B", *name, &resident[place], Unit::MebiBytes);
        if place > 0 {
            row = row.against(PROCESSES[0].0, &resident[place], &resident[0], Unit::MebiBytes);
        }
        if binary.contains("rtprof") {
            row = row.samples(samples[place]);
        }
        if *name == RTPROF {
            let percent = excess(&resident[place], &resident[0]) / heap * 100.0;
            row = row.keeps(&MEMORY, percent).notes(format!("{percent:.2} % of the heap"));
        }
        table.add(row);
    }
    Ok(())
}
