//! A search service that is slow now and then, and finds out why by itself: a flight recorder is always on, and the
//! first slow request writes the last seconds to a file.
//!
//! ```sh
//! cargo run --release --example slow_request            # an index of 48 MiB of text
//! cargo run --release --example slow_request -- 100     # an index of 100 MiB of text
//! ```
//!
//! ```text
//!   worker 0…2 ──(a word)──► the index, behind one mutex ◄──(now and then)── saver
//! ```
//!
//! The fault is in `save`: it holds the lock of the index while it writes to the disk. The file shows it: the slow
//! request (a task `search`) waits in `look_up`; at the same time the thread `saver` is in its region `save`, in a
//! system call, and its unlock wakes the request.

mod corpus;

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rtprof::sync::{Arc, Condvar, Mutex};
use rtprof::thread;
use rtprof::trace::{self, FlightRecorder, Options, Task, TraceError, WindowFiles, WindowOptions};

use corpus::{plain_text, words};

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();

const WORKERS: usize = 3;
/// A request should not take longer than this. Most take a hundredth of it.
const LIMIT: Duration = Duration::from_millis(30);
const PATIENCE: Duration = Duration::from_secs(30);
const DIRECTORY: &str = "slow-requests";

/// The first window.
static WRITTEN: Mutex<Option<Result<PathBuf, String>>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

fn main() -> Result<(), Box<dyn Error>> {
    let budget = corpus::budget(48)?;
    let index = Arc::new(Index::of(corpus::pages(&corpus::source()), budget));
    let searched: Vec<String> = index.postings.lock().keys().cloned().collect();
    println!("an index of {} words in {} pages", searched.len(), index.pages.len());

    let flight = FlightRecorder::new(Options::default());
    flight.start()?;
    let options =
        WindowOptions { directory: DIRECTORY.into(), max_files: 1, report, ..WindowOptions::default() };
    let files = WindowFiles::new(&flight, options)?;
    files.on_panic();

    let searched = Arc::new(searched);
    for i in 0..WORKERS {
        let (index, searched, files) = (index.clone(), searched.clone(), files.clone());
        named(&format!("worker {i}")).spawn(move || {
            for word in searched.iter().cycle().skip(i * searched.len() / WORKERS) {
                // Until the next request comes.
                thread::sleep(Duration::from_millis(2));
                serve(word, &index, &files);
            }
        })?;
    }
    named("saver").spawn(move || save_for_ever(&index))?;

    let mut written = WRITTEN.lock();
    let file = loop {
        match written.take() {
            Some(result) => break result?,
            None if CHANGED.wait_for(&mut written, PATIENCE).timed_out() => {
                return Err("no request was slow; give the index more MiB of text".into());
            }
            None => {}
        }
    };
    let stats = flight.stats();
    println!(
        "{} events so far, {} dropped; the window takes {:.1} MiB. Look at it with:\n",
        stats.events,
        stats.dropped_events,
        stats.bytes as f64 / corpus::MIB as f64,
    );
    println!("    go tool trace {}", file.display());
    println!(
        "    go tool trace -pprof=sync {} > sync.pb.gz && go tool pprof -top sync.pb.gz",
        file.display()
    );
    Ok(())
}

/// Called after a window was written, or was not.
fn report(reason: &str, result: &Result<PathBuf, TraceError>) {
    println!("{reason}");
    let result = result.as_ref().map_err(ToString::to_string);
    *WRITTEN.lock() = Some(result.cloned());
    CHANGED.notify_one();
}

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.into())
}

/// Which words are on which pages.
struct Index {
    pages: Vec<PathBuf>,
    /// Where each word is: the number of a page, and of the word on it.
    postings: Mutex<HashMap<String, Vec<(usize, usize)>>>,
}

impl Index {
    /// Indexes so many bytes of text, and begins again with the first file if there are too few.
    fn of(files: Vec<PathBuf>, budget: usize) -> Self {
        let (mut pages, mut read) = (Vec::new(), 0);
        let mut postings = HashMap::<String, Vec<_>>::new();
        for path in files.into_iter().cycle() {
            if read >= budget {
                break;
            }
            let Ok(raw) = fs::read(&path) else { continue };
            read += raw.len();
            for (i, word) in words(&plain_text(&String::from_utf8_lossy(&raw))).enumerate() {
                postings.entry(word.to_owned()).or_default().push((pages.len(), i));
            }
            pages.push(path);
        }
        Self { pages, postings: Mutex::new(postings) }
    }

    /// Returns the first page that has a word.
    #[inline(never)]
    fn look_up(&self, word: &str) -> Option<&Path> {
        let postings = self.postings.lock();
        let (page, _) = postings.get(word)?.first()?;
        self.pages.get(*page).map(PathBuf::as_path)
    }

    /// Writes the index to the disk. The fault: the lock is held until the disk has all of it.
    #[inline(never)]
    fn save(&self) -> io::Result<()> {
        let path = std::env::temp_dir().join(format!("rtprof-index-{}", std::process::id()));
        let postings = self.postings.lock();
        let mut text = String::new();
        for (word, places) in &*postings {
            writeln!(text, "{word} {places:?}").map_err(io::Error::other)?;
        }
        let mut file = File::create(&path)?;
        trace::syscall(|| file.write_all(text.as_bytes()).and_then(|()| file.sync_data()))?;
        fs::remove_file(path)
    }
}

fn serve(word: &str, index: &Index, files: &WindowFiles) {
    let task = Task::new("search");
    let _entered = task.enter();
    let _limit = files.if_slower("search", LIMIT);
    let page = trace::with_region("look up", || index.look_up(word));
    trace::with_region("answer", || page.map(|page| excerpt(page, word)));
}

/// Returns the line of a page at which a word is.
fn excerpt(page: &Path, word: &str) -> Option<String> {
    let raw = trace::syscall(|| fs::read(page)).ok()?;
    let text = String::from_utf8_lossy(&raw);
    text.lines().find(|line| line.contains(word)).map(str::to_owned)
}

fn save_for_ever(index: &Index) {
    loop {
        thread::sleep(Duration::from_secs(2));
        if let Err(error) = trace::with_region("save", || index.save()) {
            eprintln!("the index was not saved: {error}");
        }
    }
}
