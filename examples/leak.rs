//! Indexes the Rust documentation on this machine (or this repository, if the documentation is missing) again and again,
//! as a search service does, leaks some memory on purpose, and writes its own heap profile.
//!
//! ```sh
//! cargo run --release --example leak            # about 96 MiB of text
//! cargo run --release --example leak -- 200     # about 200 MiB
//! ```
//!
//! Each round replaces the index, so what it holds (`Index::add`, and the list of files in `collect`) stays the same.
//! `remember_page`, the leak, copies every page into a list that is never emptied: it grows with each round.

mod corpus;

use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use corpus::{MIB, plain_text, words};
use rtprof::pprof::heap_top;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

/// How often everything is indexed.
const ROUNDS: usize = 4;

/// The leak: pages for a "recently seen" list whose reader was never written.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn main() -> Result<(), Box<dyn Error>> {
    let budget = corpus::budget(96)?;
    let root = corpus::source();
    let files = corpus::pages(&root);

    let start = Instant::now();
    let mut index = Index::default();
    let mut first_round = HashMap::new();
    for round in 1..=ROUNDS {
        drop(index);
        let (built, bytes) = build(&files, budget / ROUNDS);
        index = built;
        println!(
            "round {round}: {} files, {:.1} MiB of {}, {} words, after {:.1?}",
            index.pages.len(),
            bytes as f64 / MIB as f64,
            root.display(),
            index.words.len(),
            start.elapsed(),
        );
        index.forget_rare_words(3);
        if round == 1 {
            let entries = heap_top(usize::MAX).into_iter();
            first_round = entries.map(|entry| (entry.function, entry.inuse_space)).collect();
        }
    }

    rtprof::pprof::write_heap_profile(File::create("heap.pb.gz")?)?;
    let allocs = rtprof::pprof::lookup("allocs").ok_or("the allocs profile is built in")?;
    allocs.write_to(&mut File::create("allocs.pb.gz")?, 0)?;

    print_top(7, &first_round);
    println!("\nWrote heap.pb.gz and allocs.pb.gz. Look at them with:\n");
    println!("    go tool pprof -top heap.pb.gz");
    println!("    go tool pprof -http=localhost:8080 allocs.pb.gz");
    // The index is alive until here, so that the profile shows it in use.
    drop(index);
    Ok(())
}

/// The pages in which each word occurs.
#[derive(Default)]
struct Index {
    pages: Vec<PathBuf>,
    words: HashMap<String, Vec<Posting>>,
}

struct Posting {
    page: u32,
    count: u32,
}

/// Builds the index with two threads, until `budget` bytes are read. Returns the bytes read.
fn build(files: &[PathBuf], budget: usize) -> (Index, usize) {
    let halves = files.split_at(files.len() / 2);
    let (mut index, more) = std::thread::scope(|scope| {
        let second = scope.spawn(|| build_part(halves.1, budget / 2));
        (build_part(halves.0, budget / 2), second.join().expect("the indexing thread panicked"))
    });
    let first_page = index.0.pages.len() as u32;
    index.0.pages.extend(more.0.pages);
    for (word, postings) in more.0.words {
        let moved = postings.into_iter().map(|p| Posting { page: p.page + first_page, ..p });
        index.0.words.entry(word).or_default().extend(moved);
    }
    (index.0, index.1 + more.1)
}

fn build_part(files: &[PathBuf], budget: usize) -> (Index, usize) {
    let mut index = Index::default();
    let mut bytes = 0;
    for path in files {
        if bytes >= budget {
            break;
        }
        let Ok(raw) = fs::read(path) else { continue };
        bytes += raw.len();
        let text = plain_text(&String::from_utf8_lossy(&raw));
        remember_page(&text);
        index.add(path, &text);
    }
    (index, bytes)
}

#[inline(never)]
fn remember_page(text: &str) {
    let page = text.to_owned();
    SEEN.lock().expect("no thread panics while it holds the lock").push(page);
}

impl Index {
    #[inline(never)]
    fn add(&mut self, path: &Path, text: &str) {
        let page = self.pages.len() as u32;
        self.pages.push(path.to_owned());
        let mut counts: HashMap<&str, u32> = HashMap::new();
        for word in words(text) {
            *counts.entry(word).or_default() += 1;
        }
        for (word, count) in counts {
            match self.words.get_mut(word) {
                Some(postings) => postings.push(Posting { page, count }),
                None => {
                    self.words.insert(word.to_owned(), vec![Posting { page, count }]);
                }
            }
        }
    }

    /// Frees the words that occur fewer than `least` times. The allocs profile shows these allocations, and the heap
    /// profile does not.
    #[inline(never)]
    fn forget_rare_words(&mut self, least: u32) {
        self.words.retain(|_, postings| postings.iter().map(|p| p.count).sum::<u32>() >= least);
    }
}

fn print_top(n: usize, first_round: &HashMap<String, i64>) {
    let mib = |bytes: i64| bytes as f64 / MIB as f64;
    println!("\n{:>10} {:>14} {:>10}  function", "in use", "after round 1", "allocated");
    for entry in heap_top(n) {
        println!(
            "{:>6.2} MiB {:>10.2} MiB {:>6.1} MiB  {}",
            mib(entry.inuse_space),
            mib(first_round.get(&entry.function).copied().unwrap_or(0)),
            mib(entry.alloc_space),
            entry.function,
        );
    }
}
