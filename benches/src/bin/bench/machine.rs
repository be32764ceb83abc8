//! Describes the machine and the versions with which the table was measured.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::binaries::workspace;
use crate::effort::Effort;

/// What is known before the first measurement.
pub(crate) struct Before {
    /// The sources that are about to be built. They may be edited while their benchmarks run.
    commit: String,
    /// Shows whether the machine was idle.
    load: String,
}

/// Call before the binaries are built.
pub(crate) fn before() -> Before {
    Before { commit: commit(), load: load() }
}

/// Returns the load of the machine over the last minute, five and fifteen.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Returns the lines on the machine and the run, for the heading of a table.
pub(crate) fn describe(effort: &Effort, before: &Before, took: Duration) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = first_line(fs::read_to_string("/proc/sys/kernel/osrelease").ok());
    let peers = peers(if effort.peers { &PEERS } else { &LOCKS });
    [
        format!("- run: {}", effort.name),
        format!("- CPU: {}, {cores} cores", cpu()),
        format!("- kernel: {kernel}; {}", libc_version()),
        format!("- {}", output(Command::new(rustc()).arg("--version"))),
        format!("- commit: {}", before.commit),
        format!("- peers: {peers}"),
        format!(
            "- load average before: {}; after: {}; took {:.0} s\n",
            before.load,
            load(),
            took.as_secs_f64()
        ),
    ]
    .join("\n")
}

fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field =
        |name: &str| text.lines().find(|line| line.starts_with(name))?.split_once(':').map(|(_, v)| v.trim());
    field("model name").unwrap_or("unknown").to_owned()
}

fn rustc() -> String {
    std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned())
}

fn libc_version() -> String {
    output(Command::new("getconf").arg("GNU_LIBC_VERSION"))
}

/// Returns the commit, and whether the tree differs from it.
fn commit() -> String {
    let git = |arguments: &[&str]| output(Command::new("git").current_dir(workspace()).args(arguments));
    let hash = git(&["rev-parse", "--short", "HEAD"]);
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changed == UNKNOWN || changed.is_empty() { hash } else { format!("{hash} with changes") }
}

const PEERS: [&str; 16] = [
    "tikv-jemallocator",
    "tikv-jemalloc-sys",
    "mimalloc",
    "libmimalloc-sys",
    "stats_alloc",
    "dhat",
    "dial9",
    "hotpath",
    "console-subscriber",
    "backtrace",
    "parking_lot",
    "parking_lot_core",
    "fastrace",
    "puffin",
    "tracing-chrome",
    "tracing-subscriber",
];

/// The peers that take part in a quick run.
const LOCKS: [&str; 3] = ["backtrace", "parking_lot", "parking_lot_core"];

/// Returns names and versions from the lock file.
fn peers(names: &[&str]) -> String {
    let lock = fs::read_to_string(workspace().join("Cargo.lock")).unwrap_or_default();
    let version = |name: &str| {
        let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        Some(format!("{name} {}", rest.split('"').next()?))
    };
    names.iter().filter_map(|name| version(name)).collect::<Vec<_>>().join(", ")
}

const UNKNOWN: &str = "unknown";

fn output(command: &mut Command) -> String {
    let text = command.output().ok().filter(|out| out.status.success()).map(|out| out.stdout);
    match text {
        Some(bytes) => first_line(String::from_utf8(bytes).ok()),
        None => UNKNOWN.to_owned(),
    }
}

fn first_line(text: Option<String>) -> String {
    text.as_deref().and_then(|text| text.lines().next()).unwrap_or_default().to_owned()
}
