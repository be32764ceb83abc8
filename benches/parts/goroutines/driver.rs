//! Measures a snapshot of all threads, and how long it holds up a running thread.

use std::io;
use std::process::Command;
use std::time::Instant;

use rtprof_benches::statistics::median;
use rtprof_benches::yardstick::Yardstick;

use crate::binaries::{Binaries, Build};
use crate::child::Child;
use crate::effort::Effort;
use crate::limit::{Limit, Measured, Scale};
use crate::pace::Pace;
use crate::stall;
use crate::table::{Row, Table, Unit};

const FRAMES: usize = 10;
const COUNTS: [usize; 3] = [10, 100, 1_000];

/// The processor time of a snapshot of a thousand threads.
const IN_HOOKS: Limit = Limit::of_time(Scale::Amount(Unit::Millis), 1.0, Yardstick::Walk);
const ELSEWHERE: Limit = Limit::of_time(Scale::Amount(Unit::Millis), 60.0, Yardstick::SystemCall);

/// How threads wait: the word of the request, and the text of the row.
const KINDS: [(&str, &str); 2] = [("hooks", "in hooks"), ("kernel", "elsewhere, asked by signal")];

/// Measures all numbers of threads, for both kinds of waits.
pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    for (kind, told) in KINDS {
        for count in COUNTS {
            let what = |which: &str| format!("{which}, {count} threads that wait {told}");
            let mut child = Child::start(&binaries.path(Build::Plain, "part-goroutines"))?;
            let [waiting] = child.numbers(&format!("start {kind} {count} {FRAMES}"))?;
            if waiting < count as f64 {
                return Err(io::Error::other(format!("of {count} threads {waiting} have a whole stack")));
            }
            let (mut used, mut millis) = (vec![], vec![]);
            // A stack of a thread in a hook is copied, the others are asked by a signal each.
            let mut pace = Pace::by(if kind == "hooks" { Yardstick::Walk } else { Yardstick::SystemCall });
            for _ in 0..effort.snapshots {
                pace.measure(&mut child)?;
                let [took, of_all, _] = child.numbers("snapshot")?;
                millis.push(took);
                used.push(of_all);
            }
            let mut row = Row::of(what("goroutine profile"), "CPU time", &used, Unit::Millis).notes(format!(
                "{:.1} µs a thread; it takes {}",
                median(&used) * 1e3 / count as f64,
                Unit::Millis.show(median(&millis))
            ));
            match (kind, count) {
                ("hooks", 1_000) => {
                    row = row
                        .within(&IN_HOOKS, Measured::median(&used).at(&pace))
                        .anchor("Go 0.7 ms (goroutines)");
                }
                ("kernel", 1_000) => row = row.within(&ELSEWHERE, Measured::median(&used).at(&pace)),
                _ => {}
            }
            table.add(row);
            let pauses = child.ask(&format!("stall {}", effort.snapshots))?;
            let (with, without): (Vec<f64>, Vec<f64>) =
                pauses.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip();
            table.add(stall::row(what("longest pause of a thread that runs"), &with, &without));
            if kind == "kernel" && effort.peers {
                debugger(&child, count, table)?;
            }
        }
    }
    Ok(())
}

/// Takes the same stacks with gdb, which stops the program while it takes them. Omitted if gdb is not installed.
fn debugger(child: &Child, count: usize, table: &mut Table) -> io::Result<()> {
    let process = child.id().to_string();
    let mut command = Command::new("gdb");
    command.args(["-batch", "-nx", "-p", &process, "-ex", "thread apply all backtrace"]);
    let started = Instant::now();
    let output = match command.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        output => output?,
    };
    let millis = started.elapsed().as_secs_f64() * 1e3;
    let stacks = String::from_utf8_lossy(&output.stdout).matches("\nThread ").count();
    let row =
        Row::of(format!("all stacks, {count} threads that wait"), "gdb -batch", &[millis], Unit::Millis);
    table.add(row.notes(format!("{stacks} stacks with names, the program stands still")));
    Ok(())
}
