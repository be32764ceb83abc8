//! The real `go tool pprof` reads our profiles, prints the same numbers, and gives no warning.
//!
//! Every number that it prints is compared with our own reading of the same file (`test_support::profile`), which truth.rs
//! compares with exact totals: so a user sees exactly the allocations.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use test_support::go::{self, Go};
use test_support::profile::Profile;
use test_support::top;
use test_support::{child, folder, sample_types};

#[inline(never)]
fn one_document(size: usize) -> Vec<u8> {
    black_box(vec![1; size]) // the line that -list must show
}

#[inline(never)]
fn keep_documents() -> Vec<Vec<u8>> {
    black_box((1..=40).map(|number| one_document(number * 100)).collect())
}

#[inline(never)]
fn read_and_forget() {
    for number in 0..30 {
        black_box(one_document(70_000 + number));
    }
}

#[inline(never)]
fn on_a_thread() -> Vec<Box<dyn Send>> {
    black_box((0..25).map(|number| Box::new([number as u64; 32]) as Box<dyn Send>).collect())
}

/// The files under test.
struct Files {
    heap: PathBuf,
    allocs: PathBuf,
    custom: PathBuf,
    text: PathBuf,
}

/// Written once, by one child, after one workload.
static FILES: LazyLock<Files> = LazyLock::new(|| {
    child::isolated("files_are_written", write_files);
    let [heap, allocs, custom, text] = ["heap.pb.gz", "allocs.pb.gz", "custom.pb.gz", "heap.txt"].map(path);
    Files { heap, allocs, custom, text }
});

#[test]
fn files_are_written() {
    LazyLock::force(&FILES);
}

fn path(name: &str) -> PathBuf {
    folder::tmp().join(format!("interop-{name}"))
}

fn write_files() {
    static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    rtprof::set_mem_profile_rate(1);
    *KEPT.lock().expect("nobody panics here") = keep_documents();
    read_and_forget();
    std::mem::forget(std::thread::spawn(on_a_thread).join());
    rtprof::set_mem_profile_rate(0);

    let connections = rtprof::pprof::Profile::new("test.connections").expect("the name is free");
    (1..=3).for_each(|key| open_connection(&connections, key));
    let write = |profile: &rtprof::pprof::Profile, debug, name: &str| {
        let path = path(name);
        let mut bytes = Vec::new();
        profile.write_to(&mut bytes, debug).expect("a vector takes everything");
        std::fs::write(&path, bytes).expect("the build's own folder can be written");
        path
    };
    let named = |name| rtprof::pprof::lookup(name).expect("it is built in");
    let heap_and_text = || (write(&named("heap"), 0, "heap.pb.gz"), write(&named("heap"), 1, "heap.txt"));
    let (mut heap, _) = heap_and_text();
    // The harness's threads free objects meanwhile. The loop repeats until the heap was unchanged around the text.
    test_support::until("the heap is still", || {
        let before = totals(&heap);
        (heap, _) = heap_and_text();
        let after = write(&named("heap"), 0, "heap-after.pb.gz");
        totals(&heap) == totals(&after) && totals(&heap) == before
    });
    write(&named("allocs"), 0, "allocs.pb.gz");
    write(&connections, 0, "custom.pb.gz");
}

fn totals(path: &Path) -> [i64; 4] {
    let samples = read(path).samples();
    [0, 1, 2, 3].map(|value| samples.iter().map(|sample| sample.values[value]).sum())
}

#[inline(never)]
fn open_connection(profile: &rtprof::pprof::Profile, key: usize) {
    profile.add(black_box(key), 0).expect("each key comes once");
}

fn read(path: &Path) -> Profile {
    Profile::read(&std::fs::read(path).expect("it was written above"))
}

fn check_top<'a>(go: &Go, path: &Path, kinds: impl IntoIterator<Item = (&'a str, &'a str)>) {
    let samples = read(path).samples();
    for (value, (kind, unit)) in kinds.into_iter().enumerate() {
        let expected = top::expected(&samples, value);
        assert!(!expected.is_empty(), "the workload is in the profile");
        top::check(go, path, kind, unit, expected);
    }
}

#[test]
fn top_agrees() {
    for go in go::toolchains("top_agrees") {
        check_top(&go, &FILES.heap, sample_types::shown_whole("heap"));
        check_top(&go, &FILES.allocs, sample_types::shown_whole("allocs"));
        check_top(&go, &FILES.custom, [("test.connections", "count")]);
    }
}

/// The workload's own totals, calculated by arithmetic alone.
#[test]
fn numbers_are_the_workloads() {
    let kept = read(&FILES.heap).totals_of("interop::keep_documents");
    let (objects, bytes) = (41, (1..=40).sum::<i64>() * 100 + 40 * size_of::<Vec<u8>>() as i64);
    assert_eq!(kept, [objects, bytes, objects, bytes], "40 documents and their list");
    let forgotten = read(&FILES.heap).totals_of("interop::read_and_forget");
    assert_eq!(forgotten, [30, (0..30).sum::<i64>() + 30 * 70_000, 0, 0]);
    let in_boxes = 25 * 256 + 25 * size_of::<Box<dyn Send>>() as i64;
    let boxes = read(&FILES.heap).totals_of("interop::on_a_thread");
    assert_eq!(boxes, [26, in_boxes, 26, in_boxes], "from another thread");
}

/// Without `-sample_index` heap opens with the memory in use, allocs with all allocated memory.
#[test]
fn default_sample_type_is_honoured() {
    let kind = |path: &Path| {
        let profile = read(path);
        profile.text(profile.default_sample_type).to_owned()
    };
    assert_eq!(kind(&FILES.heap), "inuse_space");
    assert_eq!(kind(&FILES.allocs), "alloc_space");
    for go in go::toolchains("default_sample_type_is_honoured") {
        for (path, kind) in [(&FILES.heap, "inuse_space"), (&FILES.allocs, "alloc_space")] {
            let text = go.pprof(&[Path::new("-top"), path]);
            assert!(text.contains(&format!("Type: {kind}")), "Go {}: {text}", go.version);
        }
    }
}

/// `-raw` prints the file as pprof understood it: header, samples, mappings.
#[test]
fn raw_agrees() {
    let profile = read(&FILES.heap);
    assert_eq!(profile.sample_types(), sample_types::of("heap"), "Go's four in Go's order");
    let period = profile.period_type.clone().expect("a heap profile has a period type");
    assert_eq!((profile.text(period.kind), profile.text(period.unit)), ("space", "bytes"));
    for go in go::toolchains("raw_agrees") {
        let text = go.pprof(&[Path::new("-raw"), &FILES.heap]);
        assert!(text.contains("PeriodType: space bytes"), "Go {}: {text}", go.version);
        let header = format!("{}[dflt]", sample_types::raw_header("heap"));
        assert!(text.contains(&header), "Go {}: {text}", go.version);
        // A sample is a line of its values, a colon and location numbers.
        let samples = text.lines().filter(|line| {
            line.split_once(':').is_some_and(|(values, _)| {
                values.split_whitespace().filter(|word| word.parse::<i64>().is_ok()).count()
                    == profile.sample_type.len()
            })
        });
        assert_eq!(samples.count(), profile.sample.len(), "Go {}", go.version);
        let binary = std::env::current_exe().expect("a test knows its own binary");
        let mapping = text.lines().find(|line| line.contains(&*binary.to_string_lossy()));
        let mapping = mapping.unwrap_or_else(|| panic!("Go {}: no mapping of {binary:?}", go.version));
        assert!(mapping.contains("[FN]"), "names are in the profile: {mapping}");
    }
}

/// The whole stack from the allocation to the test's thread, in the right order.
#[test]
fn traces_are_whole() {
    for go in go::toolchains("traces_are_whole") {
        let text = go.pprof(&[Path::new("-traces"), Path::new("-sample_index=alloc_space"), &FILES.heap]);
        let blocks = text.split("-----------+-------------------------------------------------------");
        let block = blocks.into_iter().find(|block| block.contains("interop::read_and_forget"));
        let block = block.unwrap_or_else(|| panic!("Go {}: {text}", go.version));
        let place = |name: &str| {
            block.find(name).unwrap_or_else(|| panic!("Go {}: no {name} in {block}", go.version))
        };
        assert!(place("interop::one_document") < place("interop::read_and_forget"), "{block}");
        assert!(place("interop::read_and_forget") < place("thread start"), "{block}");
    }
}

/// Files and lines lead to the source.
#[test]
fn list_shows_the_source() {
    for go in go::toolchains("list_shows_the_source") {
        let source = format!("-source_path={}", env!("CARGO_MANIFEST_DIR"));
        let arguments = ["-list=interop::one_document", "-sample_index=alloc_space", &source];
        let mut arguments: Vec<_> = arguments.iter().map(Path::new).collect();
        arguments.push(&FILES.heap);
        let text = go.pprof(&arguments);
        let line = text.lines().find(|line| line.contains("the line that -list must show"));
        let line = line.unwrap_or_else(|| panic!("Go {}: {text}", go.version));
        assert!(line.contains("MB"), "Go {}: the bytes stand beside the line: {line}", go.version);
    }
}

/// The legacy text carries the same totals, and pprof reads it too.
#[test]
fn text_agrees() {
    let text = std::fs::read_to_string(&FILES.text).expect("it was written above");
    assert!(text.starts_with("heap profile: "), "{text}");
    assert!(text.contains("interop::keep_documents"), "names stand beside the addresses");
    assert!(text.contains("\n# runtime.MemStats"), "it ends as Go's does");
    let samples = read(&FILES.heap).samples();
    for go in go::toolchains("text_agrees") {
        for (value, (kind, unit)) in sample_types::shown_whole("heap").enumerate() {
            let flat = top::total(&top::rows_of_text(&go, &FILES.text, kind, unit));
            let expected: i64 = samples.iter().map(|sample| sample.values[value]).sum();
            assert_eq!(flat, expected, "Go {}: {kind}", go.version);
        }
    }
}

/// Leaks are found by the difference of two profiles, so pprof must be able to match our samples.
#[test]
fn difference_with_itself_is_empty() {
    for go in go::toolchains("difference_with_itself_is_empty") {
        let base = format!("-diff_base={}", FILES.heap.display());
        let text = go.pprof(&[Path::new("-top"), Path::new(&base), &FILES.heap]);
        assert!(text.contains("Showing nodes accounting for 0, 0%"), "Go {}: {text}", go.version);
    }
}
