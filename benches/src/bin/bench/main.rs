//! The driver: builds the binaries, runs them in turn, prints one table.
//!
//! `cargo run --release -p rtprof-benches --bin bench` runs everything; `-- --quick` makes a smoke run without the C
//! and C++ allocators; names of parts as arguments run only these; `--report DIR` also writes the report on the budgets.
//!
//! The measured program and its driver stand side by side, in `parts/NAME/main.rs` and `parts/NAME/driver.rs`. They are
//! two programs, because the measured one is linked with its own allocator, and the driver without rtprof.

mod allocation;
mod binaries;
mod budgets;
#[path = "../../../parts/capture/driver.rs"]
mod capture;
mod chart;
mod child;
#[path = "../../../parts/cpu/driver.rs"]
mod cpu;
mod effort;
#[path = "../../../parts/event/driver.rs"]
mod event;
#[path = "../../../parts/export/driver.rs"]
mod export;
mod flips;
mod footprint;
#[path = "../../../parts/goroutines/driver.rs"]
mod goroutines;
#[path = "../../../parts/http/driver.rs"]
mod http;
#[path = "../../../parts/calls/driver/mod.rs"]
mod interpose;
mod limit;
mod machine;
mod order;
mod pace;
mod report;
#[path = "../../../parts/sample/driver.rs"]
mod sample;
#[path = "../../../parts/service/driver.rs"]
mod service;
mod stall;
mod table;
#[path = "../../../parts/tasks/driver.rs"]
mod tasks;
#[path = "../../../parts/trace/driver/mod.rs"]
mod trace;
#[path = "../../../parts/lock/driver.rs"]
mod uncontended;
#[path = "../../../parts/wait/driver.rs"]
mod wait;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use binaries::{Binaries, Wanted};
use effort::Effort;
use table::Table;

/// A part of the table: measures and adds its rows.
type Part = fn(&Binaries, &Effort, &mut Table) -> io::Result<()>;

const PARTS: [(&str, Part); 15] = [
    ("service", service::measure),
    ("allocation", allocation::measure),
    ("sample", sample::measure),
    ("capture", capture::measure),
    ("uncontended", uncontended::measure),
    ("event", event::measure),
    ("wait", wait::measure),
    ("interpose", interpose::measure),
    ("export", export::measure),
    ("footprint", footprint::measure),
    ("goroutines", goroutines::measure),
    ("tasks", tasks::measure),
    ("http", http::measure),
    ("trace", trace::measure),
    ("cpu", cpu::measure),
];

const USAGE: &str = "usage: bench [--quick] [--report DIR] [PART]...\n\
    \n\
    --quick       rtprof and its baselines only, few rounds\n\
    --report DIR  also writes budgets.md and budgets.svg into DIR\n\
    PART          only these parts of the table: service allocation sample capture uncontended event wait interpose\n              \
    export footprint goroutines tasks http trace cpu";

fn main() -> ExitCode {
    let mut effort = Effort::FULL;
    let mut parts = vec![];
    let mut report = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match PARTS.iter().find(|(name, _)| *name == argument) {
            Some(part) => parts.push(*part),
            None if argument == "--quick" => effort = Effort::QUICK,
            None if argument == "--report" && arguments.len() > 0 => {
                report = arguments.next().map(PathBuf::from);
            }
            None => {
                eprintln!("{USAGE}");
                return ExitCode::FAILURE;
            }
        }
    }
    if parts.is_empty() {
        parts.extend(PARTS);
    }
    match run(&effort, &parts, report.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(effort: &Effort, parts: &[(&str, Part)], report: Option<&Path>) -> io::Result<()> {
    let before = machine::before();
    let has = |wanted| parts.iter().any(|(name, _)| *name == wanted);
    let binaries = Binaries::build(Wanted {
        allocators: effort.peers && has("allocation"),
        tracers: effort.peers && has("trace"),
        samplers: effort.peers && has("cpu"),
        task_followers: effort.peers && has("tasks"),
        interposed: has("interpose"),
        services: has("service"),
        services_without_frame_pointers: effort.adopter_builds > 1 && has("service"),
    })?;
    let start = Instant::now();
    let mut table = Table::default();
    for (name, measure) in parts {
        eprintln!("bench: {name} ({:.0} s so far)", start.elapsed().as_secs_f64());
        measure(&binaries, effort, &mut table)?;
    }
    let machine = machine::describe(effort, &before, start.elapsed());
    println!("# rtprof benchmarks\n\n{machine}\n{table}");
    report.map_or(Ok(()), |directory| report::write(directory, &machine, &table))
}
