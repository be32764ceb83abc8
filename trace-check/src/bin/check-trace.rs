//! Checks traces in Perfetto's format, and prints what is in them.
//!
//! ```sh
//! cargo run -p rtprof-trace-check --bin check-trace -- [--windows] FILE...
//! ```
//!
//! With `--windows` they are windows of a flight recorder, in which slices may begin before the file.
//!
//! A line is a kind of slice or moment: the name of its track, its name and category, its count, and the sum of its
//! durations in ms. Ends with status 1 if a trace is wrong.

use std::collections::BTreeMap;
use std::process::ExitCode;

use rtprof_trace_check::perfetto::{self, EventKind, Trace};

fn main() -> ExitCode {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    let all = files.len();
    files.retain(|argument| argument != "--windows");
    let check = if files.len() == all { perfetto::check } else { perfetto::check_window };
    if files.is_empty() {
        eprintln!("which files?");
        return ExitCode::FAILURE;
    }
    let mut status = ExitCode::SUCCESS;
    for file in files {
        match std::fs::read(&file).map_err(|error| error.to_string()).and_then(|bytes| check(&bytes)) {
            Ok(trace) => print(&file, &trace),
            Err(fault) => {
                eprintln!("{file}: {fault}");
                status = ExitCode::FAILURE;
            }
        }
    }
    status
}

fn print(file: &str, trace: &Trace) {
    let mut kinds: BTreeMap<(&str, &str, &str), (usize, u64)> = BTreeMap::new();
    for slice in &trace.slices {
        let key = (&*trace.track(slice.begin.track).name, &*slice.begin.name, &*slice.begin.category);
        let (count, nanos) = kinds.entry(key).or_default();
        (*count, *nanos) = (*count + 1, *nanos + slice.nanos().unwrap_or(0));
    }
    for event in trace.events.iter().filter(|event| !matches!(event.kind, EventKind::Begin | EventKind::End))
    {
        let key = (&*trace.track(event.track).name, &*event.name, &*event.category);
        kinds.entry(key).or_default().0 += 1;
    }
    for ((track, name, category), (count, nanos)) in kinds {
        println!("{track:?} {name:?} {category:?} {count} {:.3}", nanos as f64 / 1e6);
    }
    let (events, slices, samples) = (trace.events.len(), trace.slices.len(), trace.samples.len());
    println!("{file}: right, {events} events, {slices} slices, {samples} samples of the processor");
}
