//! Measures uncontended locks.

use std::io;

use rtprof_benches::statistics::{max, min, ratio};

use crate::binaries::{Binaries, Build};
use crate::budgets::MUTEX;
use crate::child::Child;
use crate::effort::Effort;
use crate::order::Order;
use crate::table::{Row, Table, Unit};

/// A kind of lock: its request, and its name.
const KINDS: [(&str, &str); 3] = [
    ("mutex", "lock+unlock, uncontended: Mutex"),
    ("read", "lock+unlock, uncontended: RwLock, read"),
    ("write", "lock+unlock, uncontended: RwLock, write"),
];

/// Copies of each loop in memory, and turns in a measurement.
const COPIES: usize = 16;
const COUNT: usize = 200_000;

struct Contender {
    who: &'static str,
    whose: &'static str,
    /// Whether both profiles record everything.
    on: bool,
    /// Whether the contender uses another copy than the others in the same round.
    elsewhere: bool,
}

const fn contender(who: &'static str, whose: &'static str, on: bool) -> Contender {
    Contender { who, whose, on, elsewhere: false }
}

const BASELINE: &str = "parking_lot";
const STD: &str = "std";
const OURS: &str = "rtprof, block 1, mutex 1";

/// The first contender is the baseline. The second is the same in another copy of the same loop: the distance of its
/// ratio from 1 is the error of all other ratios, due to the code's place in memory as well as to noise.
const CONTENDERS: [Contender; 6] = [
    contender(BASELINE, "parking_lot", false),
    Contender { elsewhere: true, ..contender("the same again (A/A)", "parking_lot", false) },
    contender(STD, "std", false),
    contender("rtprof, profiles off", "rtprof", false),
    contender(OURS, "rtprof", true),
    contender("rtprof's adapter over parking_lot, block 1, mutex 1", "adapter", true),
];

/// Nanoseconds by contender: one value per round, all with the same copy.
type Results = [Vec<f64>; CONTENDERS.len()];

/// Measures all kinds and adds their rows.
pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let mut results: [Results; KINDS.len()] = Default::default();
    let mut order = Order::of(CONTENDERS.len());
    for _ in 0..effort.lock_processes {
        let mut child = Child::start(&binaries.path(Build::Plain, "part-lock"))?;
        for ((kind, _), results) in KINDS.iter().zip(&mut results) {
            for round in 0..effort.lock_rounds * COPIES {
                for place in order.next_round() {
                    let nanos = turn(&mut child, kind, &CONTENDERS[place], round % COPIES)?;
                    results[place].push(nanos);
                }
            }
        }
    }
    for ((kind, what), results) in KINDS.iter().zip(&results) {
        for (contender, nanos) in CONTENDERS.iter().zip(results) {
            let row = Row::of(*what, contender.who, nanos, Unit::Nanos);
            let times = ratio(nanos, &results[0]);
            table.add(match (*kind, contender.who) {
                (_, BASELINE) => row.notes(format!("{} pairs, {COPIES} copies of the code", nanos.len())),
                ("mutex", OURS) => {
                    compared(row, nanos, &results[0]).keeps(&MUTEX, times).anchor("Go 1.00 to 1.015×")
                }
                ("mutex", STD) => compared(row, nanos, &results[0]).beside(&MUTEX, STD, times),
                _ => compared(row, nanos, &results[0]),
            });
        }
    }
    Ok(())
}

fn turn(child: &mut Child, kind: &str, contender: &Contender, copy: usize) -> io::Result<f64> {
    let rate = u8::from(contender.on);
    child.ask(&format!("rates {rate} {rate}"))?;
    // Half of the copies further: the same place of a cache line, in another part of memory.
    let copy = if contender.elsewhere { (copy + COPIES / 2) % COPIES } else { copy };
    let [nanos] = child.numbers(&format!("turn {kind} {} {copy} {COUNT}", contender.whose))?;
    Ok(nanos)
}

fn compared(row: Row, nanos: &[f64], baseline: &[f64]) -> Row {
    let of_copy = |values: &[f64], copy: usize| -> Vec<f64> {
        values.iter().copied().skip(copy).step_by(COPIES).collect()
    };
    let by_copy: Vec<f64> =
        (0..COPIES).map(|copy| ratio(&of_copy(nanos, copy), &of_copy(baseline, copy))).collect();
    row.against(BASELINE, nanos, baseline, Unit::Nanos).notes(format!(
        "by copy {:.3} to {:.3}",
        min(&by_copy),
        max(&by_copy)
    ))
}
