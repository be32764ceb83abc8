//! The real `go tool pprof`, of the newest Go and of the oldest that must read us.
//!
//! `ci/go.sh` installs them. A test that finds none says loudly that it was skipped; with
//! `RTPROF_REQUIRE_GO=1` it fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::child;

const VERSIONS: [&str; 2] = ["1.27.3", "1.21.13"];

/// One installed toolchain.
pub(crate) struct Go {
    pub(crate) version: &'static str,
    home: PathBuf,
}

/// The installed toolchains. Empty means: skip, and it has been said.
pub(crate) fn toolchains(test: &str) -> Vec<Go> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/go");
    let (found, missing): (Vec<_>, Vec<_>) =
        VERSIONS.into_iter().partition(|version| home.join(version).join("ready").exists());
    if !missing.is_empty() {
        let message = format!("Go {} is absent; `ci/go.sh` installs it", missing.join(" and "));
        assert!(std::env::var("RTPROF_REQUIRE_GO").as_deref() != Ok("1"), "{message}");
        super::skipped(test, &message);
    }
    found.into_iter().map(|version| Go { version, home: home.clone() }).collect()
}

impl Go {
    /// What `go tool pprof ARGUMENTS` prints. Fails if it fails, and if it has anything to complain of:
    /// pprof reads many a broken profile with a warning.
    pub(crate) fn pprof<A: AsRef<std::ffi::OsStr>>(&self, arguments: &[A]) -> String {
        let mut command = self.pprof_command();
        command.args(arguments);
        let output = child::finish(&mut command);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && stderr.trim().is_empty(),
            "Go {}: {command:?}\n{}",
            self.version,
            child::report(&output)
        );
        String::from_utf8(output.stdout).expect("pprof prints UTF-8")
    }

    /// `go tool pprof`, its arguments still to come.
    pub(crate) fn pprof_command(&self) -> Command {
        let root = self.home.join(self.version).join("go");
        let mut command = Command::new(root.join("bin/go"));
        // Settings of the machine must not decide a test; ci/go.sh uses the same.
        command
            .env_remove("PPROF_BINARY_PATH")
            .env_remove("PPROF_TOOLS")
            .env("GOROOT", root)
            .env("GOTOOLCHAIN", "local")
            .env("GOFLAGS", "-mod=mod")
            .env("GOENV", "off")
            .env("GOTELEMETRY", "off")
            .env("GOPATH", self.home.join("path"))
            .env("GOCACHE", self.home.join("cache"))
            .env("PPROF_TMPDIR", self.home.join("pprof"))
            .env("BROWSER", "/bin/true")
            .args(["tool", "pprof"]);
        command
    }
}
