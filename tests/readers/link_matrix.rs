//! Waits of unmodified code are recorded however a program is linked; where this is impossible the program runs as
//! without rtprof.
//!
//! The fixture `waits` waits for locks, channels, threads and sockets, in its own code and in a library of C, and
//! compares with the profiles. This file builds the fixture in each way.
//!
//! This takes minutes, so that a plain `cargo test` ignores it; `ci/builds.sh` runs the kinds that differ most.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};

use test_support::fixture::{Fixture, succeed};
use test_support::folder;
use test_support::library::compile;
use test_support::skipped;

fn tmp(name: &str) -> PathBuf {
    folder::tmp().join(name)
}

/// Takes the turn of a build, because the builds share folders.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A way to build the fixture.
#[derive(Clone, Copy)]
struct Build {
    /// The folder of the build's output.
    name: &'static str,
    toolchain: Option<&'static str>,
    /// The compiler's flags.
    flags: &'static str,
    /// The part of the target's name after the architecture, for another target.
    target: Option<&'static str>,
    arguments: &'static [&'static str],
    /// Flags for the program alone, whose dependencies are those of other builds.
    last: &'static [&'static str],
}

/// In the folder of tests/readers/builds.rs, which builds dependencies with the same flags.
const PLAIN: Build = Build {
    name: "builds-frame-pointers",
    toolchain: None,
    flags: "-Cforce-frame-pointers=yes",
    target: None,
    arguments: &[],
    last: &[],
};
const RELEASE: Build = Build { arguments: &["--release"], ..PLAIN };

impl Build {
    fn is_release(self) -> bool {
        self.arguments.contains(&"--release")
    }

    fn target(self) -> Option<String> {
        self.target.map(|rest| format!("{ARCH}-{rest}"))
    }

    /// Returns a command for rustc or cargo of the toolchain.
    fn tool(self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.args(self.toolchain.map(|toolchain| format!("+{toolchain}")));
        command
    }

    fn library_folder(self) -> Option<PathBuf> {
        let mut command = self.tool("rustc");
        command.args(["--print", "target-libdir"]).env_remove("RUSTUP_TOOLCHAIN");
        command.args(self.target().iter().flat_map(|target| ["--target", target]));
        let output = command.output().ok().filter(|output| output.status.success())?;
        let folder = PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim());
        folder.is_dir().then_some(folder)
    }

    /// Builds the fixture, or reports that a needed tool is not installed. Returns the folder of its programs.
    fn make(self, test: &str) -> Option<PathBuf> {
        if self.library_folder().is_none() {
            skipped(test, "this toolchain, or its standard library for this target, is not installed");
            return None;
        }
        let target = tmp(self.name);
        let fixture = Fixture::copied("waits");
        let verb = if self.last.is_empty() { "build" } else { "rustc" };
        let mut command = fixture.cargo(verb, &target, self.flags);
        if let Some(toolchain) = self.toolchain {
            // Rustup chooses the toolchain for tools that are called by their name alone.
            command.env("RUSTUP_TOOLCHAIN", toolchain);
        }
        command.args(self.target().iter().flat_map(|target| ["--target", target]));
        command.args(self.arguments);
        if !self.last.is_empty() {
            command.args(["--bin", "waits", "--"]).args(self.last);
        }
        succeed(&mut command);
        let built = self.target().map_or(target.clone(), |name| target.join(name));
        Some(built.join(if self.is_release() { "release" } else { "debug" }))
    }

    /// Checks that the program's waits are recorded, and those in a library that it loads, if it can load one.
    fn sees(self, test: &str) {
        let _turn = turn();
        let Some(folder) = self.make(test) else { return };
        let mut command = Command::new(folder.join("waits"));
        command.arg("seen");
        let is_static =
            self.flags.contains("+crt-static") || self.target.is_some_and(|name| name.contains("musl"));
        if !is_static {
            command.arg(library_of_c());
        }
        if self.flags.contains("prefer-dynamic") {
            command.env("LD_LIBRARY_PATH", self.library_folder().expect("it was there"));
        }
        succeed(&mut command);
    }
}

/// Builds a library of C that waits in functions of the C library.
fn library_of_c() -> PathBuf {
    let folder = tmp("waits_in_c");
    std::fs::create_dir_all(&folder).expect("the build's own folder can be written");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/waits_in_c.c");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC"]);
    compile(command, &source, folder.join("libwaits_in_c.so"))
}

macro_rules! linked {
    ($($name:ident: $build:expr;)*) => {
        $(#[test]
        #[ignore = "builds a program in many ways; ci/builds.sh runs it"]
        fn $name() {
            let build: Build = $build;
            build.sees(stringify!($name));
        })*
    };
}

const GNU_LD: &str = "-Clink-arg=-fuse-ld=bfd";
const THIN_LTO: [&str; 3] = ["--release", "--config", "profile.release.lto='thin'"];
const FAT_LTO: [&str; 3] = ["--release", "--config", "profile.release.lto='fat'"];
const MUSL: Option<&str> = Some("unknown-linux-musl");

// Linked by the compiler's default linker, which is LLD on x86-64, unless the flags choose another one.
linked! {
    debug: PLAIN;
    release: RELEASE;
    thin_lto: Build { arguments: &THIN_LTO, ..RELEASE };
    fat_lto: Build { arguments: &FAT_LTO, ..RELEASE };
    gnu_ld: Build { last: &[GNU_LD], ..PLAIN };
    gnu_ld_stripped: Build { last: &[GNU_LD, "-Cstrip=symbols"], ..RELEASE };
    standard_library_apart: Build { name: "links-dynamic", flags: "-Cprefer-dynamic", ..PLAIN };
    c_library_inside: Build {
        // With an explicit target, because otherwise procedural macros would be built with these flags too.
        name: "links-crt-static", flags: "-Ctarget-feature=+crt-static", target: Some("unknown-linux-gnu"), ..RELEASE
    };
    musl: Build { name: "links-musl", target: MUSL, ..PLAIN };
    musl_fat_lto: Build { name: "links-musl", target: MUSL, arguments: &FAT_LTO, ..PLAIN };
}

/// In the test harness.
#[test]
#[ignore = "builds a program in many ways; ci/builds.sh runs it"]
fn cargo_test() {
    let _turn = turn();
    succeed(Fixture::copied("waits").cargo("test", &tmp(PLAIN.name), PLAIN.flags).args(["--test", "seen"]));
}

/// In a library that another program loads: the C library's functions come first, and the library works.
#[test]
#[ignore = "builds a program in many ways; ci/builds.sh runs it"]
fn loaded_by_another_program() {
    let _turn = turn();
    let folder = RELEASE.make("loaded_by_another_program").expect("it needs nothing special");
    succeed(Command::new(folder.join("host")).arg(folder.join("libwaits.so")));
}

/// Under AddressSanitizer, which replaces the same functions itself.
#[test]
#[ignore = "builds a program in many ways; ci/builds.sh runs it"]
fn sanitized() {
    let _turn = turn();
    let build = Build {
        name: "links-sanitized",
        toolchain: Some("nightly"),
        flags: "-Zsanitizer=address",
        target: Some("unknown-linux-gnu"),
        ..PLAIN
    };
    if let Some(folder) = build.make("sanitized") {
        succeed(Command::new(folder.join("waits")).arg("unseen"));
    }
}
