//! Measures one sampled allocation.

use std::io;

use rtprof_benches::churn::Shape;
use rtprof_benches::sizes::Sizes;
use rtprof_benches::statistics::{excess, max, median, min};

use crate::binaries::{Binaries, Build};
use crate::budgets::{self, Budget};
use crate::child::Child;
use crate::effort::Effort;
use crate::flips::Flips;
use crate::limit::Measured;
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
                case.measure(result, &mut child, effort.part_rounds)?;
            }
        }
        for (place, (case, result)) in CASES.iter().zip(&results).enumerate() {
            let row = case.row(result, side);
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

impl Case {
    /// Measures this case in one process.
    fn measure(&self, flips: &mut Flips, child: &mut Child, rounds: usize) -> io::Result<()> {
        let Self { frames, rate, shape, sizes, count, .. } = self;
        child.ask(&format!("coroutine {}", u8::from(self.on_coroutine)))?;
        let [depth, real] = child.numbers(&format!("depth {frames}"))?;
        flips.frames = real;
        flips.measure(child, rounds, 1.0 / self.probability(), "samples", |is_on| {
            let rate = if is_on { *rate } else { 0 };
            format!("at {rate} {} {} {depth} {count}", shape.word(), sizes.word())
        })
    }

    /// Returns the cost of a sample: the median over the processes, or, where few objects are sampled, over all rounds.
    fn cost(&self, flips: &Flips) -> f64 {
        if self.rate == 1 {
            median(&flips.by_process)
        } else {
            excess(&flips.on, &flips.off) / self.probability()
        }
    }

    fn row(&self, flips: &Flips, side: &Side) -> Row {
        let slowest = max(&flips.by_process);
        let (kind, more) = if self.rate == 1 {
            ("hot", String::new())
        } else {
            let one_in = 1.0 / self.probability();
            (
                "sparse",
                format!("; 1 in {one_in:.0} sampled at 64 KiB, cost = difference × that; {}", self.anchor),
            )
        };
        Row {
            what: format!("one sample, {kind}: {}, {} frames", self.name, flips.frames),
            who: side.name.to_owned(),
            median: Unit::Nanos.show(self.cost(flips)),
            min: Unit::Nanos.show(min(&flips.by_process)),
            ..Row::default()
        }
        .against("rate 0", &flips.on, &flips.off, Unit::Nanos)
        .samples(flips.recorded)
        .notes(format!("slowest way {}{more}", Unit::Nanos.show(slowest)))
    }

    /// Returns the probability that an object is sampled. At rate 1 all are.
    fn probability(&self) -> f64 {
        if self.rate == 1 { 1.0 } else { self.sizes.sampling_probability(self.rate) }
    }
}
