//! A profile as `go tool pprof -raw` reads it, and a trace as `go tool trace` does, from bytes.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::folder;
use crate::go::{self, Go};

/// The contents of a profile as pprof reads them.
pub struct Raw {
    /// The period's type, the period, the types of the values.
    pub head: Vec<String>,
    /// The values of each sample.
    pub values: Vec<Vec<i64>>,
}

/// Returns what pprof reads from a profile. It must not print a warning: pprof reads many broken profiles with a
/// warning.
pub fn raw(go: &Go, profile: &[u8]) -> Raw {
    let path = saved(profile, "profile");
    let options = ["-symbolize=none", "-raw"].map(Into::into);
    let text = go.pprof(&[options.as_slice(), &[path.clone().into_os_string()]].concat());
    std::fs::remove_file(path).expect("it was written");
    parse(&text)
}

/// Checks that every installed Go that knows the format reads the trace, and makes profiles of it.
pub fn trace_is_read(trace: &[u8], what: &str) {
    static TOOLCHAINS: LazyLock<Vec<Go>> = LazyLock::new(|| go::toolchains("traces by go tool trace"));
    let path = saved(trace, "trace");
    for go in &*TOOLCHAINS {
        if !go.reads_second() && !trace.starts_with(b"go 1.19") {
            continue;
        }
        assert!(!go.trace_events(&path).is_empty(), "Go {} prints no event of {what}", go.version);
        for kind in ["sync", "net", "syscall", "sched"] {
            let profile = go.trace(&format!("-pprof={kind}"), &path);
            assert!(!profile.is_empty(), "Go {} makes no profile {kind} of {what}", go.version);
        }
    }
    std::fs::remove_file(path).expect("it was written");
}

/// Saves bytes in a file that no other test uses.
fn saved(bytes: &[u8], ending: &str) -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder::tmp().join(format!("go-{}-{number}.{ending}", std::process::id()));
    std::fs::write(&path, bytes).expect("the build's own folder can be written");
    path
}

/// Parses
/// ```text
/// PeriodType: contentions count
/// Period: 1
/// ...
/// Samples:
/// contentions/count delay/nanoseconds
///          40       4500: 1 2
///                 tenant:[a]
/// Locations
/// ```
fn parse(raw: &str) -> Raw {
    let field =
        |name: &str| raw.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
    let mut samples = raw.lines().skip_while(|line| *line != "Samples:").skip(1);
    let types = samples.next().unwrap_or_default();
    let values = samples.take_while(|line| *line != "Locations").filter_map(|line| {
        let (values, _) = line.split_once(": ")?;
        values.split_whitespace().map(|value| value.parse().ok()).collect()
    });
    Raw { values: values.collect(), head: vec![field("PeriodType: "), field("Period: "), types.to_owned()] }
}
