//! Measures what rtprof costs programs that it is added to as README says: a file server, and threads that talk.

use std::io;
use std::time::Duration;

use rtprof_benches::file_client::{Files, load};
use rtprof_benches::statistics::percentile;

use crate::binaries::{Binaries, Build};
use crate::child::Child;
use crate::effort::Effort;
use crate::limit::{Limit, Measured};
use crate::order::Order;
use crate::table::{Row, Table, Unit};

/// A contender: a process that is set up once.
struct Contender {
    who: &'static str,
    binary: &'static str,
    mode: &'static str,
    /// Whether it takes part where no task is involved.
    talks: bool,
}

const WITH: &str = "part-service";
const WITHOUT: &str = "part-service-without";

const BASELINE: usize = 0;
const OFF: usize = 2;
const DEFAULTS: usize = 3;

const CONTENDERS: [Contender; 10] = [
    Contender { who: "without rtprof", binary: WITHOUT, mode: "without", talks: true },
    Contender { who: "the same again (A/A)", binary: WITHOUT, mode: "without", talks: true },
    Contender { who: "RTPROF=off", binary: WITH, mode: "off", talks: true },
    Contender { who: "init's defaults", binary: WITH, mode: "defaults", talks: true },
    Contender { who: "heap alone", binary: WITH, mode: "heap", talks: true },
    Contender { who: "tasks alone", binary: WITH, mode: "tasks", talks: false },
    Contender { who: "block 10000 alone", binary: WITH, mode: "block", talks: true },
    Contender { who: "mutex 10 alone", binary: WITH, mode: "mutex", talks: true },
    Contender { who: "a trace", binary: WITH, mode: "trace", talks: true },
    Contender { who: "a CPU profile at 100 Hz", binary: WITH, mode: "cpu", talks: true },
];

/// By contender: one value per round.
type Values = [Vec<f64>; CONTENDERS.len()];

/// The builds of each contender.
const BUILDS: [(&str, Build, Build); 2] = [
    ("frame pointers", Build::Plain, Build::Interposed),
    ("no frame pointers", Build::NoFramePointers, Build::InterposedNoFramePointers),
];

/// Loads of the file server: clients that never rest, and clients that leave the server about half idle.
const LOADS: [(&str, Duration); 2] =
    [("file server", Duration::ZERO), ("file server, half idle", Duration::from_millis(2))];

/// How many times as long as a round a file server is loaded before the first.
const WARM_UP: u32 = 3;

/// Threads that talk, and the messages of about a millisecond.
const CHATS: [(&str, &str, u64); 3] = [
    ("channel of std, 200,000 messages a second", "std-channel", 200),
    ("channel of crossbeam, 200,000 messages a second", "crossbeam-channel", 200),
    ("a contended Mutex of std", "std-mutex", 400),
];

pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let files = Files::make()?;
    for (pointers, plain, interposed) in BUILDS.into_iter().take(effort.adopter_builds) {
        let start = |contender: &Contender| {
            let build = if contender.binary == WITH { interposed } else { plain };
            Child::start(&binaries.path(build, contender.binary))
        };
        for (name, pause) in LOADS {
            file_server(&files, effort, start, pause)?.add_to(table, &format!("{name}, {pointers}"));
        }
        for (name, chat, each_millisecond) in CHATS {
            let count = each_millisecond * effort.adopter_millis;
            let values = talk(effort, start, &format!("chat {chat} {count}"))?;
            add(
                table,
                &format!("{name}, {pointers}: CPU time of one"),
                &values,
                1.0,
                &[(OFF, 1.005), (DEFAULTS, 1.03)],
            );
        }
    }
    Ok(())
}

/// What a load of the file server gives.
#[derive(Default)]
struct Served {
    /// Microseconds of processor time for one request.
    used: Values,
    /// Latencies in microseconds.
    medians: Values,
    late: Values,
}

impl Served {
    fn add_to(&self, table: &mut Table, what: &str) {
        let times = [
            ("CPU time of a request", &self.used, &[(OFF, 1.005), (DEFAULTS, 1.02)][..]),
            ("median latency", &self.medians, &[(DEFAULTS, 1.02)]),
            ("p99 of it", &self.late, &[(DEFAULTS, 1.05)]),
        ];
        for (figure, values, limits) in times {
            add(table, &format!("{what}: {figure}"), values, MICROS, limits);
        }
    }
}

/// Nanoseconds.
const MICROS: f64 = 1e3;

fn file_server(
    files: &Files,
    effort: &Effort,
    start: impl Fn(&Contender) -> io::Result<Child>,
    pause: Duration,
) -> io::Result<Served> {
    let mut served = Served::default();
    let mut order = Order::of(CONTENDERS.len());
    let duration = Duration::from_millis(effort.adopter_millis);
    for _ in 0..effort.adopter_processes {
        let mut children = vec![];
        for contender in &CONTENDERS {
            let mut child = start(contender)?;
            let [port] = child.numbers(&format!("files {} {}", contender.mode, files.path().display()))?;
            // The first requests start threads, fill caches and lead to the first samples.
            load(port as u16, duration * WARM_UP, pause)?;
            children.push((child, port as u16));
        }
        for _ in 0..effort.adopter_rounds {
            for place in order.next_round() {
                let (child, port) = &mut children[place];
                let [before] = child.numbers("used")?;
                let latencies = load(*port, duration, pause)?;
                let [after] = child.numbers("used")?;
                served.used[place].push((after - before) * 1e3 / latencies.len() as f64);
                served.medians[place].push(percentile(&latencies, 50.0));
                served.late[place].push(percentile(&latencies, 99.0));
            }
        }
    }
    Ok(served)
}

/// Returns the nanoseconds of one message.
fn talk(
    effort: &Effort,
    start: impl Fn(&Contender) -> io::Result<Child>,
    request: &str,
) -> io::Result<Values> {
    let mut values = Values::default();
    let mut order = Order::of(CONTENDERS.len());
    for _ in 0..effort.adopter_processes {
        let mut children = vec![];
        for contender in &CONTENDERS {
            let mut child = start(contender)?;
            child.ask(&format!("talk {}", contender.mode))?;
            children.push(child);
        }
        for _ in 0..effort.adopter_rounds {
            for place in order.next_round().filter(|&place| CONTENDERS[place].talks) {
                let [nanos] = children[place].numbers(request)?;
                values[place].push(nanos);
            }
        }
    }
    Ok(values)
}

/// Adds a row for each contender, with the limits of some as multiples of the baseline.
fn add(table: &mut Table, what: &str, values: &Values, scale: f64, limits: &[(usize, f64)]) {
    let in_nanos = |place: usize| values[place].iter().map(|value| value * scale).collect::<Vec<_>>();
    let baseline = in_nanos(BASELINE);
    for (place, contender) in CONTENDERS.iter().enumerate() {
        let nanos = in_nanos(place);
        if nanos.is_empty() {
            continue;
        }
        let row = Row::of(what, contender.who, &nanos, Unit::Nanos);
        if place == BASELINE {
            table.add(row.notes(format!("{} rounds", nanos.len())));
            continue;
        }
        let row = row.against(CONTENDERS[BASELINE].who, &nanos, &baseline, Unit::Nanos);
        let limit = limits.iter().find(|(whose, _)| *whose == place);
        table.add(match limit {
            Some((_, most)) => row.within(&Limit::times(*most), Measured::ratio(&nanos, &baseline)),
            None => row,
        });
    }
}
