//! The driver: builds the binaries, runs them in turn, prints one table.
//!
//! `cargo run --release -p rtprof-benches --bin bench` for all of it, with `-- --quick` for a smoke run
//! without the C and C++ allocators.

mod allocation;
mod binaries;
mod capture;
mod child;
mod effort;
mod export;
mod footprint;
mod machine;
mod sample;
mod table;

use std::io;
use std::process::ExitCode;
use std::time::Instant;

use binaries::Binaries;
use effort::Effort;
use table::Table;

const USAGE: &str = "usage: bench [--quick]\n\
    \n\
    --quick   rtprof over System and its baselines only, few rounds";

fn main() -> ExitCode {
    let mut effort = Effort::FULL;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => effort = Effort::QUICK,
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::FAILURE;
            }
        }
    }
    match run(&effort) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(effort: &Effort) -> io::Result<()> {
    let binaries = Binaries::build(effort.peers)?;
    let load_before = machine::load();
    let start = Instant::now();
    let mut table = Table::default();
    let parts: [(&str, Part); 5] = [
        ("allocation", allocation::measure),
        ("sampled allocation", sample::measure),
        ("stack capture", capture::measure),
        ("export", export::measure),
        ("memory", footprint::measure),
    ];
    for (name, measure) in parts {
        eprintln!("bench: {name} ({:.0} s so far)", start.elapsed().as_secs_f64());
        measure(&binaries, effort, &mut table)?;
    }
    machine::describe(effort, &load_before, start.elapsed());
    print!("{table}");
    Ok(())
}

/// A part of the table: measures and adds its rows.
type Part = fn(&Binaries, &Effort, &mut Table) -> io::Result<()>;
