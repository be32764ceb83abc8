//! Measures the cost of serving profiles for the program: idle, scraped, and in a storm of clients.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rtprof_benches::statistics::{max, median};

use crate::binaries::{Binaries, Build};
use crate::child::Child;
use crate::effort::Effort;
use crate::table::{Row, Table, Unit};

/// The profiles that Parca and Alloy request by default, without the CPU profile.
const SCRAPED: [&str; 4] = ["allocs", "block", "goroutine", "mutex"];
const CLIENTS: usize = 1000;
/// The maximum number of bytes that scrapes may leave behind.
const LEFT: f64 = (4 << 20) as f64;

/// Measures a service without the server, with it, while it is scraped, and in a storm.
pub(crate) fn measure(binaries: &Binaries, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let seconds = effort.http_seconds;
    let stacks = 2000;
    let mut without = Child::start(&binaries.path(Build::Plain, "part-http"))?;
    without.ask(&format!("fill {stacks}"))?;
    let mut with = Child::start(&binaries.path(Build::Plain, "part-http"))?;
    with.ask(&format!("fill {stacks}"))?;
    let [port] = with.numbers("serve")?;
    let port = port as u16;

    let mut runs = [Latencies::default(), Latencies::default(), Latencies::default()];
    for _ in 0..effort.http_rounds {
        runs[0].add(&mut without, seconds)?;
        runs[1].add(&mut without, seconds)?;
        runs[2].add(&mut with, seconds)?;
    }
    let [base, again, idle] = &runs;
    table.add(base.row("latency of a service, p99", "without a server"));
    table.add(again.row("latency of a service, p99", "the same again (A/A)").against(
        "without a server",
        &again.p99,
        &base.p99,
        Unit::Nanos,
    ));
    table.add(idle.row("latency of a service, p99", "with an idle server").against(
        "without a server",
        &idle.p99,
        &base.p99,
        Unit::Nanos,
    ));
    scrapes(&mut with, port, effort, table)?;
    busy(binaries, stacks, effort, table)?;
    storm(binaries, &mut with, port, effort, table, &base.p99)
}

#[derive(Default)]
struct Latencies {
    p99: Vec<f64>,
    p50: Vec<f64>,
}

impl Latencies {
    fn add(&mut self, child: &mut Child, seconds: usize) -> io::Result<()> {
        let [p50, p99, _] = child.numbers(&format!("work {seconds}"))?;
        self.p50.push(p50 * 1e3);
        self.p99.push(p99 * 1e3);
        Ok(())
    }

    fn row(&self, what: &str, who: &str) -> Row {
        let mut row = Row::of(what, who, &self.p99, Unit::Nanos);
        row.notes = format!("median latency {}", Unit::Nanos.show(median(&self.p50)));
        row
    }
}

/// Measures the CPU time of one scrape of all profiles: the first scrape, which has to find names, and later ones.
fn scrapes(child: &mut Child, port: u16, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let mut first = true;
    let (mut cpu, mut wall, mut bytes) = (vec![], vec![], 0);
    let [resident] = child.numbers("resident")?;
    for _ in 0..=effort.scrapes {
        let [before] = child.numbers("cpu")?;
        let start = Instant::now();
        bytes = SCRAPED.iter().map(|name| fetch(port, name)).sum::<io::Result<usize>>()?;
        let millis = start.elapsed().as_secs_f64() * 1e3;
        let [after] = child.numbers("cpu")?;
        if first {
            let mut row =
                Row::of("scrape of allocs, block, goroutine, mutex", "first", &[millis], Unit::Millis);
            row.notes = format!("finds the names of all functions; {:.1} ms of CPU", after - before);
            table.add(row);
            first = false;
            continue;
        }
        wall.push(millis);
        cpu.push(after - before);
    }
    let mut row = Row::of("scrape of allocs, block, goroutine, mutex", "later, CPU time", &cpu, Unit::Millis);
    let share = median(&cpu) / 10_000.0 * 100.0;
    row.notes =
        format!("{:.1} ms until it is there, {bytes} B; every 10 s: {share:.3} % of a core", median(&wall));
    table.add(row);
    memory(child, port, resident, table)
}

/// Measures how long clients wait while the program keeps all cores busy with two threads each.
fn busy(binaries: &Binaries, stacks: usize, effort: &Effort, table: &mut Table) -> io::Result<()> {
    let mut child = Child::start(&binaries.path(Build::Plain, "part-http"))?;
    child.ask(&format!("fill {stacks}"))?;
    let [port] = child.numbers("serve")?;
    let port = port as u16;
    let threads = 2 * std::thread::available_parallelism()?.get();
    child.ask(&format!("busy {threads}"))?;
    let millis = |names: &[&str]| -> io::Result<f64> {
        let start = Instant::now();
        for name in names {
            fetch(port, name)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    let what = format!("the same, {threads} threads of the program busy");
    // The request of `go tool pprof -seconds=1`, which waits for 6.5 s.
    let first = millis(&["heap?seconds=1"])?;
    table.add(Row::of(&what, "heap?seconds=1, first", &[first], Unit::Millis).budget(
        "≤ 6500 ms",
        first <= 6500.0,
        "",
    ));
    let names = millis(&["heap?debug=1"])?;
    // The names have spent the processor time that answers may take at the program's own priority.
    let later = (0..effort.scrapes).map(|_| millis(&SCRAPED)).collect::<io::Result<Vec<_>>>()?;
    table.add(Row::of(&what, "later, without a pause", &later, Unit::Millis).notes(format!(
        "at most {}, as answers beyond their share of a core give way to the program; heap as text before, until all \
         names were found: {}",
        Unit::Millis.show(max(&later)),
        Unit::Millis.show(names)
    )));
    // As a service that is scraped every ten seconds, where they take a tenth of their share.
    std::thread::sleep(Duration::from_secs(effort.http_rest));
    let scrape = |_| {
        let took = millis(&SCRAPED);
        std::thread::sleep(Duration::from_secs(1));
        took
    };
    let later = (0..effort.scrapes).map(scrape).collect::<io::Result<Vec<_>>>()?;
    let most = max(&later);
    let row = Row::of(&what, "later, a second apart", &later, Unit::Millis);
    table.add(
        row.budget("≤ 1000 ms", most <= 1000.0, "").notes(format!("at most {}", Unit::Millis.show(most))),
    );
    Ok(())
}

/// Measures the memory that scrapes leave behind in the program, and then that of all other profiles and a trace.
fn memory(child: &mut Child, port: u16, before: f64, table: &mut Table) -> io::Result<()> {
    let mut row = |who: &str, child: &mut Child| -> io::Result<()> {
        let [after] = child.numbers("resident")?;
        let kept = after - before;
        let what = "memory kept by a service after scrapes";
        let notes = format!("{} before", Unit::MebiBytes.show(before));
        let row = Row::of(what, who, &[kept], Unit::MebiBytes).notes(notes);
        table.add(row.budget("≤ 4 MiB", kept <= LEFT, ""));
        Ok(())
    };
    row("allocs, block, goroutine, mutex", child)?;
    for name in ["heap", "threadcreate", "heap?debug=1", "mutex?debug=1", "trace?seconds=1"] {
        fetch(port, name)?;
    }
    row("and heap, threadcreate, two as text, and a trace of a second", child)
}

fn fetch(port: u16, name: &str) -> io::Result<usize> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(stream, "GET /debug/pprof/{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if !answer.starts_with(b"HTTP/1.1 200") {
        return Err(io::Error::other(format!(
            "{name} is not answered: {}",
            String::from_utf8_lossy(&answer)
        )));
    }
    Ok(answer.len())
}

fn storm(
    binaries: &Binaries,
    child: &mut Child,
    port: u16,
    effort: &Effort,
    table: &mut Table,
    base: &[f64],
) -> io::Result<()> {
    let seconds = effort.storm_seconds;
    let [before] = child.numbers("resident")?;
    let clients = Command::new(binaries.path(Build::Plain, "part-storm"))
        .args([format!("127.0.0.1:{port}"), CLIENTS.to_string(), (seconds + 2).to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    std::thread::sleep(Duration::from_secs(1));
    let mut during = Latencies::default();
    during.add(child, seconds)?;
    let [peak] = child.numbers("resident")?;
    let tally = clients.wait_with_output()?;
    // Until the server has noticed that the last clients are gone, and idle threads have ended.
    std::thread::sleep(Duration::from_secs(20));
    let [after] = child.numbers("resident")?;
    let [threads] = child.numbers("threads")?;
    let what = format!("the same, {CLIENTS} clients at once, half slow or broken");
    let mut row = during.row(&what, "p99").against("without a server", &during.p99, &base[..1], Unit::Nanos);
    let ratio = median(&during.p99) / median(base);
    row = row.budget("≤ 2×", ratio <= 2.0, "");
    let words: Vec<String> =
        String::from_utf8_lossy(&tally.stdout).split_whitespace().map(str::to_owned).collect();
    let [answered, refused, unanswered, wrong] = &words[..] else {
        return Err(io::Error::other("the storm ended without a tally"));
    };
    row.notes = format!(
        "{} at the median; {seconds} s; of the others' requests {answered} answered, {refused} refused, {unanswered} not \
         in time, {wrong} wrongly; resident {} before, {} during, {} after; {threads} threads of the server left",
        Unit::Nanos.show(median(&during.p50)),
        Unit::MebiBytes.show(before),
        Unit::MebiBytes.show(peak),
        Unit::MebiBytes.show(after),
    );
    table.add(row);
    Ok(())
}
