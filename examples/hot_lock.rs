//! Counts the words of the Rust documentation on this machine with four threads that block each other, and writes
//! profiles that show where.
//!
//! ```sh
//! cargo run --release --example hot_lock            # about 48 MiB of text
//! cargo run --release --example hot_lock -- 100     # about 100 MiB
//! ```
//!
//! The program has three faults:
//!
//! - `count_page`, the hot mutex: every thread counts into one table behind one mutex, which it holds for the whole
//!   page.
//! - `Ignored::reload`, the slow writer: the list of ignored words is made again and again, with the reader-writer lock
//!   held for writing all the while.
//! - `archive`, the starving channel: the main thread waits for finished pages, of which hardly any are sent.
//!
//! The mutex profile names the first two, by the stacks that made others wait; the block profile names all three, by
//! the stacks that waited.

mod corpus;

use std::collections::{BTreeMap, HashSet};
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
/// One page in this many is sent to the archive.
const ARCHIVED: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    // Records every wait and every contended unlock. In production: rtprof::set_block_profile_rate(10_000) and
    // rtprof::set_mutex_profile_fraction(10), see docs/contention.md.
    rtprof::set_block_profile_rate(1);
    rtprof::set_mutex_profile_fraction(1);

    let budget = corpus::budget(48)?;
    let root = corpus::source();
    let work =
        Work { pages: corpus::pages(&root), next: AtomicUsize::new(0), left: AtomicUsize::new(budget) };
    let start = Instant::now();
    let (read, archived) = count(&work)?;
    println!(
        "counted {} words of {} pages, {:.1} MiB of {}, archived {archived}, in {:.1?}",
        TOTALS.lock().len(),
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

/// The pages that are still to be counted.
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

/// Returns the number of bytes that were read, and of pages that were archived.
fn count(work: &Work) -> Result<(usize, usize), Box<dyn Error>> {
    let done = AtomicBool::new(false);
    let (finished, pages) = channel();
    thread::scope(|scope| {
        let reloader = thread::Builder::new().name("reloader".into());
        reloader.spawn_scoped(scope, || keep_reloading(&done))?;
        let mut counters = Vec::new();
        for i in 0..THREADS {
            let counter = thread::Builder::new().name(format!("counter {i}"));
            let finished = finished.clone();
            counters.push(counter.spawn_scoped(scope, || count_pages(work, finished))?);
        }
        drop(finished);
        let archived = archive(pages);
        done.store(true, Ordering::Relaxed);
        let mut read = 0;
        for counter in counters {
            read += counter.join().map_err(|_| "a counting thread panicked")?;
        }
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
        count_page(&IGNORED.others(&text));
        if pages % (ARCHIVED / THREADS) == 0 {
            // Fails if the archive has stopped; the page is then not needed.
            let _ = finished.send(text);
        }
    }
    read
}

/// The count of each word.
static TOTALS: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

#[inline(never)]
fn count_page(words: &[&str]) {
    let mut totals = TOTALS.lock();
    for &word in words {
        match totals.get_mut(word) {
            Some(total) => *total += 1,
            None => {
                totals.insert(word.to_owned(), 1);
            }
        }
    }
}

/// The words that are not counted.
struct Ignored {
    words: RwLock<Option<HashSet<String>>>,
}

static IGNORED: Ignored = Ignored { words: RwLock::new(None) };

impl Ignored {
    /// Returns the words of a page that are not ignored.
    #[inline(never)]
    fn others<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let ignored = self.words.read();
        let is_ignored = |word: &str| ignored.as_ref().is_some_and(|ignored| ignored.contains(word));
        words(text).filter(|word| !is_ignored(word)).collect()
    }

    /// Makes the list again: all numbers up to 10,000.
    #[inline(never)]
    fn reload(&self) {
        let mut words = self.words.write();
        *words = Some((0..10_000).map(|number| number.to_string()).collect());
    }
}

fn keep_reloading(done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        IGNORED.reload();
        thread::sleep(Duration::from_millis(20));
    }
}

/// Stores pages, and returns their number.
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
