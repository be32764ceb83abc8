//! Programs of tests/fixtures that a test builds with cargo, in ways that differ from the test's own build.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{child, folder};

/// A copy outside of the source folder, where cargo may write its lock file.
pub struct Fixture {
    package: PathBuf,
}

impl Fixture {
    pub fn copied(name: &str) -> Self {
        let root = folder::root();
        let package = folder::tmp().join(name);
        copy_folder(&root.join("tests/fixtures").join(name), &package);
        let manifest = package.join("Cargo.toml");
        let text = std::fs::read_to_string(root.join("tests/fixtures").join(name).join("Cargo.toml"));
        let text = text.expect("it is in the repository").replace("../../..", &root.to_string_lossy());
        write_if_changed(&manifest, text.as_bytes());
        // Our own lock file, so that the build needs no network. Cargo removes the packages that the fixture does not
        // use.
        std::fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).expect("the lock file is there");
        Self { package }
    }

    /// Returns `cargo build`, or the command of another verb, with these compiler flags and none that are inherited.
    pub fn cargo(&self, verb: &str, target: &Path, flags: &str) -> Command {
        let mut command = Command::new(env!("CARGO"));
        command.current_dir(&self.package).args([verb, "--quiet", "--offline"]);
        command.arg("--target-dir").arg(target).env("RUSTFLAGS", flags);
        for inherited in ["CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS"] {
            command.env_remove(inherited);
        }
        command
    }
}

/// Runs the command, and fails with its whole output unless it ended with success.
#[track_caller]
pub fn succeed(command: &mut Command) {
    let output = child::finish(command);
    assert!(output.status.success(), "{command:?}: {}", child::report(&output));
}

fn copy_folder(from: &Path, into: &Path) {
    std::fs::create_dir_all(into).expect("the build's own folder can be written");
    for entry in std::fs::read_dir(from).expect("it is in the repository") {
        let path = entry.expect("it can be read").path();
        let copy = into.join(path.file_name().expect("it has a name"));
        if path.is_dir() {
            copy_folder(&path, &copy);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            write_if_changed(&copy, &std::fs::read(&path).expect("it can be read"));
        }
    }
}

fn write_if_changed(path: &Path, text: &[u8]) {
    if std::fs::read(path).is_ok_and(|old| old == text) {
        return;
    }
    std::fs::write(path, text).expect("the build's own folder can be written");
}
