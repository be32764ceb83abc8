//! Measures the capture of a stack alone.

use std::io;

use rtprof_benches::statistics::{max, median};
use rtprof_benches::yardstick::Yardstick;

use crate::binaries::{Binaries, Build};
use crate::budgets::{SAMPLE_10_TABLES, SAMPLE_32_TABLES};
use crate::child::Child;
use crate::effort::Effort;
use crate::limit::Measured;
use crate::pace::Pace;
use crate::table::{Row, Table, Unit};

/// A method to capture: its request, its name, and captures per round.
struct Method(&'static str, &'static str, usize);

const UNWINDER: Method = Method("unwind-backtrace", "_Unwind_Backtrace", 1_000);

/// The unwinder of the C runtime comes first in both lists: the others are compared with it.
const WITH: [Method; 6] = [
    UNWINDER,
    Method("frame-pointers", "rtprof, frame pointers unchecked", 50_000),
    Method("auto", "rtprof, as it chooses (frame pointers)", 50_000),
    Method("unwind", "rtprof, unwind tables", 5_000),
    Method("backtrace-unsynchronized", "backtrace::trace_unsynchronized", 1_000),
    Method("backtrace", "backtrace::trace", 1_000),
];

const WITHOUT: [Method; 2] = [UNWINDER, Method("auto", "rtprof, as it chooses (unwind tables)", 5_000)];

/// Measures both builds at both depths.
pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let builds: [(Build, &str, &[Method]); 2] =
        [(Build::Plain, "", &WITH), (Build::NoFramePointers, ", built without frame pointers", &WITHOUT)];
    for (build, name, methods) in builds {
        for frames in [10, 32] {
            let mut results: Vec<Captures> = methods.iter().map(|_| Captures::new()).collect();
            for way in 0..effort.parts {
                let mut child = Child::start(&binaries.path(build, "part-capture"))?;
                process(&mut child, (frames, way), methods, &mut results, effort.part_rounds)?;
            }
            for (method, captures) in methods.iter().zip(&results) {
                let row = captures.row(format!("one stack, {frames} frames{name}"), method);
                table.add(if method.1 == UNWINDER.1 {
                    let alone = Measured::median(&captures.nanos).at(&captures.pace);
                    match (build, frames) {
                        (Build::Plain, _) => row,
                        (_, 10) => row.beside(&SAMPLE_10_TABLES, "_Unwind_Backtrace alone", alone),
                        (_, _) => row.beside(&SAMPLE_32_TABLES, "_Unwind_Backtrace alone", alone),
                    }
                } else {
                    row.against(UNWINDER.1, &captures.nanos, &results[0].nanos, Unit::Nanos)
                });
            }
        }
    }
    Ok(())
}

struct Captures {
    nanos: Vec<f64>,
    /// The median of each process.
    by_process: Vec<f64>,
    frames: f64,
    pace: Pace,
}

/// Measures all methods in turns in one process, whose stack goes its own way.
fn process(
    child: &mut Child,
    (frames, way): (usize, usize),
    methods: &[Method],
    results: &mut [Captures],
    rounds: usize,
) -> io::Result<()> {
    let [depth] = child.numbers(&format!("depth {frames}"))?;
    for _ in 0..rounds {
        results[0].pace.measure(child)?;
        for (Method(request, _, count), captures) in methods.iter().zip(&mut *results) {
            let [nanos, found] = child.numbers(&format!("capture {request} {way} {depth} {count}"))?;
            captures.nanos.push(nanos);
            captures.frames = found;
        }
    }
    for captures in results {
        let own = &captures.nanos[captures.nanos.len() - rounds..];
        captures.by_process.push(median(own));
    }
    Ok(())
}

impl Captures {
    fn new() -> Self {
        Self { nanos: vec![], by_process: vec![], frames: 0.0, pace: Pace::by(Yardstick::Walk) }
    }

    fn row(&self, what: String, method: &Method) -> Row {
        let slowest = max(&self.by_process);
        let each = median(&self.nanos) / self.frames;
        Row::of(what, method.1, &self.nanos, Unit::Nanos).notes(format!(
            "found {} frames, {each:.1} ns each; slowest way {}",
            self.frames,
            Unit::Nanos.show(slowest)
        ))
    }
}
