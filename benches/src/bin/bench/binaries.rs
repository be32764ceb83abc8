//! Builds the binaries that the driver runs.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A set of flags, which needs a separate target directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// The flags of this driver itself.
    Plain,
    /// jemalloc with its profiler compiled in.
    JemallocProfiling,
    /// No frame pointers in Rust code.
    NoFramePointers,
    /// The waits of unmodified code are recorded.
    Interposed,
    /// Both.
    InterposedNoFramePointers,
    /// tokio has its unstable hooks.
    TokioUnstable,
}

/// The binaries built without any peer.
const OWN: [&str; 16] = [
    "subject-none",
    "subject-pass-through",
    "subject-rtprof",
    "part-sample",
    "part-capture",
    "part-export",
    "part-goroutines",
    "part-tasks",
    "part-lock",
    "part-event",
    "part-wait",
    "part-calls",
    "part-http",
    "part-storm",
    "part-trace",
    "part-cpu",
];

/// The binaries that also capture stacks without frame pointers.
const CAPTURING: [&str; 5] = ["part-sample", "part-capture", "part-event", "part-trace", "part-cpu"];

/// The binaries that are also measured while the waits of unmodified code are recorded.
const INTERPOSED: [&str; 3] = ["part-calls", "part-wait", "part-lock"];

/// The service with rtprof, whose waits are always recorded, and the one without.
const SERVICE: &str = "part-service";
const WITHOUT: &str = "part-service-without";

const PEERS: [&str; 8] = [
    "subject-jemalloc",
    "subject-jemalloc-rtprof",
    "subject-mimalloc",
    "subject-mimalloc-rtprof",
    "subject-stats-alloc",
    "subject-dhat",
    "subject-dial9",
    "subject-hotpath",
];

/// The binaries that are built beside our own.
pub(crate) struct Wanted {
    /// Peers.
    pub(crate) allocators: bool,
    pub(crate) tracers: bool,
    pub(crate) samplers: bool,
    pub(crate) task_followers: bool,
    /// Our own binaries that record the waits of unmodified code.
    pub(crate) interposed: bool,
    /// The service with rtprof and without, and both without frame pointers too.
    pub(crate) services: bool,
    pub(crate) services_without_frame_pointers: bool,
}

/// The directory of the binaries.
pub(crate) struct Binaries {
    target: PathBuf,
}

impl Binaries {
    /// Builds our own binaries, and what else is wanted, and prints its progress.
    ///
    /// # Errors
    /// When cargo cannot be run or fails.
    pub(crate) fn build(wanted: Wanted) -> io::Result<Self> {
        let Wanted {
            allocators,
            tracers,
            samplers,
            task_followers,
            interposed,
            services,
            services_without_frame_pointers,
        } = wanted;
        let binaries = Self { target: own_target_directory()? };
        let (mut names, mut features) = (OWN.to_vec(), vec![]);
        if allocators {
            names.extend(PEERS);
            features.push("peers");
        }
        if tracers {
            names.push("part-trace-peers");
            features.push("trace-peers");
        }
        if samplers {
            names.push("part-cpu-peer");
            features.push("cpu-peers");
        }
        names.extend(services.then_some(WITHOUT));
        binaries.cargo(Build::Plain, &names, &features.join(","))?;
        if allocators {
            binaries.cargo(
                Build::JemallocProfiling,
                &["subject-jemalloc-profiling"],
                "jemalloc-profiling",
            )?;
        }
        if task_followers {
            binaries.cargo(Build::TokioUnstable, &["part-task-console"], "console-peer")?;
            binaries.cargo(Build::TokioUnstable, &["part-task-dial9"], "dial9-peer")?;
            binaries.cargo(Build::Plain, &["part-task-hotpath"], "hotpath-peer")?;
        }
        let mut names = CAPTURING.to_vec();
        names.extend(services_without_frame_pointers.then_some(WITHOUT));
        binaries.cargo(Build::NoFramePointers, &names, "")?;
        let mut names = if interposed { INTERPOSED.to_vec() } else { vec![] };
        names.extend(services.then_some(SERVICE));
        if !names.is_empty() {
            binaries.cargo(Build::Interposed, &names, "interpose")?;
        }
        if services_without_frame_pointers {
            binaries.cargo(Build::InterposedNoFramePointers, &[SERVICE], "interpose")?;
        }
        Ok(binaries)
    }

    /// Returns the path of a binary that was built.
    pub(crate) fn path(&self, build: Build, name: &str) -> PathBuf {
        self.directory(build).join("release").join(name)
    }

    fn directory(&self, build: Build) -> PathBuf {
        match build {
            Build::Plain => self.target.clone(),
            Build::JemallocProfiling => self.target.join("bench-jemalloc-profiling"),
            Build::NoFramePointers => self.target.join("bench-no-frame-pointers"),
            Build::Interposed => self.target.join("bench-interposed"),
            Build::InterposedNoFramePointers => self.target.join("bench-interposed-no-frame-pointers"),
            Build::TokioUnstable => self.target.join("bench-tokio-unstable"),
        }
    }

    fn cargo(&self, build: Build, names: &[&str], features: &str) -> io::Result<()> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command
            .current_dir(workspace())
            .args([
                "build",
                "--release",
                "--quiet",
                "-p",
                "rtprof-benches",
                "--features",
                features,
                "--target-dir",
            ])
            .arg(self.directory(build));
        for name in names {
            command.args(["--bin", name]);
        }
        // A value set here overrides the flags in .cargo/config.toml.
        let flags = match build {
            Build::NoFramePointers | Build::InterposedNoFramePointers => Some(""),
            Build::TokioUnstable => Some("-Cforce-frame-pointers=yes\x1f--cfg=tokio_unstable"),
            _ => None,
        };
        if let Some(flags) = flags {
            command.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags);
        }
        eprintln!("bench: building {build:?}: {}", names.join(" "));
        let status = command.status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("cargo build: {status}"))) }
    }
}

/// Returns the root of the workspace that this driver was built from.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies inside the workspace")
}

/// Returns the target directory: this driver is `TARGET/PROFILE/bench`, and its builds go under the same TARGET.
fn own_target_directory() -> io::Result<PathBuf> {
    let me = std::env::current_exe()?;
    let target = me.parent().and_then(Path::parent);
    target
        .map(Path::to_path_buf)
        .ok_or_else(|| io::Error::other("the driver lies outside a target directory"))
}
