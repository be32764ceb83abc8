//! Measures a snapshot of all threads, and how long it holds up a running thread.

use std::io;
use std::process::Command;
use std::time::Instant;

use rtprof_benches::statistics::{excess, median};

use crate::binaries::{Binaries, Build};
use crate::budgets::STALL;
use crate::child::Child;
use crate::effort::Effort;
use crate::table::{Row, Table, Unit};

const FRAMES: usize = 10;
const COUNTS: [usize; 3] = [10, 100, 1_000];

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
            let mut millis = vec![];
            for _ in 0..effort.snapshots {
                let [took, _] = child.numbers("snapshot")?;
                millis.push(took);
            }
            let mut row = Row::of(what("goroutine profile"), "goroutine_profile", &millis, Unit::Millis)
                .notes(format!("{:.1} µs a thread", median(&millis) * 1e3 / count as f64));
            match (kind, count) {
                ("hooks", 1_000) => {
                    row = row.budget("≤ 1 ms", median(&millis) <= 1.0, "Go 0.7 ms (goroutines)")
                }
                ("kernel", 1_000) => row = row.budget("≤ 60 ms", median(&millis) <= 60.0, ""),
                _ => {}
            }
            table.add(row);
            let pauses = child.ask(&format!("stall {}", effort.snapshots))?;
            let (with, without): (Vec<f64>, Vec<f64>) =
                pauses.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip();
            let over = excess(&with, &without);
            table.add(
                Row::of(
                    what("longest pause of a thread that runs"),
                    "goroutine_profile",
                    &with,
                    Unit::Millis,
                )
                .against("as long without", &with, &without, Unit::Millis)
                .keeps(&STALL, over)
                .anchor("Go 0.14 to 0.17 ms"),
            );
            if kind == "kernel" && effort.peers {
                debugger(&child, count, table)?;
            }
        }
    }
    Ok(())
}

/// Takes the same stacks with gdb, which stops the program meanwhile. Omitted if gdb is not installed.
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
