//! Measures the CPU profile: which part of the due samples is delivered, and what a sample costs.

use std::io;

use rtprof_benches::busy::KINDS;
use rtprof_benches::statistics::{median, min, ratio};

use crate::binaries::{Binaries, Build};
use crate::budgets::CPU_SAMPLES;
use crate::child::Child;
use crate::effort::Effort;
use crate::limit::{Limit, Measured};
use crate::order::Order;
use crate::table::{Row, Table, Unit};

const RATES: [usize; 2] = [100, 1_000];

/// Work of about 0.1 s.
const STEPS: usize = 120_000_000;

const PEER: &str = "pprof-rs 0.15";

pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    delivered(binaries, effort, table)?;
    cost(binaries, effort, table)
}

/// A source of samples.
struct Sampler {
    who: &'static str,
    binary: &'static str,
    source: &'static str,
}

const SAMPLERS: [Sampler; 3] = [
    Sampler { who: "rtprof, perf", binary: "part-cpu", source: "perf" },
    Sampler { who: "rtprof, timers", binary: "part-cpu", source: "timers" },
    Sampler { who: PEER, binary: "part-cpu-peer", source: "none" },
];

/// The delivered samples of a thread of one kind.
#[derive(Clone, Default)]
struct Delivery {
    /// The percentage of the due samples that arrived, in each stretch.
    came: Vec<f64>,
    /// The samples of the profile, and those among them without a stack.
    charged: f64,
    without: f64,
    due: f64,
}

fn delivered(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let samplers = if effort.peers { &SAMPLERS[..] } else { &SAMPLERS[..2] };
    for hz in RATES {
        let mut deliveries = vec![vec![Delivery::default(); KINDS.len()]; samplers.len()];
        let mut order = Order::of(samplers.len());
        for _ in 0..effort.cpu_stretches {
            for at in order.next_round() {
                let Sampler { binary, source, .. } = samplers[at];
                let mut child = Child::start(&binaries.path(Build::Plain, binary))?;
                let answer = child.ask(&format!("deliver {source} {hz} {}", effort.cpu_millis))?;
                for (delivery, numbers) in deliveries[at].iter_mut().zip(answer.chunks_exact(4)) {
                    let due = numbers[3] * hz as f64;
                    delivery.came.push(numbers[0] / due * 100.0);
                    delivery.charged += numbers[1];
                    delivery.without += numbers[2];
                    delivery.due += due;
                }
            }
        }
        for (place, kind) in KINDS.iter().enumerate() {
            for (sampler, deliveries) in samplers.iter().zip(&deliveries) {
                let delivery = &deliveries[place];
                let what = format!("samples of a thread, {}, at {hz} Hz", kind.name);
                let row = Row::of(what, sampler.who, &delivery.came, Unit::Percent);
                table.add(delivery.judged(row, sampler, kind.name, hz));
            }
        }
    }
    Ok(())
}

impl Delivery {
    fn judged(&self, row: Row, sampler: &Sampler, kind: &str, hz: usize) -> Row {
        let came = Measured::median(&self.came);
        let total = self.charged / self.due * 100.0;
        let row = match sampler.source {
            "none" if hz == 1_000 => return row.beside(&CPU_SAMPLES, "pprof-rs", came),
            "none" => return row,
            _ => row.notes(format!(
                "they stand for {total:.1} % of its time, {} of {} samples without a stack",
                self.without, self.charged
            )),
        };
        match (sampler.source, kind) {
            ("perf", _) if hz == 1_000 => row.keeps(&CPU_SAMPLES, came).anchor("pprof-rs 25 %"),
            ("perf", "steady") => row.within(&CPU_SAMPLES.limit, came),
            // At 100 Hz a few samples more or less are some percent.
            ("perf", _) => row.budget("90 to 110 % of its share", (came.value - 100.0).abs() <= 10.0, ""),
            // Exact up to a whole sample in each stretch.
            _ => {
                let rounding = self.came.len() as f64 / self.due * 100.0;
                row.budget("totals to 1 %", (total - 100.0).abs() <= f64::max(1.0, rounding), "")
            }
        }
    }
}

/// A profiler that runs beside the work.
struct Contender {
    who: &'static str,
    /// The name in a request to `part-cpu`.
    name: &'static str,
    hz: usize,
    frames: usize,
}

const NONE: Contender = Contender { who: "not profiled", name: "none", hz: 0, frames: 10 };
const AGAIN: Contender = Contender { who: "not profiled, again", ..NONE };
const ALONE: Contender = Contender { who: "the kernel alone, an empty handler", name: "kernel", ..NONE };
const PERF: Contender = Contender { who: "rtprof, perf", name: "perf", ..NONE };
const TIMERS: Contender = Contender { who: "rtprof, timers", name: "timers", ..NONE };
const THEIRS: Contender = Contender { who: PEER, name: "peer", ..NONE };

/// Our own contenders are compared with the first, and those of the peer's program with the first of the peer's.
const CONTENDERS: [Contender; 13] = [
    NONE,
    AGAIN,
    Contender { hz: 100, ..ALONE },
    Contender { hz: 1_000, ..ALONE },
    Contender { hz: 100, ..PERF },
    Contender { hz: 100, frames: 32, ..PERF },
    Contender { hz: 1_000, ..PERF },
    Contender { hz: 1_000, frames: 32, ..PERF },
    Contender { hz: 100, ..TIMERS },
    Contender { hz: 1_000, ..TIMERS },
    THEIRS,
    Contender { hz: 100, ..THEIRS },
    Contender { hz: 1_000, ..THEIRS },
];

/// The index of the first contender of the peer.
const PEERS: usize = 10;

fn cost(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    for (build, with) in [(Build::Plain, "frame pointers"), (Build::NoFramePointers, "no frame pointers")] {
        let has_peer = effort.peers && build == Build::Plain;
        let contenders = if has_peer { &CONTENDERS[..] } else { &CONTENDERS[..PEERS] };
        let mut nanos = vec![vec![]; contenders.len()];
        let mut signals = vec![0.0; contenders.len()];
        let mut order = Order::of(contenders.len());
        for way in 0..effort.cpu_processes {
            let mut ours = Child::start(&binaries.path(build, "part-cpu"))?;
            let mut theirs =
                has_peer.then(|| Child::start(&binaries.path(build, "part-cpu-peer"))).transpose()?;
            ours.ask(&format!("way {way}"))?;
            let depths = [10, 32].map(|frames| ours.numbers::<2>(&format!("depth {frames}")));
            let [[shallow, _], [deep, _]] = match depths {
                [Ok(shallow), Ok(deep)] => [shallow, deep],
                [Err(error), _] | [_, Err(error)] => return Err(error),
            };
            for _ in 0..effort.cpu_rounds {
                for at in order.next_round() {
                    let Contender { name, hz, frames, .. } = contenders[at];
                    let depth = if frames == 10 { shallow } else { deep };
                    let child = if name == THEIRS.name { theirs.as_mut() } else { None };
                    let [took, came] =
                        child.unwrap_or(&mut ours).numbers(&format!("at {name} {hz} {depth} {STEPS}"))?;
                    nanos[at].push(took);
                    signals[at] += came;
                }
            }
        }
        for (at, contender) in contenders.iter().enumerate() {
            let baseline = if at < PEERS { 0 } else { PEERS };
            if at != baseline {
                table.add(contender.row(with, &nanos[at], &nanos[baseline], signals[at]));
            }
        }
    }
    Ok(())
}

impl Contender {
    fn row(&self, with: &str, on: &[f64], off: &[f64], signals: f64) -> Row {
        let Self { who, name, hz, frames } = self;
        let times = ratio(on, off);
        let row = Row {
            who: format!("{who}, {with}"),
            ratio: format!("{times:.4}"),
            against: NONE.who.to_owned(),
            excess: format!("{:+.2} %", (times - 1.0) * 100.0),
            ..Row::default()
        };
        if *hz == 0 {
            return Row { what: "0.1 s of work".to_owned(), ..row };
        }
        // Divides the sum over all rounds: at 100 Hz a round has only about ten samples.
        let each = (on.iter().sum::<f64>() - off.iter().sum::<f64>()) / signals;
        let per_round = signals / on.len() as f64;
        let least = (min(on) - min(off)) / per_round;
        let row = Row {
            what: format!("a sample, {frames} frames, at {hz} Hz"),
            median: Unit::Nanos.show((times - 1.0) * median(off) / per_round),
            min: Unit::Nanos.show(least),
            notes: format!("mean {}, {per_round:.0} signals in 0.1 s", Unit::Nanos.show(each)),
            ..row
        };
        match (*name, *hz, with) {
            ("perf", 100, "frame pointers") => row.within(&Limit::times(1.001), Measured::ratio(on, off)),
            ("perf", 100, _) => row.within(&Limit::times(1.005), Measured::ratio(on, off)),
            _ => row,
        }
    }
}
