//! Checks traces by the rules of the tools that open them, and prints what is in them.
//!
//! ```sh
//! cargo run -p rtprof-trace-check --bin check-trace -- [--windows] FILE...
//! ```
//!
//! The header of a file tells its format: one of Go's, or Perfetto's. With `--windows` files of Perfetto are windows of a
//! flight recorder, in which slices may begin before the file; in Go's formats that is no fault anyway.
//!
//! A line is a kind of event of Go's with its count; or of Perfetto's a kind of slice or moment: the name of its track,
//! its name and category, its count, and the sum of its durations in ms. Ends with status 1 if a trace is wrong.

use std::collections::BTreeMap;
use std::process::ExitCode;

use rtprof_trace_check::perfetto::{self, EventKind, Trace};
use rtprof_trace_check::{Parsed, is_go, validate};

fn main() -> ExitCode {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    let all = files.len();
    files.retain(|argument| argument != "--windows");
    if files.is_empty() {
        eprintln!("usage: check-trace [--windows] FILE...");
        return ExitCode::FAILURE;
    }
    let are_windows = files.len() < all;
    let mut status = ExitCode::SUCCESS;
    for file in files {
        if let Err(fault) = check(&file, are_windows) {
            eprintln!("{file}: {fault}");
            status = ExitCode::FAILURE;
        }
    }
    status
}

/// Checks a file and prints what is in it. Returns the first fault.
fn check(file: &str, is_window: bool) -> Result<(), String> {
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    if is_go(&bytes) {
        print_go(file, &validate(&bytes).map_err(|invalid| invalid.to_string())?);
    } else {
        let check = if is_window { perfetto::check_window } else { perfetto::check };
        print_perfetto(file, &check(&bytes)?);
    }
    Ok(())
}

fn print_go(file: &str, parsed: &Parsed) {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for event in parsed.events() {
        *kinds.entry(event.event_type().name()).or_default() += 1;
    }
    for (name, count) in kinds {
        println!("{name} {count}");
    }
    println!("{file}: right, {} events", parsed.events().len());
}

fn print_perfetto(file: &str, trace: &Trace) {
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
