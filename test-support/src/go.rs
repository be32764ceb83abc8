//! The real `go tool pprof` and `go tool trace`, of the newest Go and of the oldest that must read our files; and of
//! one that reads the second format of traces, but not its newest version.
//!
//! `ci/go.sh` installs them. A test that finds none reports loudly that it was skipped; with `RTPROF_REQUIRE_GO=1` it
//! fails.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

#[cfg(feature = "rtprof")]
use crate::profile::Profile;
use crate::{child, folder};

const NEWEST: &str = "1.27.3";
const OLDEST: &str = "1.21.13";
const BETWEEN: &str = "1.23.9";

/// How long a viewer may take to read a trace, until it listens.
const PATIENCE: Duration = Duration::from_secs(240);

/// An installed toolchain.
#[derive(Clone)]
pub struct Go {
    pub version: &'static str,
    home: PathBuf,
}

/// Returns the installed ones of the newest and the oldest toolchain. An empty list means that the test is to be
/// skipped, which has been reported.
pub fn toolchains(test: &str) -> Vec<Go> {
    installed(test, &[NEWEST, OLDEST])
}

/// Returns the installed toolchains that read traces, each as often as it reads formats, with the format's name.
pub fn trace_toolchains(test: &str) -> Vec<(Go, &'static str)> {
    let all = installed(test, &[NEWEST, BETWEEN, OLDEST]);
    let formats = |go: &Go| match go.version {
        NEWEST => &["v2", "v1"][..],
        BETWEEN => &["v2-go1.22"],
        _ => &["v1"],
    };
    all.into_iter().flat_map(|go| formats(&go).iter().map(move |&format| (go.clone(), format))).collect()
}

fn installed(test: &str, versions: &[&'static str]) -> Vec<Go> {
    let home = folder::root().join("target/go");
    let (found, missing): (Vec<_>, Vec<_>) =
        versions.iter().copied().partition(|version| home.join(version).join("tool/ready").exists());
    if !missing.is_empty() {
        let message = format!("Go {} is absent; `ci/go.sh` installs it", missing.join(" and "));
        assert!(std::env::var("RTPROF_REQUIRE_GO").as_deref() != Ok("1"), "{message}");
        crate::skipped(test, &message);
    }
    found.into_iter().map(|version| Go { version, home: home.clone() }).collect()
}

impl Go {
    /// Returns the output of `go tool pprof ARGUMENTS`. Fails if pprof fails or gives a warning: pprof reads many a
    /// broken profile with a warning.
    pub fn pprof<A: AsRef<std::ffi::OsStr>>(&self, arguments: &[A]) -> String {
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

    /// Returns the command `go tool pprof` without arguments.
    pub fn pprof_command(&self) -> Command {
        self.tool("pprof")
    }

    /// Returns the command `go tool NAME`, but that it runs the tool itself, as `ci/go.sh` has found it.
    fn tool(&self, name: &str) -> Command {
        let version = self.home.join(self.version);
        let mut command = Command::new(version.join("tool").join(name));
        // Settings of the machine must not influence a test; ci/go.sh uses the same environment.
        command
            .env_remove("PPROF_BINARY_PATH")
            .env_remove("PPROF_TOOLS")
            .env("GOROOT", version.join("go"))
            .env("GOTOOLCHAIN", "local")
            .env("GOFLAGS", "-mod=mod")
            .env("GOENV", "off")
            .env("GOTELEMETRY", "off")
            .env("GOPATH", self.home.join("path"))
            .env("GOCACHE", self.home.join("cache"))
            .env("PPROF_TMPDIR", self.home.join("pprof"))
            .env("BROWSER", "/bin/true");
        command
    }

    /// Whether it reads the second format, and shows traces in its terms.
    pub fn reads_second(&self) -> bool {
        self.version != OLDEST
    }

    /// Whether its profiles of traces count only changes with a stack.
    pub fn overlooks_starts(&self) -> bool {
        self.version == BETWEEN
    }

    /// Returns the output of `go tool trace ARGUMENTS FILE`. Fails if it fails.
    pub fn trace(&self, argument: &str, path: &Path) -> Vec<u8> {
        let mut command = self.tool("trace");
        command.arg(argument).arg(path);
        // `child::finish` is unsuitable: it reads texts, and profiles are none.
        let output = command.stdin(Stdio::null()).output();
        let output = output.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        let is_well = output.status.success() && !stderr.contains("panic");
        assert!(is_well, "Go {}: {command:?}\n{}\n{stderr}", self.version, output.status);
        output.stdout
    }

    /// Returns all events of a trace as `go tool trace -d` prints them.
    pub fn trace_events(&self, path: &Path) -> String {
        let argument = match self.version {
            NEWEST => "-d=parsed",
            BETWEEN => "-d=1",
            _ => "-d",
        };
        String::from_utf8(self.trace(argument, path)).expect("it prints UTF-8")
    }

    /// Returns all events of a trace in the second format as they are in the file.
    pub fn trace_wire_events(&self, path: &Path) -> String {
        let argument = if self.version == NEWEST { "-d=wire" } else { "-d=2" };
        String::from_utf8(self.trace(argument, path)).expect("it prints UTF-8")
    }

    /// Returns the profile that `go tool trace -pprof=KIND` makes of a trace.
    #[cfg(feature = "rtprof")]
    pub fn trace_profile(&self, kind: &str, path: &Path) -> Profile {
        Profile::read(&self.trace(&format!("-pprof={kind}"), path))
    }

    /// Opens a trace as its user would: `go tool trace FILE`.
    pub fn view(&self, path: &Path) -> Viewer {
        let mut command = self.tool("trace");
        command.arg("-http=127.0.0.1:0").arg(path);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stderr = BufReader::new(child.stderr.take().expect("it is a pipe"));
        let (found, address) = mpsc::channel();
        let said = std::thread::spawn(move || {
            let mut said = String::new();
            for line in stderr.lines().map_while(Result::ok) {
                if let Some((_, address)) = line.split_once("listening on http://") {
                    found.send(address.trim().parse()).ok();
                }
                said.push_str(&line);
                said.push('\n');
            }
            said
        });
        let mut viewer = Viewer { version: self.version, child, said: Some(said), address: None };
        match address.recv_timeout(PATIENCE) {
            Ok(Ok(address)) => viewer.address = Some(address),
            error => {
                let said = viewer.end();
                panic!("Go {}: {command:?} serves nothing ({error:?}):\n{said}", self.version);
            }
        }
        viewer
    }
}

/// A running `go tool trace` with its web pages. Dropping it ends the tool.
pub struct Viewer {
    version: &'static str,
    child: Child,
    /// Its whole error output.
    said: Option<JoinHandle<String>>,
    address: Option<SocketAddr>,
}

impl Viewer {
    pub fn address(&self) -> SocketAddr {
        self.address.expect("it is set before anybody has the viewer")
    }

    /// Ends the tool, and fails if it has reported an error: a page's panic shows only here.
    pub fn close(mut self) {
        let said = self.end();
        let complaints = ["panic", "goroutine ", "rror"];
        let is_well = !complaints.iter().any(|complaint| said.contains(complaint));
        assert!(is_well, "Go {}: go tool trace complains:\n{said}", self.version);
    }

    fn end(&mut self) -> String {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a killed child can be waited for");
        self.said.take().map_or(String::new(), |said| said.join().expect("reading a pipe does not panic"))
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        if self.said.is_some() {
            self.end();
        }
    }
}
