//! The real `go tool pprof` reads block, mutex and threadcreate profiles, prints the same numbers, and gives no
//! warning.
//!
//! Its numbers are compared with our own reading of the same file (`test_support::profile`), which tests/profilers/waits/truth.rs compares
//! with the times that threads have measured.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use rtprof::sync::Mutex;
use rtprof::thread;
use test_support::contention;
use test_support::go::{self, Go};
use test_support::profile::Profile;
use test_support::top::{self, Row};
use test_support::{child, folder, sample_types};

static INDEX: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static CACHE: Mutex<u64> = Mutex::new(0);

/// Holds the hot lock.
#[inline(never)]
fn update_the_index(number: u64) {
    let mut index = INDEX.lock(); // the line that -list of the block profile must show
    index.push(number);
    std::thread::sleep(Duration::from_millis(3));
    drop(index); // the line that -list of the mutex profile must show
    black_box(number);
}

/// Takes a lock that is taken as often, but held for no time. A sleep under this lock, however short, may take longer
/// on a busy machine than the hot lock is held.
#[inline(never)]
fn look_into_the_cache() {
    let mut cache = CACHE.lock();
    *cache += 1;
    drop(cache);
    black_box(());
}

/// Makes one thread wait for the cache, so that both locks are in the profiles.
#[inline(never)]
fn hold_the_cache() {
    std::thread::scope(|scope| {
        let cache = CACHE.lock();
        let _waiter = contention::queue(scope, look_into_the_cache);
        drop(cache);
    });
    black_box(());
}

fn work(number: u64) {
    for round in 0..5 {
        update_the_index(number);
        (0..3).for_each(|_| look_into_the_cache());
        black_box(round);
    }
}

#[inline(never)]
fn start_workers() -> Vec<thread::JoinHandle<()>> {
    let mut workers = Vec::new();
    for number in 0..5 {
        workers.push(thread::spawn(move || work(number)));
    }
    black_box(workers)
}

#[inline(never)]
fn start_another() -> thread::JoinHandle<()> {
    black_box(thread::Builder::new().name("another".into()).spawn(|| work(5)).expect("a thread can be made"))
}

#[inline(never)]
fn run_workers() {
    hold_the_cache();
    let another = start_another();
    for worker in start_workers() {
        worker.join().expect("it ends well");
    }
    another.join().expect("it ends well");
    black_box(());
}

/// One profile, written in both forms.
struct Written {
    proto: PathBuf,
    text: PathBuf,
}

impl Written {
    fn at(name: &str, scene: &str) -> Self {
        let path = |ending: &str| folder::tmp().join(format!("interop-{name}{scene}.{ending}"));
        Self { proto: path("pb.gz"), text: path("txt") }
    }

    fn write(name: &str, scene: &str) -> Self {
        let profile = rtprof::pprof::lookup(name).expect("it is built in");
        let written = Self::at(name, scene);
        for (debug, path) in [(0, &written.proto), (1, &written.text)] {
            let mut bytes = Vec::new();
            profile.write_to(&mut bytes, debug).expect("a vector takes everything");
            std::fs::write(path, bytes).expect("the build's own folder can be written");
        }
        written
    }

    fn read(&self) -> Profile {
        Profile::read(&std::fs::read(&self.proto).expect("it was written"))
    }

    fn read_text(&self) -> String {
        std::fs::read_to_string(&self.text).expect("it was written")
    }

    fn total(&self, value: usize) -> i64 {
        self.read().samples().iter().map(|sample| sample.values[value]).sum()
    }
}

/// The files under test.
struct Files {
    block: Written,
    mutex: Written,
    /// Written after as much work again, or more, at a fraction of 10.
    mutex_of_ten: Written,
    /// The same after the profile was switched off.
    mutex_off: Written,
    threadcreate: Written,
}

/// Written once, by one child, after one workload.
static FILES: LazyLock<Files> = LazyLock::new(|| {
    child::isolated("files_are_written", write_files);
    Files {
        block: Written::at("block", ""),
        mutex: Written::at("mutex", ""),
        mutex_of_ten: Written::at("mutex", "-of-ten"),
        mutex_off: Written::at("mutex", "-off"),
        threadcreate: Written::at("threadcreate", ""),
    }
});

#[test]
fn files_are_written() {
    LazyLock::force(&FILES);
}

fn write_files() {
    rtprof::set_block_profile_rate(1);
    rtprof::set_mutex_profile_fraction(1);
    run_workers();
    rtprof::set_block_profile_rate(0);
    Written::write("block", "");
    let mutex = Written::write("mutex", "");
    Written::write("threadcreate", "");
    rtprof::set_mutex_profile_fraction(10);
    (0..20)
        .map(|_| {
            run_workers();
            Written::write("mutex", "-of-ten")
        })
        // The probability that none of 30 unlocks is recorded is 1 in 24.
        .find(|written| written.total(1) > mutex.total(1))
        .expect("600 unlocks that are all passed over come once in 10^27 times");
    rtprof::set_mutex_profile_fraction(0);
    Written::write("mutex", "-off");
}

fn with_index(arguments: &[&str], path: &Path) -> Vec<String> {
    let mut all: Vec<_> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    all.push(path.to_str().expect("the build's folder has a plain name").to_owned());
    all
}

fn check_top(go: &Go, written: &Written, profile: &str) {
    let samples = written.read().samples();
    for (value, (kind, unit)) in sample_types::shown_whole(profile).enumerate() {
        let expected = top::expected(&samples, value);
        assert!(!expected.is_empty(), "the workload is in the profile");
        top::check(go, &written.proto, kind, unit, expected);
    }
}

#[test]
fn top_agrees() {
    for go in go::toolchains("top_agrees") {
        check_top(&go, &FILES.block, "block");
        for written in [&FILES.mutex, &FILES.mutex_of_ten, &FILES.mutex_off] {
            check_top(&go, written, "mutex");
        }
        check_top(&go, &FILES.threadcreate, "threadcreate");
    }
}

/// Without any option, the hot lock's function comes first, with its time in seconds.
#[test]
fn the_hot_function_is_first() {
    for go in go::toolchains("the_hot_function_is_first") {
        for written in [&FILES.block, &FILES.mutex, &FILES.mutex_of_ten] {
            let text = go.pprof(&with_index(&["-top"], &written.proto));
            assert!(text.contains("Type: delay"), "Go {}: {text}", go.version);
            let first = text.lines().skip_while(|line| !line.contains("flat%")).nth(1).unwrap_or_default();
            assert!(first.ends_with("interop_contention::update_the_index"), "Go {}: {text}", go.version);
            let words: Vec<_> = first.split_whitespace().collect();
            let shown = top::seconds(words[0]);
            let samples = written.read().samples();
            let exact =
                top::expected(&samples, 1)["readers::interop_contention::update_the_index"].flat as f64 / 1e9;
            assert!((shown - exact).abs() <= 0.01 * exact, "Go {}: {first} for {exact} s", go.version);
        }
        let rows = top::rows(&go, &FILES.threadcreate.proto, "threadcreate", "count");
        assert_eq!(rows[0], ("readers::interop_contention::start_workers".into(), Row { flat: 5, cum: 5 }));
        assert_eq!(rows[1], ("readers::interop_contention::start_another".into(), Row { flat: 1, cum: 1 }));
    }
}

/// The workload's own figures. Six threads sleep 3 ms five times while they hold the lock, one after the other, and
/// most of the time all others wait.
#[test]
fn numbers_are_the_workloads() {
    let [mutex, block] = [&FILES.mutex, &FILES.block].map(|written| {
        top::expected(&written.read().samples(), 1)["readers::interop_contention::update_the_index"].flat
    });
    let held = 6 * 5 * 3_000_000;
    assert!(mutex >= held, "{mutex} ns of waiting in {held} ns with the lock held");
    assert!((mutex - block).abs() < block / 1000, "{mutex} ns charged, {block} ns waited");
    assert_eq!(FILES.threadcreate.total(0), 6);
    // Each event recorded at a fraction of 10 stands for ten, and is added to the earlier events.
    assert_eq!((FILES.mutex_of_ten.total(0) - FILES.mutex.total(0)) % 10, 0);
    assert_eq!(FILES.mutex_of_ten.total(1), FILES.mutex_off.total(1));
}

/// `-raw` prints the file as pprof understood it: header, samples, mappings.
#[test]
fn raw_agrees() {
    for go in go::toolchains("raw_agrees") {
        for (written, name, period) in [
            (&FILES.block, "block", "contentions count"),
            (&FILES.mutex, "mutex", "contentions count"),
            (&FILES.threadcreate, "threadcreate", "threadcreate count"),
        ] {
            let text = go.pprof(&with_index(&["-raw"], &written.proto));
            assert!(
                text.contains(&format!("PeriodType: {period}\nPeriod: 1\n")),
                "Go {}: {text}",
                go.version
            );
            let header = sample_types::raw_header(name);
            assert!(
                text.replace("[dflt]", "").contains(&format!("Samples:\n{header}\n")),
                "Go {}: {text}",
                go.version
            );
            let profile = written.read();
            // A sample is a line of values, a colon and location numbers; so is a location.
            let samples = text.lines().take_while(|&line| line != "Locations").filter(|line| {
                line.split_once(':').is_some_and(|(values, _)| {
                    values.split_whitespace().filter(|word| word.parse::<i64>().is_ok()).count()
                        == profile.sample_type.len()
                })
            });
            assert_eq!(samples.count(), profile.sample.len(), "Go {}: {text}", go.version);
            let binary = std::env::current_exe().expect("a test knows its own binary");
            let mapping = text.lines().find(|line| line.contains(&*binary.to_string_lossy()));
            let mapping = mapping.unwrap_or_else(|| panic!("Go {}: no mapping of {binary:?}", go.version));
            assert!(mapping.contains("[FN]"), "names are in the profile: {mapping}");
        }
    }
}

/// Stacks go from the lock's user to the thread's start, in the right order, without functions of the lock.
#[test]
fn traces_begin_with_the_user_and_are_whole() {
    for go in go::toolchains("traces_begin_with_the_user_and_are_whole") {
        for (written, names) in [
            (&FILES.block, ["update_the_index", "work"]),
            (&FILES.mutex, ["update_the_index", "work"]),
            (&FILES.threadcreate, ["start_workers", "run_workers"]),
        ] {
            let text = go.pprof(&with_index(&["-traces"], &written.proto));
            let mut blocks =
                text.split("-----------+-------------------------------------------------------");
            let leaf = format!("interop_contention::{}", names[0]);
            let block = blocks.find(|block| block.contains(&leaf));
            let block = block.unwrap_or_else(|| panic!("Go {}: {text}", go.version));
            // The value comes before the first function.
            let first = block.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            assert!(first.ends_with(&leaf), "Go {}: {block}", go.version);
            let place = |name: &str| {
                block.find(name).unwrap_or_else(|| panic!("Go {}: no {name} in {block}", go.version))
            };
            let next = format!("interop_contention::{}", names[1]);
            assert!(place(&leaf) < place(&next) && place(&next) < place("thread start"), "{block}");
        }
    }
}

/// Files and lines lead to the source.
#[test]
fn list_shows_the_source() {
    for go in go::toolchains("list_shows_the_source") {
        let source = format!("-source_path={}", env!("CARGO_MANIFEST_DIR"));
        for (written, remark) in [
            (&FILES.block, "the line that -list of the block profile must show"),
            (&FILES.mutex, "the line that -list of the mutex profile must show"),
        ] {
            let arguments = ["-list=interop_contention::update_the_index", &source];
            let text = go.pprof(&with_index(&arguments, &written.proto));
            let line = text.lines().find(|line| line.contains(remark));
            let line = line.unwrap_or_else(|| panic!("Go {}: {text}", go.version));
            let word = line.split_whitespace().next().unwrap_or_default();
            assert!(top::seconds(word) >= 0.05, "Go {}: the time stands beside the line: {line}", go.version);
        }
    }
}

/// The text carries the same totals, whatever the fraction is or was.
#[test]
fn text_agrees() {
    let titles = [
        (&FILES.block, "--- contention:\ncycles/second="),
        (&FILES.mutex, "--- mutex:\ncycles/second="),
        (&FILES.mutex_of_ten, "--- mutex:\ncycles/second="),
        (&FILES.mutex_off, "--- mutex:\ncycles/second="),
    ];
    for (written, title) in titles {
        let text = written.read_text();
        assert!(text.starts_with(title), "{text}");
        assert!(text.contains("interop_contention::update_the_index"), "names stand beside the addresses");
    }
    let text = FILES.threadcreate.read_text();
    assert!(text.starts_with("threadcreate profile: total 6\n"), "{text}");
    assert!(text.contains("interop_contention::start_workers"), "{text}");
    for go in go::toolchains("text_agrees") {
        for (written, _) in titles {
            let count = top::total(&top::rows_of_text(&go, &written.text, "contentions", "count"));
            assert_eq!(count, written.total(0), "Go {}: {:?}", go.version, written.text);
            let nanos = top::total(&top::rows_of_text(&go, &written.text, "delay", "ns"));
            // Both cut off a fraction of each record, but not the same fraction: a reader of the text divides by a
            // rounded number.
            let (exact, records) = (written.total(1), written.read().sample.len() as i64);
            let off = (nanos - exact).abs();
            assert!(off <= records + exact / 1_000_000, "Go {}: {nanos} ns for {exact}", go.version);
        }
        let threads = top::total(&top::rows_of_text(&go, &FILES.threadcreate.text, "threadcreate", "count"));
        assert_eq!(threads, 6, "Go {}", go.version);
    }
}

/// A change is judged by the difference of two profiles, so pprof must be able to match our samples.
#[test]
fn difference_with_itself_is_empty() {
    for go in go::toolchains("difference_with_itself_is_empty") {
        for written in [&FILES.block, &FILES.mutex, &FILES.threadcreate] {
            let base = format!("-diff_base={}", written.proto.display());
            let text = go.pprof(&with_index(&["-top", &base], &written.proto));
            assert!(text.contains("Showing nodes accounting for 0, 0%"), "Go {}: {text}", go.version);
        }
    }
}
