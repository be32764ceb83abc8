//! Packs the Rust documentation on this machine (or this repository, if the documentation is missing): two threads read
//! pages, strip their tags, count their words and compress them. Writes a CPU profile of this work.
//!
//! ```sh
//! cargo run --release --example hot_function            # about 48 MiB of text
//! cargo run --release --example hot_function -- 200     # about 200 MiB
//! ```
//!
//! With an address, the program writes no profile, but serves profiles at the address while it works:
//!
//! ```sh
//! cargo run --release --example hot_function -- 1000 127.0.0.1:6060 &
//! go tool pprof -top 'http://127.0.0.1:6060/debug/pprof/profile?seconds=5'
//! ```
//!
//! The profile shows two things. Compression, the program's purpose, takes most of the time. `is_stop_word` is hot
//! without need: it searches a list for every word, and takes more time than the rest of the counting.

mod corpus;

use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use corpus::{MIB, plain_text, words};
use flate2::Compression;
use flate2::write::GzEncoder;
use rtprof::pprof;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

/// Words that are not worth counting.
const STOP_WORDS: &str = "about above after again all also an and any are as at be because been before being below between \
    both but by can could did do does doing down during each few for from further had has have having he her here him his \
    how if in into is it its just more most my no nor not now of off on once only or other our out over own same she should \
    so some such than that the their them then there these they this those through to too under until up very was we were \
    what when where which while who whom why will with would you your";

fn main() -> Result<(), Box<dyn Error>> {
    let budget = corpus::budget(48)?;
    let root = corpus::source();
    let files = corpus::pages(&root);

    let server = std::env::args().nth(2).map(|address| rtprof::http::serve(&*address)).transpose()?;
    match &server {
        Some(server) => println!(
            "profile it: go tool pprof 'http://{}/debug/pprof/profile?seconds=5'",
            server.local_addr()
        ),
        None => pprof::start_cpu_profile(File::create("cpu.pb.gz")?)?,
    }
    let start = Instant::now();
    let packed = pack(&files, budget);
    let took = start.elapsed();
    let stats = if server.is_none() { Some(pprof::stop_cpu_profile()?) } else { None };

    println!(
        "packed {} files of {}, {:.1} MiB into {:.1} MiB, {} distinct words, in {took:.1?}",
        packed.files,
        root.display(),
        packed.read as f64 / MIB as f64,
        packed.written as f64 / MIB as f64,
        packed.words.len(),
    );
    let Some(stats) = stats else { return Ok(()) };
    println!("{} samples in {:.1?}, by {}", stats.samples, stats.duration, stats.sampled_by);
    println!("\nWrote cpu.pb.gz. Look at it with:\n");
    println!("    go tool pprof -top cpu.pb.gz");
    println!("    go tool pprof -http=localhost:8080 cpu.pb.gz");
    Ok(())
}

#[derive(Default)]
struct Packed {
    files: usize,
    read: usize,
    written: usize,
    words: HashMap<String, u64>,
}

/// Packs files with two threads, until `budget` bytes are read.
fn pack(files: &[PathBuf], budget: usize) -> Packed {
    let halves = files.split_at(files.len() / 2);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| pack_part(halves.1, budget / 2));
        let mut packed = pack_part(halves.0, budget / 2);
        let more = second.join().expect("the packing thread panicked");
        packed.files += more.files;
        packed.read += more.read;
        packed.written += more.written;
        for (word, count) in more.words {
            *packed.words.entry(word).or_default() += count;
        }
        packed
    })
}

fn pack_part(files: &[PathBuf], budget: usize) -> Packed {
    let mut packed = Packed::default();
    for path in files {
        if packed.read >= budget {
            break;
        }
        let Ok(raw) = fs::read(path) else { continue };
        packed.files += 1;
        packed.read += raw.len();
        let text = plain_text(&String::from_utf8_lossy(&raw));
        count_words(&text, &mut packed.words);
        packed.written += compress(&raw);
    }
    packed
}

#[inline(never)]
fn count_words(text: &str, counts: &mut HashMap<String, u64>) {
    for word in words(text) {
        if is_stop_word(word) {
            continue;
        }
        match counts.get_mut(word) {
            Some(count) => *count += 1,
            None => {
                counts.insert(word.to_owned(), 1);
            }
        }
    }
}

/// The hot function. A set would find the word without a search.
#[inline(never)]
fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.split_ascii_whitespace().any(|stop| stop == word)
}

/// Returns the number of bytes of a page, compressed.
#[inline(never)]
fn compress(page: &[u8]) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(page).and_then(|()| encoder.finish());
    written.map_or(0, |bytes| bytes.len())
}
