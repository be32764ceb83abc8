//! The real `go tool trace`, for tests. `ci/go.sh` installs it; `go_pprof` says what happens if it is absent.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The oldest version that reads the first format, and only that.
const OLDEST: &str = "1.21.13";

/// Each Go version, with the option that prints all events.
const VERSIONS: [(&str, &str); 2] = [("1.27.3", "-d=parsed"), (OLDEST, "-d")];

/// Checks that every installed Go that knows the format reads the trace, and makes profiles of it.
pub(crate) fn reads(trace: &[u8], what: &str) {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target").join("go");
    // Tests of one process run at the same time, and some use the same names.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("rtprof-{}-{number}-{what}.trace", std::process::id()));
    std::fs::write(&path, trace).unwrap();
    for (version, print) in VERSIONS {
        let home = home.join(version);
        if !home.join("tool/ready").exists() {
            assert!(std::env::var("RTPROF_REQUIRE_GO").as_deref() != Ok("1"), "Go {version} is absent");
            eprintln!("SKIPPED: Go {version} is absent; `ci/go.sh` installs it");
            continue;
        }
        if version == OLDEST && !trace.starts_with(b"go 1.19") {
            continue;
        }
        for mode in [print, "-pprof=sync", "-pprof=net", "-pprof=syscall", "-pprof=sched"] {
            let output = Command::new(home.join("tool/trace"))
                .env("GOROOT", home.join("go"))
                .env("BROWSER", "/bin/true")
                .arg(mode)
                .arg(&path)
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "Go {version} {mode} of {what}: {errors}");
            assert!(!output.stdout.is_empty(), "Go {version} {mode} of {what} prints nothing");
        }
    }
    std::fs::remove_file(&path).unwrap();
}
