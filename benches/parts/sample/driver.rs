//! Measures one sampled allocation.

use std::io;

use rtprof_benches::churn::Shape;
use rtprof_benches::sizes::Sizes;
use rtprof_benches::statistics::{excess, max, median, min};
use rtprof_benches::yardstick::Yardstick;

use crate::binaries::{Binaries, Build};
use crate::budgets::{self, Budget};
use crate::child::Child;
use crate::effort::Effort;
use crate::limit::Measured;
use crate::pace::Pace;
use crate::table::{Row, Table, Unit};

/// A build with its budgets for 10 and 32 frames.
struct Side {
    build: Build,
    name: &'static str,
    budgets: [(&'static Budget, &'static str); 2],
}

const SIDES: [Side; 2] = [
    Side {
        build: Build::Plain,
        name: "rtprof, frame pointers",
        budgets: [(&budgets::SAMPLE_10, "Go 1312 ns"), (&budgets::SAMPLE_32, "Go 2248 ns")],
    },
    Side {
        build: Build::NoFramePointers,
        name: "rtprof, no frame pointers",
        budgets: [
            (&budgets::SAMPLE_10_TABLES, "_Unwind_Backtrace alone 1.95 µs"),
            (&budgets::SAMPLE_32_TABLES, "_Unwind_Backtrace alone 5.1 µs"),
        ],
    },
];

/// The cases on each side; the two with a budget come first. Hot: every object is sampled. Sparse: few objects are, so
/// that other code has used the caches before each sample.
const CASES: [Case; 6] = [
    hot(10),
    hot(32),
    Case { on_coroutine: true, name: "64 B, on a coroutine", ..hot(10) },
    sparse(Shape::Pair, Sizes::Fixed(1024), "1 KiB", "Go 2.1 µs"),
    sparse(Shape::Pair, Sizes::Mixed, "16..4096 B", "Go 2.5 µs"),
    sparse(Shape::Ring, Sizes::Mixed, "ring of 1024, 16..4096 B", "Go 2.5 µs"),
];

struct Case {
    frames: usize,
    rate: usize,
    shape: Shape,
    sizes: Sizes,
    count: usize,
    on_coroutine: bool,
    name: &'static str,
    anchor: &'static str,
}

const fn hot(frames: usize) -> Case {
    Case {
        frames,
        rate: 1,
        shape: Shape::Pair,
        sizes: Sizes::Fixed(64),
        count: 10_000,
        on_coroutine: false,
        name: "64 B",
        anchor: "",
    }
}

const fn sparse(shape: Shape, sizes: Sizes, name: &'static str, anchor: &'static str) -> Case {
    Case { frames: 10, rate: 64 * 1024, shape, sizes, count: 100_000, on_coroutine: false, name, anchor }
}

/// Measures all cases of both builds and adds their rows.
pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    for side in &SIDES {
        let mut results: [Flips; CASES.len()] = std::array::from_fn(|_| Flips::new());
        for way in 0..effort.parts {
            let mut child = Child::start(&binaries.path(side.build, "part-sample"))?;
            // The mode of a program that chooses none.
            child.ask("mode auto")?;
            child.ask(&format!("way {way}"))?;
            for (case, result) in CASES.iter().zip(&mut results) {
                result.measure(&mut child, case, effort.part_rounds)?;
            }
        }
        for (place, (case, result)) in CASES.iter().zip(&results).enumerate() {
            let row = result.row(case, side);
            table.add(match side.budgets.get(place) {
                Some(&(budget, anchor)) => {
                    row.keeps(budget, Measured::median(&result.by_process).at(&result.pace)).anchor(anchor)
                }
                None => row,
            });
        }
    }
    Ok(())
}

/// Nanoseconds for each object with sampling off and on; values at the same index are from the same round.
struct Flips {
    off: Vec<f64>,
    on: Vec<f64>,
    /// Frames of the recorded stacks.
    frames: f64,
    /// The cost of a sample in each process.
    by_process: Vec<f64>,
    samples: [f64; 2],
    pace: Pace,
}

impl Flips {
    fn new() -> Self {
        Self {
            off: vec![],
            on: vec![],
            frames: 0.0,
            by_process: vec![],
            samples: [0.0; 2],
            pace: Pace::by(Yardstick::Walk),
        }
    }

    fn measure(&mut self, child: &mut Child, case: &Case, rounds: usize) -> io::Result<()> {
        let Case { frames, rate, shape, sizes, count, .. } = case;
        child.ask(&format!("coroutine {}", u8::from(case.on_coroutine)))?;
        let [depth, real] = child.numbers(&format!("depth {frames}"))?;
        self.frames = real;
        let before: [f64; 2] = child.numbers("samples")?;
        let first = self.off.len();
        for round in 0..rounds {
            self.pace.measure(child)?;
            for step in 0..2 {
                // The order alternates.
                let on = (round + step) % 2 == 1;
                let rate = if on { *rate } else { 0 };
                let request = format!("at {rate} {} {} {depth} {count}", shape.word(), sizes.word());
                let [nanos] = child.numbers(&request)?;
                if on { &mut self.on } else { &mut self.off }.push(nanos);
            }
        }
        let after: [f64; 2] = child.numbers("samples")?;
        for side in 0..2 {
            self.samples[side] += after[side] - before[side];
        }
        self.by_process.push(excess(&self.on[first..], &self.off[first..]) / case.probability());
        Ok(())
    }

    /// Returns the median over the processes: each goes its own way through the functions, and so differs in what
    /// collides in caches.
    fn cost(&self, case: &Case) -> f64 {
        if case.rate == 1 {
            median(&self.by_process)
        } else {
            excess(&self.on, &self.off) / case.probability()
        }
    }

    fn row(&self, case: &Case, side: &Side) -> Row {
        let slowest = max(&self.by_process);
        let (kind, more) = if case.rate == 1 {
            ("hot", String::new())
        } else {
            let one_in = 1.0 / case.probability();
            (
                "sparse",
                format!("; 1 in {one_in:.0} sampled at 64 KiB, cost = difference × that; {}", case.anchor),
            )
        };
        Row {
            what: format!("one sample, {kind}: {}, {} frames", case.name, self.frames),
            who: side.name.to_owned(),
            median: Unit::Nanos.show(self.cost(case)),
            min: Unit::Nanos.show(min(&self.by_process)),
            ..Row::default()
        }
        .against("rate 0", &self.on, &self.off, Unit::Nanos)
        .samples(self.samples)
        .notes(format!("slowest way {}{more}", Unit::Nanos.show(slowest)))
    }
}

impl Case {
    /// Returns the probability that an object is sampled. At rate 1 all are.
    fn probability(&self) -> f64 {
        if self.rate == 1 { 1.0 } else { self.sizes.sampling_probability(self.rate) }
    }
}
