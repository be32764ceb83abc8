//! Tests that cannot run here.

use std::io::Write;

/// Reports that a test was not run. `eprintln!` does not serve, because the harness hides its output when a test
/// passes.
pub fn skipped(test: &str, why: &str) {
    writeln!(std::io::stderr(), "SKIPPED: {test}: {why}").ok();
}
