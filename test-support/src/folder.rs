//! The folders of the repository and of the build.

use std::path::{Path, PathBuf};

/// Returns the folder of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is in a folder of the repository")
}

/// Returns the build's own folder for files of tests: `tmp`, next to `debug` and `release`. Cargo gives this path
/// (`CARGO_TARGET_TMPDIR`) only to integration tests.
pub fn tmp() -> PathBuf {
    let program = std::env::current_exe().expect("a test knows its own binary");
    let is = |folder: &Path, name: &str| folder.file_name().is_some_and(|known| known == name);
    // Cargo builds tests in TARGET/PROFILE/deps; a copy of a test's program is already in this folder.
    let known = program.ancestors().find(|folder| is(folder, "deps") || is(folder, "tmp"));
    let known = known.expect("the test was built by Cargo");
    let tmp = if is(known, "tmp") { known.to_owned() } else { known.join("../../tmp") };
    std::fs::create_dir_all(&tmp).expect("the build's own folder can be written");
    tmp.canonicalize().expect("it exists")
}

/// Returns the crate that this test binary was made of, as it stands in names of functions.
pub fn test_crate() -> String {
    let program = std::env::current_exe().expect("a test knows its own binary");
    let stem = program.file_stem().and_then(|stem| stem.to_str()).expect("Cargo gives plain names");
    // `traces-0123456789abcdef`
    stem.rsplit_once('-').map_or(stem, |(name, _)| name).replace('-', "_")
}
