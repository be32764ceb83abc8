//! Indexes the Rust documentation on this machine (or this repository, if the documentation is missing), keeps part of
//! the index, leaks some memory on purpose, and writes its own heap profile.
//!
//! ```sh
//! cargo run --release --example leak            # about 48 MiB of text
//! cargo run --release --example leak -- 200     # about 200 MiB
//! ```
//!
//! The profile shows two things. The index (`Index::add` and the word strings below it) is alive on purpose.
//! `remember_page`, the leak, keeps a copy of every page's beginning in a list that is never emptied.

mod corpus;

use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use corpus::{MIB, plain_text, words};

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

/// The leak: pages for a "recently seen" list whose reader was never written.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn main() -> Result<(), Box<dyn Error>> {
    let budget = corpus::budget(48)?;
    let root = corpus::source();
    let files = corpus::pages(&root);

    let start = Instant::now();
    let (mut index, bytes) = build(&files, budget);
    println!(
        "indexed {} files, {:.1} MiB of {}, {} words, in {:.1?}",
        index.pages.len(),
        bytes as f64 / MIB as f64,
        root.display(),
        index.words.len(),
        start.elapsed(),
    );
    index.forget_rare_words(3);

    rtprof::pprof::write_heap_profile(File::create("heap.pb.gz")?)?;
    let allocs = rtprof::pprof::lookup("allocs").ok_or("the allocs profile is built in")?;
    allocs.write_to(&mut File::create("allocs.pb.gz")?, 0)?;

    print_top(15);
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
    let beginning: String = text.chars().take(4096).collect();
    SEEN.lock().expect("nobody panics while holding it").push(beginning);
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

fn print_top(n: usize) {
    let mib = |bytes: i64| bytes as f64 / MIB as f64;
    println!("\n{:>10} {:>10} {:>10} {:>10}  function", "in use", "objects", "allocated", "objects");
    for entry in rtprof::pprof::heap_top(n) {
        println!(
            "{:>6.2} MiB {:>10} {:>6.1} MiB {:>10}  {}",
            mib(entry.inuse_space),
            entry.inuse_objects,
            mib(entry.alloc_space),
            entry.alloc_objects,
            entry.function,
        );
    }
}
