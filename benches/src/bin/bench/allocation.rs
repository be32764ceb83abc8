//! Measures an allocation with its free under each allocator and profiler.

use std::io;

use rtprof_benches::churn::Shape;
use rtprof_benches::sizes::Sizes;
use rtprof_benches::statistics::{excess, median};
use rtprof_benches::yardstick::Yardstick;

use crate::binaries::{Binaries, Build};
use crate::budgets;
use crate::child::Child;
use crate::effort::Effort;
use crate::limit::Measured;
use crate::order::Order;
use crate::pace::Pace;
use crate::table::{Row, Table, Unit};

/// A contender: a binary, and its setup.
struct Contender {
    name: &'static str,
    build: Build,
    binary: &'static str,
    /// The request before the first round.
    set_up: Option<&'static str>,
    /// The contender to compare with: the allocator under this one, or the baseline.
    against: &'static str,
    /// Whether it needs more than a hundred times as long, so that it gets fewer objects.
    slow: bool,
    peer: bool,
}

const NONE: &str = "System (std's default)";
const RTPROF: &str = "rtprof over System";
const RTPROF_OFF: &str = "rtprof over System, rate 0";
const JEMALLOC: &str = "jemalloc";
const JEMALLOC_RTPROF: &str = "rtprof over jemalloc";
const JEMALLOC_PROFILING: &str = "jemalloc, its profiler on";
const MIMALLOC: &str = "mimalloc";
const STATS: &str = "stats_alloc over System";
const DHAT: &str = "dhat, profiling";
const DIAL9: &str = "dial9 over System, with frees";
const HOTPATH: &str = "hotpath over System";

const fn own(name: &'static str, binary: &'static str, set_up: Option<&'static str>) -> Contender {
    Contender { name, build: Build::Plain, binary, set_up, against: NONE, slow: false, peer: false }
}

const fn peer(name: &'static str, binary: &'static str, against: &'static str) -> Contender {
    Contender { name, build: Build::Plain, binary, set_up: None, against, slow: false, peer: true }
}

/// The first is the baseline. The second is the same once more: the distance of its ratio from 1 is the error of all
/// other ratios.
const CONTENDERS: [Contender; 14] = [
    own(NONE, "subject-none", None),
    own("the same again (A/A)", "subject-none", None),
    own("pass-through over System", "subject-pass-through", None),
    own(RTPROF, "subject-rtprof", None),
    own(RTPROF_OFF, "subject-rtprof", Some("rate 0")),
    peer(JEMALLOC, "subject-jemalloc", NONE),
    peer(JEMALLOC_RTPROF, "subject-jemalloc-rtprof", JEMALLOC),
    Contender {
        build: Build::JemallocProfiling,
        ..peer(JEMALLOC_PROFILING, "subject-jemalloc-profiling", JEMALLOC)
    },
    peer(MIMALLOC, "subject-mimalloc", NONE),
    peer("rtprof over mimalloc", "subject-mimalloc-rtprof", MIMALLOC),
    peer(STATS, "subject-stats-alloc", NONE),
    peer(HOTPATH, "subject-hotpath", NONE),
    peer(DIAL9, "subject-dial9", NONE),
    Contender { slow: true, ..peer(DHAT, "subject-dhat", NONE) },
];

/// One measured loop.
struct Case {
    name: &'static str,
    shape: Shape,
    sizes: Sizes,
    threads: usize,
    /// Objects per round: a few milliseconds.
    count: usize,
}

const fn case(name: &'static str, shape: Shape, sizes: Sizes, threads: usize, count: usize) -> Case {
    Case { name, shape, sizes, threads, count }
}

const CASES: [Case; 6] = [
    case("alloc+free, 64 B", Shape::Pair, Sizes::Fixed(64), 1, 200_000),
    case("alloc+free, 64 B, 2 threads", Shape::Pair, Sizes::Fixed(64), 2, 200_000),
    case("alloc+free, 1 KiB", Shape::Pair, Sizes::Fixed(1024), 1, 200_000),
    case("alloc+free, 1 KiB, 2 threads", Shape::Pair, Sizes::Fixed(1024), 2, 200_000),
    case("ring of 1024, 16..4096 B", Shape::Ring, Sizes::Mixed, 1, 80_000),
    case("ring of 1024, 16..4096 B, 2 threads", Shape::Ring, Sizes::Mixed, 2, 80_000),
];

/// Measures all cases and adds their rows.
pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let contenders: Vec<&Contender> = CONTENDERS.iter().filter(|c| effort.peers || !c.peer).collect();
    let mut results = Results::new(contenders);
    for _ in 0..effort.generations {
        results.generation(binaries, effort.rounds)?;
    }
    for (number, case) in CASES.iter().enumerate() {
        for contender in &results.contenders {
            table.add(results.row(number, case, contender));
        }
        if effort.peers {
            table.add(results.added_to_jemalloc(number, case));
        }
    }
    Ok(())
}

struct Results<'a> {
    contenders: Vec<&'a Contender>,
    /// By case, by contender: one value per round, in the same order for all.
    nanos: Vec<Vec<Vec<f64>>>,
    /// By case, by contender: samples taken and dropped.
    samples: Vec<Vec<[f64; 2]>>,
    order: Order,
    /// By case.
    paces: Vec<Pace>,
}

impl<'a> Results<'a> {
    fn new(contenders: Vec<&'a Contender>) -> Self {
        let count = contenders.len();
        Self {
            contenders,
            nanos: vec![vec![vec![]; count]; CASES.len()],
            samples: vec![vec![[0.0; 2]; count]; CASES.len()],
            order: Order::of(count),
            paces: CASES.iter().map(|_| Pace::by(Yardstick::Pair)).collect(),
        }
    }

    /// Starts new processes of all contenders, and lets them take turns.
    fn generation(&mut self, binaries: &Binaries, rounds: usize) -> io::Result<()> {
        let mut children = Vec::new();
        for contender in &self.contenders {
            let mut child = Child::start(&binaries.path(contender.build, contender.binary))?;
            if let Some(request) = contender.set_up {
                child.ask(request)?;
            }
            children.push(child);
        }
        let mut before = vec![[0.0; 2]; children.len()];
        for number in 0..CASES.len() {
            for _ in 0..rounds {
                self.round(number, &mut children)?;
            }
            for (place, child) in children.iter_mut().enumerate() {
                let so_far: [f64; 2] = child.numbers("samples")?;
                for side in 0..2 {
                    self.samples[number][place][side] += so_far[side] - before[place][side];
                }
                before[place] = so_far;
            }
        }
        Ok(())
    }

    /// Measures one case, once with each contender.
    fn round(&mut self, number: usize, children: &mut [Child]) -> io::Result<()> {
        let case = &CASES[number];
        self.paces[number].measure(&mut children[0])?;
        for place in self.order.next_round() {
            let count = if self.contenders[place].slow { case.count / 100 } else { case.count };
            let (shape, sizes) = (case.shape.word(), case.sizes.word());
            let [nanos] =
                children[place].numbers(&format!("churn {shape} {sizes} {} {count}", case.threads))?;
            self.nanos[number][place].push(nanos);
        }
        Ok(())
    }

    fn of(&self, number: usize, name: &str) -> &[f64] {
        &self.nanos[number][self.place(name)]
    }

    fn place(&self, name: &str) -> usize {
        self.contenders.iter().position(|c| c.name == name).expect("every baseline takes part")
    }

    fn row(&self, number: usize, case: &Case, contender: &Contender) -> Row {
        let nanos = self.of(number, contender.name);
        let mut row = Row::of(case.name, contender.name, nanos, Unit::Nanos);
        if contender.name != NONE {
            row = row.against(contender.against, nanos, self.of(number, contender.against), Unit::Nanos);
        }
        if contender.binary.contains("rtprof") {
            row = row.samples(self.samples[number][self.place(contender.name)]);
        }
        if contender.name == RTPROF {
            row = self.per_sample(number, case, row);
        }
        self.of_budget(number, case, contender, row)
    }

    /// Adds the cost of a sample at the default rate, if enough samples are taken to know it. Such a sample comes after
    /// hundreds of thousands of bytes of other allocations, and finds its data in no cache.
    fn per_sample(&self, number: usize, case: &Case, row: Row) -> Row {
        let probability = case.sizes.sampling_probability(512 * 1024);
        if probability < 1e-3 {
            return row;
        }
        let more = excess(self.of(number, RTPROF), self.of(number, RTPROF_OFF));
        row.notes(format!("{} a sample, by the difference to rate 0", Unit::Nanos.show(more / probability)))
    }

    /// Adds what the contender adds to System, if that has a budget. Of the peers, the allocators are left out: they
    /// replace System.
    fn of_budget(&self, number: usize, case: &Case, contender: &Contender, row: Row) -> Row {
        let (nanos, system) = (self.of(number, contender.name), self.of(number, NONE));
        let times = Measured::ratio(nanos, system);
        let more = Measured::excess(nanos, system).at(&self.paces[number]);
        match (contender.name, case.shape, case.sizes) {
            (RTPROF, Shape::Pair, Sizes::Fixed(64)) => row
                .keeps(&budgets::PAIR_TIMES, times)
                .keeps(&budgets::PAIR_MORE, more)
                .anchor("prototype 14.9 over 12.9 ns"),
            (RTPROF, Shape::Ring, _) => row.keeps(&budgets::RING, times),
            (STATS | HOTPATH | DIAL9 | DHAT, Shape::Pair, Sizes::Fixed(64)) if case.threads == 1 => row
                .beside(&budgets::PAIR_TIMES, contender.name, times)
                .beside(&budgets::PAIR_MORE, contender.name, more),
            (STATS | HOTPATH | DIAL9 | DHAT, Shape::Ring, _) if case.threads == 1 => {
                row.beside(&budgets::RING, contender.name, times)
            }
            _ => row,
        }
    }

    /// Returns the row of what rtprof adds to jemalloc, as a share of what jemalloc's own profiler adds.
    fn added_to_jemalloc(&self, number: usize, case: &Case) -> Row {
        let plain = self.of(number, JEMALLOC);
        let ours = Measured::excess(self.of(number, JEMALLOC_RTPROF), plain);
        let theirs = Measured::excess(self.of(number, JEMALLOC_PROFILING), plain);
        let share = ours.per(theirs);
        let anchor = match (case.shape, case.sizes) {
            (Shape::Pair, Sizes::Fixed(64)) => "jemalloc 5.6 → 11.6 ns",
            (Shape::Ring, _) => "jemalloc 10.1 → 15.8 ns",
            _ => "",
        };
        Row {
            what: case.name.to_owned(),
            who: "added by rtprof / by jemalloc's profiler".to_owned(),
            median: format!("{} / {}", Unit::Nanos.show(ours.value), Unit::Nanos.show(theirs.value)),
            notes: format!("to {}", Unit::Nanos.show(median(plain))),
            ratio: format!("{:.3}", share.value),
            against: JEMALLOC_PROFILING.to_owned(),
            ..Row::default()
        }
        .anchor(anchor)
        // If the difference of theirs is lost in noise, nothing can be said.
        .keeps(&budgets::JEMALLOC, if theirs.value > 0.0 { share.times(100.0) } else { f64::INFINITY.into() })
        .beside(&budgets::JEMALLOC, "jemalloc's own profiler", 100.0)
    }
}
