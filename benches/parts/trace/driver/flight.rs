//! Measures a flight recorder that is always on.

use std::io;

use rtprof_benches::statistics::median;

use crate::binaries::{Binaries, Build};
use crate::child::Child;
use crate::effort::Effort;
use crate::order::Order;
use crate::table::{Row, Table, Unit};

/// Regions in a measurement, and the frames of their stacks.
const COUNT: usize = 30_000;
const FRAMES: usize = 10;

/// Names, and the requests that begin and end recording.
const CONTENDERS: [(&str, [&str; 2]); 4] = [
    ("trace on", ["begin", "end"]),
    (super::AGAIN, ["begin", "end"]),
    ("trace on, first format", ["begin-v1", "end"]),
    (FLIGHT, ["fly", "land"]),
];
const FLIGHT: &str = "flight recorder on";

/// Nanoseconds of the jobs of a pool.
const JOB: usize = 10_000;

/// Measures regions, and a pool for longer than the window, and adds their rows.
pub(super) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    regions(binaries, effort, table)?;
    window(binaries, effort, table)
}

fn regions(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let mut nanos: [Vec<f64>; CONTENDERS.len()] = Default::default();
    let mut order = Order::of(CONTENDERS.len());
    for way in 0..effort.trace_processes {
        let start = |(_, [begin, _]): (&str, [&str; 2])| {
            let mut child = Child::start(&binaries.path(Build::Plain, "part-trace"))?;
            let [depth, _] = child.numbers(&format!("depth pair {way} {FRAMES}"))?;
            child.ask(begin)?;
            child.ask("warm")?;
            io::Result::Ok((child, format!("event pair {way} {depth} 1 {COUNT}")))
        };
        let mut children = CONTENDERS.map(start).into_iter().collect::<io::Result<Vec<_>>>()?;
        for _ in 0..effort.trace_rounds {
            for place in order.next_round() {
                let (child, request) = &mut children[place];
                let [value] = child.numbers(request)?;
                nanos[place].push(value);
            }
        }
        for ((child, _), (_, [_, end])) in children.iter_mut().zip(CONTENDERS) {
            let [_, _, _, dropped] = child.numbers(end)?;
            if dropped > 0.0 {
                return Err(io::Error::other(format!("{dropped} events were dropped")));
            }
        }
    }
    let what = format!("a region, which is two events, {FRAMES} frames");
    for (place, (who, _)) in CONTENDERS.iter().enumerate() {
        let row = Row::of(&what, *who, &nanos[place], Unit::Nanos);
        table.add(match place {
            0 => row,
            _ if *who == FLIGHT => {
                row.against(CONTENDERS[0].0, &nanos[place], &nanos[0], Unit::Nanos).anchor("Go 1.27 150 ns")
            }
            _ => row.against(CONTENDERS[0].0, &nanos[place], &nanos[0], Unit::Nanos),
        });
    }
    Ok(())
}

fn window(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let (mut uses, mut peaks, mut writes) = (vec![], vec![], [vec![], vec![]]);
    let mut counts = [0.0; 2];
    let (mut of_recording, mut of_window, mut of_file) = (String::new(), String::new(), String::new());
    for _ in 0..effort.long_traces {
        let mut child = Child::start(&binaries.path(Build::Plain, "part-trace"))?;
        let [events, recorded, dropped, memory, file, peak, took, used, first, later] =
            child.numbers(&format!("flight {JOB} {}", effort.flight_millis))?;
        uses.push(used);
        peaks.push(peak);
        writes[0].push(first / 1e6);
        writes[1].push(later / 1e6);
        counts = [counts[0] + events, counts[1] + dropped];
        let seconds = took / 1e9;
        of_recording = format!(
            "{:.0} thousand events a second for {seconds:.0} s: {:.1} MB/s in the buffers, {:.1} % of a core",
            events / seconds / 1e3,
            recorded / seconds / 1e6,
            used * events / took * 100.0,
        );
        of_window = format!("the window takes {:.1} MiB of it", memory / f64::from(1 << 20));
        of_file = format!("the file has {:.1} MB", file / 1e6);
    }
    let what = |of: &str| format!("flight recorder, pool with jobs of {} µs: {of}", JOB / 1000);
    let who = "default options";
    table.add(
        Row::of(what("encoding of an event"), who, &uses, Unit::Nanos)
            .samples(counts)
            .budget("none dropped", counts[1] == 0.0, "")
            .notes(of_recording),
    );
    table.add(Row::of(what("memory at the peak"), who, &peaks, Unit::MebiBytes).notes(of_window));
    let first = Unit::Millis.show(median(&writes[0]));
    table.add(
        Row::of(what("writing of the window"), who, &writes[1], Unit::Millis)
            .anchor("Go 1.27 5 to 16 ms, of a quarter as many events")
            .notes(format!("{of_file}; the first time {first}, with the program's debug information")),
    );
    Ok(())
}
