//! Measures the cost of recording the waits of unmodified code: single calls, and programs that make many calls.
//!
//! A program whose waits are recorded is linked differently, so each contender is a separate build of the same source.

mod calls;
mod jobs;

use std::io;

use crate::binaries::{Binaries, Build};
use crate::child::Child;
use crate::effort::Effort;
use crate::table::Table;

/// A contender, which takes turns with the others.
struct Contender {
    who: &'static str,
    child: usize,
    /// The rate of the block profile in nanoseconds, and the fraction of the mutex profile.
    rates: (u64, u64),
    trace: bool,
}

/// Indices in [`CONTENDERS`].
const BASELINE: usize = 0;
const OFF: usize = 2;
const USUAL: usize = 3;
const ALL: usize = 4;
const TRACE: usize = 5;

const CONTENDERS: [Contender; 6] = [
    Contender { who: "without `interpose`", child: 0, rates: (0, 0), trace: false },
    Contender { who: "the same again (A/A)", child: 1, rates: (0, 0), trace: false },
    Contender { who: "with it, profiles off", child: 2, rates: (0, 0), trace: false },
    Contender { who: "with it, block 10000, mutex 10", child: 2, rates: (10_000, 10), trace: false },
    Contender { who: "with it, block 1, mutex 1", child: 2, rates: (1, 1), trace: false },
    Contender { who: "with it, a trace", child: 2, rates: (0, 0), trace: true },
];

/// By contender: one value per round.
type Values = [Vec<f64>; CONTENDERS.len()];

/// Processes of one part: two of one build, one of the other build.
struct Children([Child; 3]);

impl Children {
    fn start(binaries: &Binaries, part: &str) -> io::Result<Self> {
        let start = |build| Child::start(&binaries.path(build, part));
        Ok(Self([start(Build::Plain)?, start(Build::Plain)?, start(Build::Interposed)?]))
    }

    /// Sends requests to a contender, and returns the numbers of each answer.
    fn ask(&mut self, place: usize, requests: &[String]) -> io::Result<Vec<Vec<f64>>> {
        let Contender { child, rates: (block, mutex), trace, .. } = CONTENDERS[place];
        let child = &mut self.0[child];
        child.ask(&format!("rates {block} {mutex}"))?;
        if trace {
            child.ask("trace on")?;
        }
        let numbers = requests.iter().map(|request| child.ask(request)).collect();
        if trace {
            child.ask("trace off")?;
        }
        numbers
    }
}

/// Measures calls and programs, and adds their rows.
pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    calls::measure(binaries, effort, table)?;
    jobs::measure(binaries, effort, table)
}
