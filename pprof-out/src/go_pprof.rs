//! The real `go tool pprof`, for tests: the newest Go and the oldest that must read our profiles.
//!
//! `ci/go.sh` installs them. A test that finds none prints that it was skipped; with `RTPROF_REQUIRE_GO=1` it fails.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

const VERSIONS: [&str; 2] = ["1.27.3", "1.21.13"];

/// An installed toolchain.
pub(crate) struct Go {
    version: &'static str,
    home: PathBuf,
}

/// The contents of a profile as pprof reads them.
pub(crate) struct Raw {
    /// The period's type, the period, the types of the values.
    pub(crate) head: Vec<String>,
    /// The values of each sample.
    pub(crate) values: Vec<Vec<i64>>,
}

/// Returns the installed toolchains.
pub(crate) fn toolchains() -> Vec<Go> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target").join("go");
    let (found, missing): (Vec<_>, Vec<_>) =
        VERSIONS.into_iter().partition(|version| home.join(version).join("tool/ready").exists());
    if !missing.is_empty() {
        let message = format!("Go {} is absent; `ci/go.sh` installs it", missing.join(" and "));
        assert!(std::env::var("RTPROF_REQUIRE_GO").as_deref() != Ok("1"), "{message}");
        eprintln!("SKIPPED: {message}");
    }
    found.into_iter().map(|version| Go { version, home: home.clone() }).collect()
}

impl Go {
    /// Returns what `go tool pprof -raw` reads from a profile. It must not print a warning: pprof reads many broken
    /// profiles with a warning.
    pub(crate) fn raw(&self, profile: &[u8]) -> Raw {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("rtprof-{}-{number}.profile", std::process::id()));
        std::fs::write(&path, profile).unwrap();
        let home = self.home.join(self.version);
        // The machine's settings must not influence a test; ci/go.sh uses the same.
        let output = Command::new(home.join("tool/pprof"))
            .env_remove("PPROF_BINARY_PATH")
            .env_remove("PPROF_TOOLS")
            .env("GOROOT", home.join("go"))
            .env("PPROF_TMPDIR", self.home.join("pprof"))
            .args(["-symbolize=none", "-raw"])
            .arg(&path)
            .output()
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && err.trim().is_empty(), "Go {}: {err}{out}", self.version);
        parse(&out)
    }
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
