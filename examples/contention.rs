//! Counts the words of the Rust documentation on this machine with four threads that get in each other's
//! way, and writes profiles that show where.
//!
//! ```sh
//! cargo run --release --example contention            # about 24 MiB of text
//! cargo run --release --example contention -- 100     # about 100 MiB
//! ```
//!
//! Three things are wrong with it:
//!
//! - `Totals::merge`: every thread adds every page to one table behind one mutex, and holds it for the whole
//!   page: the hot mutex.
//! - `Ignored::reload`: once in a while the list of ignored words is read anew, with the reader-writer lock held
//!   for writing all the while: the slow one.
//! - `archive`: a thread for what is finished, to which hardly anything is sent: the starving channel.
//!
//! The mutex profile names the first two, by who makes others wait; the block profile names all three, by who
//! waits.

mod corpus;

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rtprof::pprof::{ContentionTopEntry, block_top, mutex_top};
use rtprof::sync::mpsc::{Receiver, Sender, channel};
use rtprof::sync::{Mutex, RwLock};
use rtprof::thread;

use corpus::{MIB, plain_text, words};

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

const THREADS: usize = 4;
/// A page in so many is sent to the archive.
const ARCHIVED: usize = 200;

static TOTALS: Mutex<Totals> = Mutex::new(Totals { words: None });
static IGNORED: Ignored = Ignored { words: RwLock::new(None) };

fn main() -> Result<(), Box<dyn Error>> {
    // Every wait and every contended unlock. In production: rtprof::set_block_profile_rate(10_000) and
    // rtprof::set_mutex_profile_fraction(10), see docs/contention.md.
    rtprof::set_block_profile_rate(1);
    rtprof::set_mutex_profile_fraction(1);

    let budget = corpus::budget(24)?;
    let root = corpus::source();
    let work =
        Work { pages: corpus::pages(&root), next: AtomicUsize::new(0), left: AtomicUsize::new(budget) };
    let start = Instant::now();
    let (read, archived) = count(&work)?;
    println!(
        "counted {} words of {} pages, {:.1} MiB of {}, archived {archived}, in {:.1?}",
        TOTALS.lock().words.iter().map(HashMap::len).sum::<usize>(),
        work.next.load(Ordering::Relaxed).min(work.pages.len()),
        read as f64 / MIB as f64,
        root.display(),
        start.elapsed(),
    );

    for name in ["block", "mutex"] {
        let profile = rtprof::pprof::lookup(name).ok_or("the profile is built in")?;
        profile.write_to(&mut File::create(format!("{name}.pb.gz"))?, 0)?;
    }
    print_top("who waited", &block_top(5));
    print_top("who made others wait", &mutex_top(5));
    println!("\nWrote block.pb.gz and mutex.pb.gz. Look at them with:\n");
    println!("    go tool pprof -top mutex.pb.gz");
    println!("    go tool pprof -http=localhost:8080 block.pb.gz");
    Ok(())
}

/// Pages that nobody has taken yet.
struct Work {
    pages: Vec<PathBuf>,
    next: AtomicUsize,
    /// Bytes that may still be read.
    left: AtomicUsize,
}

impl Work {
    fn take(&self) -> Option<String> {
        loop {
            if self.left.load(Ordering::Relaxed) == 0 {
                return None;
            }
            let path = self.pages.get(self.next.fetch_add(1, Ordering::Relaxed))?;
            let Ok(raw) = fs::read(path) else { continue };
            let spent = |left: usize| Some(left.saturating_sub(raw.len()));
            let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent);
            return Some(String::from_utf8_lossy(&raw).into_owned());
        }
    }
}

/// Returns the bytes that were read, and the pages that were archived.
fn count(work: &Work) -> Result<(usize, usize), Box<dyn Error>> {
    let done = AtomicBool::new(false);
    let (finished, pages) = channel();
    thread::scope(|scope| {
        let archivist =
            thread::Builder::new().name("archivist".into()).spawn_scoped(scope, || archive(pages))?;
        thread::Builder::new().name("reloader".into()).spawn_scoped(scope, || keep_reloading(&done))?;
        let mut counters = Vec::new();
        for i in 0..THREADS {
            let (name, finished) = (format!("counter {i}"), finished.clone());
            counters
                .push(thread::Builder::new().name(name).spawn_scoped(scope, || count_pages(work, finished))?);
        }
        drop(finished);
        let mut read = 0;
        for counter in counters {
            read += counter.join().map_err(|_| "a counting thread panicked")?;
        }
        done.store(true, Ordering::Relaxed);
        let archived = archivist.join().map_err(|_| "the archivist panicked")?;
        Ok((read, archived))
    })
}

fn count_pages(work: &Work, finished: Sender<String>) -> usize {
    let mut read = 0;
    let mut pages = 0;
    while let Some(page) = work.take() {
        read += page.len();
        pages += 1;
        let text = plain_text(&page);
        let counts = IGNORED.count_others(&text);
        TOTALS.lock().merge(&counts);
        if pages % (ARCHIVED / THREADS) == 0 {
            // Fails when nobody archives any more, and then nobody misses it.
            let _ = finished.send(text);
        }
    }
    read
}

/// How often each word was seen.
struct Totals {
    words: Option<HashMap<String, u32>>,
}

impl Totals {
    #[inline(never)]
    fn merge(&mut self, counts: &HashMap<&str, u32>) {
        let words = self.words.get_or_insert_default();
        for (&word, &count) in counts {
            match words.get_mut(word) {
                Some(total) => *total += count,
                None => {
                    words.insert(word.to_owned(), count);
                }
            }
        }
    }
}

/// Words that are not worth counting.
struct Ignored {
    words: RwLock<Option<HashSet<String>>>,
}

impl Ignored {
    /// Counts the words of a page that are not ignored.
    #[inline(never)]
    fn count_others<'a>(&self, text: &'a str) -> HashMap<&'a str, u32> {
        let ignored = self.words.read();
        let mut counts = HashMap::new();
        for word in words(text) {
            if !ignored.as_ref().is_some_and(|ignored| ignored.contains(word)) {
                *counts.entry(word).or_default() += 1;
            }
        }
        counts
    }

    /// Makes the list anew: all numbers up to 100,000, the slow way.
    #[inline(never)]
    fn reload(&self) {
        let mut words = self.words.write();
        *words = Some((0..100_000).map(|number| number.to_string()).collect());
    }
}

fn keep_reloading(done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        IGNORED.reload();
        thread::sleep(Duration::from_millis(50));
    }
}

/// Keeps pages; returns how many there were.
#[inline(never)]
fn archive(pages: Receiver<String>) -> usize {
    let mut archive: Vec<String> = Vec::new();
    for page in pages {
        archive.push(page);
    }
    archive.len()
}

fn print_top(what: &str, entries: &[ContentionTopEntry]) {
    println!("\n{:>10} {:>10}  {what}", "delay", "waits");
    for entry in entries {
        println!("{:>10.1?} {:>10}  {}", entry.delay, entry.contentions, entry.function);
    }
}
