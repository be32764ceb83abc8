//! Stacks are whole and named in every kind of build.
//!
//! The fixture `chain` makes one allocation from main and one from a thread, through inlined and other functions, fills
//! a channel, and traces a thread while another thread waits for it. It is built as debug, release, fat LTO, stripped,
//! without debug information, with line tables only, and with debug information that is split, compressed, or kept apart
//! as in packages; each with and without frame pointers.
//!
//! This takes minutes, so that a plain `cargo test` ignores it; `ci/builds.sh` runs it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use rtprof::pprof;
use rtprof_trace_check::{EventType, Parsed};
use test_support::fixture::{Fixture, succeed};
use test_support::folder;
use test_support::library::compile;
use test_support::profile::{Frame, Mapping, Profile, Sample};
use test_support::{child, go};

mod packages;

use packages::{compressed, kept_apart};

const SOURCE: &str = include_str!("../fixtures/chain/src/main.rs");

/// The names that a build contains.
#[derive(Clone, Copy, PartialEq)]
enum Names {
    /// Functions, also inlined ones, with files and lines.
    Lines,
    /// Functions of the symbol table.
    Functions,
}

/// A way to capture stacks: its name, and the compiler's flags.
type Flags = (&'static str, &'static str);

macro_rules! kinds_of_build {
    ($flags:expr) => {
        kinds_of_build!($flags;
            debug, release_without_debug_information, line_tables_only, remapped, split_debug_information, fat_lto,
            stripped, kept_apart, compressed, c_without_eh_frame);
    };
    ($flags:expr; $($kind:ident),*) => {
        $(
            #[test]
            #[ignore = "builds a program in many ways; ci/builds.sh runs it"]
            fn $kind() {
                super::$kind($flags);
            }
        )*
    };
}

mod by_frame_pointers {
    kinds_of_build!(("frame-pointers", "-Cforce-frame-pointers=yes"));
}

mod by_unwind_tables {
    kinds_of_build!(("unwind-tables", ""));
}

/// Builds the fixture, whose own crate is compiled with the options of `last` too. The builds of one test binary share
/// folders, so they take turns.
fn build(flags: (&str, &str), arguments: &[&str], last: &[&str]) -> PathBuf {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let target = folder::tmp().join(format!("builds-{}", flags.0));
    let mut command = Fixture::copied("chain").cargo("rustc", &target, flags.1);
    succeed(command.args(arguments).arg("--").args(last));
    let built = target.join(if arguments.contains(&"--release") { "release" } else { "debug" });
    built.join("chain")
}

/// The output of a fixture.
struct Written {
    profile_path: PathBuf,
    profile: Profile,
    trace: Parsed,
}

fn run(binary: &Path) -> Written {
    let [profile_path, trace_path] = ["pb.gz", "trace"].map(|extension| binary.with_extension(extension));
    let mut command = Command::new(binary);
    command.arg(&profile_path).arg(&trace_path);
    let output = child::finish(&mut command);
    assert!(output.status.success(), "{}", child::report(&output));
    let read = |path: &Path| std::fs::read(path).expect("the fixture wrote it");
    let profile = Profile::read(&read(&profile_path));
    let trace = rtprof_trace_check::validate(&read(&trace_path)).expect("Go's tools read it");
    Written { profile_path, profile, trace }
}

/// Returns the sample of one of the two allocations.
fn sample(profile: &Profile, size: usize) -> Sample {
    let bytes = size.to_string();
    let mut samples = profile.samples().into_iter();
    let found = samples.find(|sample| sample.labels.get("bytes") == Some(&bytes));
    found.unwrap_or_else(|| panic!("no object of {size} bytes in the profile"))
}

/// Returns the line of the fixture's source that carries the marker of `function`.
fn line_of(function: &str) -> i64 {
    let marker = format!("// line of {function}");
    let place = SOURCE.lines().position(|line| line.ends_with(&marker));
    place.expect("the fixture has the marker") as i64 + 1
}

fn check_chain(what: &str, sample: &Sample, chain: &[&str], root: &str, names: Names) {
    let mut frames = sample.frames.iter();
    for function in chain {
        if *function == "inlined" && names == Names::Functions {
            continue;
        }
        let full = format!("chain::{function}");
        let frame = frames.find(|frame| frame.function == full);
        let frame = frame.unwrap_or_else(|| panic!("{what}: no {full}, in order, in {:#?}", sample.frames));
        if names == Names::Lines {
            assert!(frame.file.ends_with("src/main.rs"), "{what}: {frame:?}");
            assert_eq!(frame.line, line_of(function), "{what}: {frame:?}");
        }
    }
    // The stack reaches its end, not only our own code.
    let end = frames.next_back().map(|frame| frame.function.as_str()).unwrap_or_default();
    assert_eq!(end, root, "{what}: {:#?}", sample.frames);
    let is_startup = |frame: &&Frame| STARTUP.iter().any(|part| frame.function.contains(part));
    let startup = sample.frames.iter().find(is_startup);
    assert_eq!(startup, None, "{what}: std's start is hidden: {:#?}", sample.frames);
    if names == Names::Lines {
        let beneath = &sample.frames[sample.frames.len() - 2].function;
        assert!(beneath.starts_with("chain::"), "{what}: {beneath}: {:#?}", sample.frames);
    }
}

/// Functions of std that run before the program's.
const STARTUP: [&str; 7] = [
    "lang_start",
    "catch_unwind",
    "do_call",
    "__rust_try",
    "__rust_begin_short_backtrace",
    "Builder::spawn",
    "thread_start",
];

fn check(what: &str, profile: &Profile, names: Names) {
    let main = ["leaf", "inlined", "middle", "outer", "main"];
    check_chain(what, &sample(profile, 50_001), &main, "main", names);
    let thread = ["leaf", "inlined", "middle", "outer", "on_a_thread"];
    check_chain(what, &sample(profile, 70_001), &thread, "thread start", names);
    let mapping = mapping(what, profile);
    assert!(!profile.text(mapping.build_id).is_empty(), "{what}: with its build id");
    assert!(mapping.has_functions, "{what}: has_functions is truthful");
    let lines = names == Names::Lines;
    assert_eq!((mapping.has_line_numbers, mapping.has_inline_frames), (lines, lines), "{what}");
    check_comment(what, profile, (!lines).then_some(NO_DEBUG_INFORMATION));
}

fn mapping<'p>(what: &str, profile: &'p Profile) -> &'p Mapping {
    let mut mappings = profile.mapping.iter();
    let found = mappings.find(|mapping| profile.text(mapping.filename).ends_with("/chain"));
    found.unwrap_or_else(|| panic!("{what}: the binary is among the mappings"))
}

const NO_DEBUG_INFORMATION: &str = "the program has no debug information";
const STRIPPED: &str = "the program is stripped";
const WITHOUT_PACKAGE: &str = "the program has split debug information that was not found";
const WITHOUT_ALTERNATIVE: &str = "the program has debug information that was compressed by dwz";

/// Checks that a comment says what the build leaves out, and only that.
fn check_comment(what: &str, profile: &Profile, expected: Option<&str>) {
    let comments = profile.comments();
    for words in [NO_DEBUG_INFORMATION, STRIPPED, WITHOUT_PACKAGE, WITHOUT_ALTERNATIVE] {
        assert_eq!(comments.contains(words), Some(words) == expected, "{what}: {comments}");
    }
}

/// Checks that a channel's allocations are charged to the function that uses the channel.
fn check_channel(what: &str, profile: &Profile) {
    let samples = profile.samples();
    let mut sends = samples.iter().filter(|sample| sample.has("chain::sends")).peekable();
    assert!(sends.peek().is_some(), "{what}: the channel's blocks are in the profile");
    for sample in sends {
        assert_eq!(sample.frames[0].function, "chain::sends", "{what}: {:#?}", sample.frames);
    }
}

/// Checks that our own threads show no function of ours in builds whose functions can be told apart, and that a
/// function has the same name in a trace and in a profile.
fn check_frames(what: &str, written: &Written, names: Names) {
    let trace_stack = |event_type, function: &str| {
        let mut events = written.trace.events_of(event_type);
        let event = events.find(|event| event.functions().contains(&function));
        event.unwrap_or_else(|| panic!("{what}: {function} is in the trace")).functions()
    };
    let thread = trace_stack(EventType::GoSleep, "chain::sleeps");
    let is_ours = |function: &&str| function.contains("rtprof");
    assert!(thread.len() >= 3, "{what}: {thread:#?}");
    assert!(names != Names::Lines || !thread.iter().any(is_ours), "{what}: {thread:#?}");
    let sample = sample(&written.profile, 50_001);
    let in_profile: Vec<_> = sample.frames.iter().map(|frame| frame.function.as_str()).collect();
    let in_trace = trace_stack(EventType::GoBlockSync, "chain::joins");
    let callers_of_main = |functions: &[&str]| {
        let main = functions.iter().position(|function| *function == "chain::main");
        functions[main.unwrap_or_else(|| panic!("{what}: no main in {functions:#?}"))..].join("\n")
    };
    // The outermost frame in the trace is the thread's name.
    let (_thread, in_trace) = in_trace.split_last().expect("it has frames");
    assert_eq!(callers_of_main(in_trace), callers_of_main(&in_profile), "{what}");
    let stacks = written.trace.events().flat_map(|event| event.functions());
    let generic = stacks.chain(in_profile).find(|function| function.contains('<'));
    assert_eq!(generic, None, "{what}: type arguments are left out");
}

/// Checks that every stack of the trace begins at the expected line of the program.
fn check_trace(what: &str, trace: &Parsed, names: Names) {
    for (event_type, function) in [
        (EventType::UserRegion, "sleeps"),
        (EventType::GoSleep, "sleeps"),
        (EventType::GoCreate, "starts"),
        (EventType::GoBlockSync, "joins"),
    ] {
        let full = format!("chain::{function}");
        let stacks = trace.events_of(event_type).map(|event| event.stack().collect::<Vec<_>>());
        let mut ours = stacks.filter(|stack| stack.iter().any(|frame| frame.function == full));
        let stack = ours.next().unwrap_or_else(|| panic!("{what}: no {event_type:?} of {full}"));
        assert_eq!(stack[0].function, full, "{what}: {event_type:?}: {stack:#?}");
        if names == Names::Lines {
            assert!(stack[0].file.ends_with("src/main.rs"), "{what}: {stack:#?}");
        }
        let is_startup =
            |frame: &&rtprof_trace_check::Frame| STARTUP.iter().any(|part| frame.function.contains(part));
        assert_eq!(stack.iter().find(is_startup), None, "{what}: {stack:#?}");
        if function == "sleeps" && event_type == EventType::GoSleep {
            // The thread has no name, so its root frame is its function, with the line that started it.
            let [.., thread_start, root] = &stack[..] else { panic!("{what}: {stack:#?}") };
            assert_eq!(thread_start.function, "thread start", "{what}: {stack:#?}");
            assert_eq!(root.function, full, "{what}: {stack:#?}");
            assert!(root.file.ends_with("src/main.rs"), "{what}: {root:?}");
            assert_eq!(root.line as i64, line_of("starts"), "{what}: {root:?}");
        }
    }
}

fn check_build(flags: Flags, arguments: &[&str], names: Names) {
    check_built(flags, &build(flags, arguments, &[]), names);
}

fn check_built(flags: Flags, binary: &Path, names: Names) {
    let written = run(binary);
    check(flags.0, &written.profile, names);
    check_trace(flags.0, &written.trace, names);
    if names == Names::Lines {
        check_channel(flags.0, &written.profile);
    }
    check_frames(flags.0, &written, names);
}

fn debug(flags: Flags) {
    check_build(flags, &[], Names::Lines);
}

fn release_without_debug_information(flags: Flags) {
    let arguments = ["--release", "--config", "profile.release.debug=0"];
    check_build(flags, &arguments, Names::Functions);
}

/// Line tables of our own crates too, as in users' builds, unlike in the fixture's other builds.
const LINE_TABLES: [&str; 5] = [
    "--release",
    "--config",
    "profile.release.debug='line-tables-only'",
    "--config",
    "profile.release.package.\"*\".debug='line-tables-only'",
];

fn line_tables_only(flags: Flags) {
    check_build(flags, &LINE_TABLES, Names::Lines);
}

/// As reproducible builds are made, with the compiler of a distribution: no path has its usual beginning, and names have
/// only their last segment.
fn remapped(flags: Flags) {
    let (name, captured) = flags;
    let registry = std::env::home_dir().expect("there is one").join(".cargo/registry/src");
    let all = format!(
        "{captured} --remap-path-prefix={}=/src/of-rtprof --remap-path-prefix={}=/deps",
        env!("CARGO_MANIFEST_DIR"),
        registry.display()
    );
    let binary = build((&format!("{name}-remapped"), &all), &LINE_TABLES, &[]);
    let mut bytes = std::fs::read(&binary).expect("it was built");
    // As long as `/rustc/` and the hash of a commit, so that all offsets in the file stay.
    let fedora = b"/builddir/build/BUILD/rust-1.8/rustc-1.83.0-src";
    let usual = b"/rustc/";
    assert_eq!(fedora.len(), usual.len() + 40);
    let places: Vec<usize> = (0..bytes.len() - 100)
        .filter(|&at| {
            bytes[at..].starts_with(usual) && bytes[at + 7..at + 47].iter().all(u8::is_ascii_hexdigit)
        })
        .collect();
    assert!(!places.is_empty(), "{name}: std's sources are named");
    for at in places {
        bytes[at..at + fedora.len()].copy_from_slice(fedora);
    }
    let of_a_distribution = folder_beside(&binary, "of-a-distribution").join("chain");
    std::fs::copy(&binary, &of_a_distribution).expect("the build's own folder can be written");
    std::fs::write(&of_a_distribution, bytes).expect("it is the test's own");
    check_built(flags, &binary, Names::Lines);
    check_built(flags, &of_a_distribution, Names::Lines);
}

fn split_debug_information(flags: Flags) {
    // For the program alone: the dependencies, which have none, are those of the other builds.
    let arguments = ["--release", "--config", "profile.release.debug=2"];
    // Of an earlier run.
    let package = folder::tmp().join(format!("builds-{}/release/chain.dwp", flags.0));
    std::fs::remove_file(&package).ok();
    let whole = build(flags, &arguments, &["-Csplit-debuginfo=packed"]);
    assert!(package.exists(), "{}: it is split", flags.0);
    check_built(flags, &whole, Names::Lines);
    // The package with the debug information stays behind.
    let alone = folder_beside(&whole, "without-package").join("chain");
    std::fs::copy(&whole, &alone).expect("the build's own folder can be written");
    let profile = run(&alone).profile;
    check_comment(flags.0, &profile, Some(WITHOUT_PACKAGE));
    let mapping = mapping(flags.0, &profile);
    assert!(mapping.has_line_numbers && !mapping.has_inline_frames, "{}: the flags are truthful", flags.0);
}

/// As musl's C library is: its functions have their rules in `.debug_frame`, and none without debug information.
fn c_without_eh_frame(flags: Flags) {
    let binary = |has_rules: bool| {
        let mut command = Command::new("cc");
        command.args(["-c", "-O2", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables"]);
        command.args(has_rules.then_some("-g"));
        let source = folder::root().join("tests/fixtures/calls_back.c");
        // Cargo sees its name, and not its contents.
        let object = folder::tmp().join(format!("calls_back-{}-{has_rules}.o", flags.0));
        let link = format!("-Clink-arg={}", compile(command, &source, object).display());
        let debug = ["--release", "--config", "profile.release.debug=1"];
        build(flags, &debug, &["--cfg=with_c", &link])
    };
    let with_rules = run(&binary(true)).profile;
    check(flags.0, &with_rules, Names::Lines);
    let without = run(&binary(false)).profile;
    for size in [50_001, 70_001] {
        let whole = sample(&with_rules, size);
        assert!(whole.has("calls_back"), "{}: {:#?}", flags.0, whole.frames);
        let short = sample(&without, size);
        let end = short.frames.last().map(|frame| frame.function.as_str());
        assert_eq!(end, Some("calls_back"), "{}: {:#?}", flags.0, short.frames);
    }
}

fn folder_beside(binary: &Path, name: &str) -> PathBuf {
    let folder = binary.with_file_name(name);
    std::fs::create_dir_all(&folder).expect("the build's own folder can be written");
    folder
}

fn fat_lto(flags: Flags) {
    let debug = "profile.release.debug='line-tables-only'";
    let arguments = ["--release", "--config", debug, "--config", "profile.release.lto='fat'"];
    check_build(flags, &arguments, Names::Lines);
}

/// The stripped binary runs, and the binary with symbols is kept: `go tool pprof BINARY PROFILE` names the addresses,
/// by the build id, and [`pprof::symbolize`] as the program itself would.
fn stripped(flags: Flags) {
    let what = flags.0;
    let whole = build(flags, &["--release", "--config", "profile.release.debug=2"], &[]);
    let binary = folder_beside(&whole, "stripped").join("chain");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&binary).arg(&whole);
    assert!(child::finish(&mut strip).status.success(), "{strip:?}");
    let Written { profile_path: path, profile, .. } = run(&binary);
    check_addresses(what, &profile);
    let mut named = Vec::new();
    let addresses = std::fs::read(&path).expect("the fixture wrote it");
    pprof::symbolize(&*addresses, &whole, &mut named).expect("the copy has the names");
    check(what, &Profile::read(&named), Names::Lines);
    let error = pprof::symbolize(&*addresses, &binary, std::io::sink()).expect_err("it is stripped");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{what}: {error}");
    for go in go::toolchains("stripped") {
        let index = Path::new("-sample_index=alloc_space");
        let text = go.pprof(&[Path::new("-traces"), index, &whole, &path]);
        // Whether a name has its path, and whether inlined functions are listed, depends on the helper that pprof finds
        // (addr2line, llvm-symbolizer). The frames of the stack are listed in either case.
        let stacks = text.split("-----------+--").map(|stack| {
            let names = stack.lines().filter_map(|line| line.trim().rsplit([' ', ':']).next());
            names.map(str::to_owned).collect::<Vec<_>>()
        });
        let stack = stacks.into_iter().find(|stack| stack.iter().any(|name| name == "on_a_thread"));
        let stack = stack.unwrap_or_else(|| panic!("{what}: Go {}: {text}", go.version));
        let places = ["leaf", "middle", "outer", "on_a_thread", "thread_start"].map(|function| {
            let place = stack.iter().position(|name| name == function);
            place.unwrap_or_else(|| panic!("{what}: Go {}: no {function} in {text}", go.version))
        });
        assert!(places.is_sorted(), "{what}: Go {}: {text}", go.version);
    }
}

fn check_addresses(what: &str, profile: &Profile) {
    let sample = sample(profile, 70_001);
    assert!(!sample.has("chain::"), "{what}: it is not stripped, or names are made up");
    assert!(sample.frames.len() > 6, "{what}: the stack is whole: {:#?}", sample.frames);
    let mapping = mapping(what, profile);
    assert!(!profile.text(mapping.build_id).is_empty(), "{what}: with its build id");
    assert!(!mapping.has_functions && !mapping.has_line_numbers, "{what}: the flags are truthful");
    check_comment(what, profile, Some(STRIPPED));
}
