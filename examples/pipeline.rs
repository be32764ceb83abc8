//! Sends the Rust documentation on this machine through a pipeline of threads, and records a trace for `go tool trace`,
//! or for Perfetto.
//!
//! ```sh
//! cargo run --release --example pipeline            # about 24 MiB of text
//! cargo run --release --example pipeline -- 100     # about 100 MiB
//! cargo run --release --example pipeline -- 24 perfetto
//! ```
//!
//! ```text
//!   reader ──(pages)──► parser 0…2 ──(counts)──► merger ──(batches)──► writer
//!                          └── the table of all words, behind one mutex: hot
//! ```
//!
//! Each page is a task, from its file to its line in the report, across all of these threads. The steps of a page are
//! regions: `read`, `parse`, `merge`, `write`. The heap grows with the table of words. The writer makes system calls
//! that wait for the disk. CPU samples show what the threads compute.

mod corpus;

use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use rtprof::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use rtprof::sync::{Arc, Mutex};
use rtprof::thread;
use rtprof::trace::{self, Format, Options, Task};

use corpus::{MIB, plain_text, words};

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

const PARSERS: usize = 3;
/// The maximum number of pages that wait for a parser.
const WAITING: usize = 8;
/// Pages in a batch of the report.
const BATCH: usize = 64;

/// A page that was read.
struct Page {
    task: Task,
    name: String,
    text: String,
}

/// A page that was parsed.
struct Parsed {
    task: Task,
    name: String,
    counts: HashMap<String, usize>,
}

/// The count of each word in all pages. The parsers contend for this lock.
static SEEN: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);

fn main() -> Result<(), Box<dyn Error>> {
    let budget = corpus::budget(24)?;
    let format = match std::env::args().nth(2) {
        Some(name) => Format::from_name(&name).ok_or_else(|| {
            let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
            format!("{name} is no format of traces; the formats are {}", names.join(", "))
        })?,
        None => Format::default(),
    };
    let file = if format == Format::Perfetto { "trace.perfetto-trace" } else { "trace.out" };
    let files = corpus::pages(&corpus::source());
    // The trace shows this goal above the curve of the heap, which samples of 64 KiB draw.
    rtprof::set_heap_goal(16 << 20);
    rtprof::set_mem_profile_rate(64 << 10);

    // Beside the waits of threads the trace shows what they compute, by 500 samples in a second of a thread's processor
    // time.
    let options = Options { format, cpu_hz: 500, ..Options::default() };
    trace::start_with(File::create(file)?, options)?;
    let (pages, lines) = run(files, budget)?;
    let stats = trace::stop()?;

    println!(
        "{pages} pages, {} words, {lines} lines of report",
        SEEN.lock().as_ref().map_or(0, HashMap::len)
    );
    println!(
        "Wrote {file}: {} events in {:.1} MiB over {:.1?}, {} dropped. Look at it with:\n",
        stats.events,
        stats.bytes as f64 / MIB as f64,
        stats.duration,
        stats.dropped_events,
    );
    if format == Format::Perfetto {
        println!(
            "    https://ui.perfetto.dev, \"Open trace file\": the browser reads it, and sends it nowhere"
        );
    } else {
        println!("    go tool trace {file}");
        println!("    go tool trace -pprof=sync {file} > sync.pb.gz && go tool pprof -top sync.pb.gz");
    }
    Ok(())
}

/// Returns the number of pages that went through, and of lines that were written.
fn run(files: Vec<PathBuf>, budget: usize) -> Result<(usize, usize), Box<dyn Error>> {
    let (to_parsers, pages) = sync_channel(WAITING);
    let (to_merger, parsed) = channel();
    let (to_writer, batches) = channel();
    // All parsers share one receiver.
    let pages = Arc::new(Mutex::new(pages));

    let reader = named("reader").spawn(move || read(files, budget, &to_parsers))?;
    let mut parsers = Vec::new();
    for i in 0..PARSERS {
        let (pages, to_merger) = (pages.clone(), to_merger.clone());
        parsers.push(named(&format!("parser {i}")).spawn(move || parse(&pages, &to_merger))?);
    }
    drop(to_merger);
    let merger = named("merger").spawn(move || merge(&parsed, &to_writer))?;
    let writer = named("writer").spawn(move || write(&batches))?;

    let pages = reader.join().map_err(|_| "the reader panicked")?;
    for parser in parsers {
        parser.join().map_err(|_| "a parser panicked")?;
    }
    merger.join().map_err(|_| "the merger panicked")?;
    let lines = writer.join().map_err(|_| "the writer panicked")??;
    Ok((pages, lines))
}

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.into())
}

fn read(files: Vec<PathBuf>, budget: usize, to_parsers: &SyncSender<Page>) -> usize {
    let (mut left, mut sent) = (budget, 0);
    for path in files {
        if left == 0 {
            break;
        }
        let task = Task::new("page");
        let read = trace::with_region("read", || trace::syscall(|| fs::read(&path)));
        let Ok(raw) = read else { continue };
        left = left.saturating_sub(raw.len());
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = String::from_utf8_lossy(&raw).into_owned();
        if to_parsers.send(Page { task, name, text }).is_err() {
            break;
        }
        sent += 1;
    }
    sent
}

fn parse(pages: &Mutex<Receiver<Page>>, to_merger: &Sender<Parsed>) {
    loop {
        let page = pages.lock().recv();
        let Ok(Page { task, name, text }) = page else { return };
        let entered = task.enter();
        let counts = trace::with_region("parse", || remember(&plain_text(&text)));
        drop(entered);
        if to_merger.send(Parsed { task, name, counts }).is_err() {
            return;
        }
    }
}

/// Returns the count of each word in a page. The hot lock is held while a whole page is counted.
fn remember(page: &str) -> HashMap<String, usize> {
    let mut seen = SEEN.lock();
    let seen = seen.get_or_insert_default();
    let mut counts = HashMap::new();
    for word in words(page) {
        let word = word.to_lowercase();
        *seen.entry(word.clone()).or_default() += 1;
        *counts.entry(word).or_default() += 1;
    }
    counts
}

fn merge(parsed: &Receiver<Parsed>, to_writer: &Sender<String>) {
    let mut batch = (0, String::new());
    for Parsed { task, name, counts } in parsed {
        let _entered = task.enter();
        trace::with_region("merge", || {
            let most = counts.iter().max_by_key(|(word, n)| (**n, word.len()));
            if let Some((word, n)) = most {
                trace::log("most frequent", word);
                batch.1 += &format!("{name}: {n} times {word}\n");
                batch.0 += 1;
            }
        });
        if batch.0 == BATCH && to_writer.send(std::mem::take(&mut batch).1).is_err() {
            return;
        }
    }
    let _ = to_writer.send(batch.1);
}

fn write(batches: &Receiver<String>) -> std::io::Result<usize> {
    let path = std::env::temp_dir().join(format!("rtprof-report-{}", std::process::id()));
    let mut report = File::create(&path)?;
    let mut lines = 0;
    for batch in batches {
        let _region = trace::start_region("write");
        lines += batch.lines().count();
        trace::syscall(|| report.write_all(batch.as_bytes()).and_then(|()| report.sync_data()))?;
    }
    fs::remove_file(path)?;
    Ok(lines)
}
