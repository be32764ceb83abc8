//! The part for services, without rtprof.

use rtprof_benches::adopter;
use rtprof_benches::async_work::Plain;

fn main() {
    adopter::run(|mode| {
        assert_eq!(mode, "without", "this program has no profiler");
        Plain
    });
}
