//! Checks a trace file by all rules that `go tool trace` has: `cargo run -p rtprof-trace-check --example check -- trace.out`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: check TRACE");
        return ExitCode::FAILURE;
    };
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    };
    match rtprof_trace_check::validate(&bytes) {
        Ok(parsed) => {
            println!("{}: valid, {} events", path.display(), parsed.events().len());
            ExitCode::SUCCESS
        }
        Err(invalid) => {
            eprintln!("{}: {invalid}", path.display());
            ExitCode::FAILURE
        }
    }
}
