//! Measures the writing of a heap profile.

use std::io;

use rtprof_benches::statistics::median;
use rtprof_benches::yardstick::Yardstick;

use crate::binaries::{Binaries, Build};
use crate::budgets::EXPORT;
use crate::child::Child;
use crate::effort::Effort;
use crate::limit::Measured;
use crate::pace::Pace;
use crate::table::{Row, Table, Unit};

const FRAMES: usize = 30;
/// The maximum number of bytes that an export may leave behind.
const LEFT: f64 = (4 << 20) as f64;

/// Measures every number of records, cold and warm.
pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    for &(count, processes) in effort.exports {
        let mut runs = Runs::new();
        for _ in 0..processes {
            runs.add(binaries, count, effort.warm_exports)?;
        }
        runs.rows(count, table);
    }
    Ok(())
}

/// Milliseconds of processor time, and what else is known of the exports.
struct Runs {
    cold: Vec<f64>,
    warm: Vec<f64>,
    /// Milliseconds until the profile is there, of the exports after the first.
    took: Vec<f64>,
    /// Bytes that the first export leaves behind: names, and the pages that the workspace keeps.
    kept: Vec<f64>,
    bytes: f64,
    records: f64,
    frames: f64,
    samples: [f64; 2],
    pace: Pace,
}

impl Runs {
    fn new() -> Self {
        Self {
            cold: vec![],
            warm: vec![],
            took: vec![],
            kept: vec![],
            bytes: 0.0,
            records: 0.0,
            frames: 0.0,
            samples: [0.0; 2],
            pace: Pace::by(Yardstick::Pair),
        }
    }

    /// Measures in a fresh process, whose first export has no symbols cached.
    fn add(&mut self, binaries: &Binaries, count: usize, warm: usize) -> io::Result<()> {
        let mut child = Child::start(&binaries.path(Build::Plain, "part-export"))?;
        [self.records, self.frames] = child.numbers(&format!("fill {count} {FRAMES}"))?;
        if self.records != count as f64 {
            return Err(io::Error::other(format!("{count} stacks gave {} records", self.records)));
        }
        let [before] = child.numbers("resident")?;
        let [_, used, bytes] = child.numbers("write")?;
        let [after] = child.numbers("resident")?;
        self.cold.push(used);
        self.kept.push(after - before);
        self.bytes = bytes;
        for _ in 0..warm {
            self.pace.measure(&mut child)?;
            let [took, used, _] = child.numbers("write")?;
            self.took.push(took);
            self.warm.push(used);
        }
        self.samples = child.numbers("samples")?;
        Ok(())
    }

    fn rows(&self, count: usize, table: &mut Table) {
        let what =
            |kind: &str| format!("heap profile, {} records of {} frames, {kind}", self.records, self.frames);
        let rtprof = "write_heap_profile";
        let row = |kind: &str, millis: &[f64]| {
            let each = median(millis) * 1e3 / self.records;
            Row::of(what(kind), rtprof, millis, Unit::Millis)
                .samples(self.samples)
                .notes(format!("{} B, {each:.2} µs a record", self.bytes))
        };
        table.add(row("first", &self.cold));
        let mut warm = row("later", &self.warm);
        warm.notes += &format!("; it takes {}", Unit::Millis.show(median(&self.took)));
        match count {
            1_000 => warm.notes += "; Go 2.74 ms, 5,959 B",
            10_000 => {
                warm = warm
                    .keeps(&EXPORT, Measured::median(&self.warm).at(&self.pace))
                    .anchor("Go 20.6 ms, 38,232 B")
            }
            _ => (),
        }
        table.add(warm);
        let kept = Row::of(what("memory kept"), rtprof, &self.kept, Unit::MebiBytes);
        table.add(kept.budget("≤ 4 MiB", median(&self.kept) <= LEFT, ""));
    }
}
