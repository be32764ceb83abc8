//! Debug information as packages of distributions keep it: apart from a stripped program, and compressed by `dwz`.

use std::path::{Path, PathBuf};
use std::process::Command;

use test_support::child;

use super::{Flags, Names, STRIPPED, WITHOUT_ALTERNATIVE};

/// Builds the fixture with all debug information.
fn whole(flags: Flags) -> PathBuf {
    super::build(flags, &["--release", "--config", "profile.release.debug=2"], &[])
}

/// Returns an empty folder for one way to keep the debug information of `whole`.
fn folder_for(whole: &Path, name: &str) -> PathBuf {
    let folder = whole.with_file_name(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the build's own folder can be written");
    folder
}

fn copied(whole: &Path, folder: &Path, name: &str) -> PathBuf {
    std::fs::create_dir_all(folder).expect("the build's own folder can be written");
    let copy = folder.join(name);
    std::fs::copy(whole, &copy).expect("the build's own folder can be written");
    copy
}

fn succeed(program: &str, arguments: &[&str], files: &[&Path]) {
    let mut command = Command::new(program);
    command.args(arguments).args(files);
    let output = child::finish(&mut command);
    assert!(output.status.success(), "{command:?}: {}", child::report(&output));
}

/// Moves the debug information of `program` to `debug`, and lets `program` say so.
fn move_debug_information(program: &Path, debug: &Path) {
    succeed("objcopy", &["--only-keep-debug"], &[program, debug]);
    succeed("strip", &[], &[program]);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    succeed("objcopy", &[&link], &[program]);
}

/// A stripped program whose debug information lies where gdb would find it.
pub(super) fn kept_apart(flags: Flags) {
    let what = flags.0;
    let whole = whole(flags);
    for places in ["chain.debug", ".debug/chain.debug"] {
        let folder = folder_for(&whole, "kept-apart");
        let program = copied(&whole, &folder, "chain");
        std::fs::create_dir_all(folder.join(".debug")).expect("the folder is the test's own");
        move_debug_information(&program, &folder.join(places));
        super::check_built(flags, &program, Names::Lines);
        // Of another build: its names would be wrong.
        let other = folder_for(&whole, "of-another-build").join("other");
        succeed("objcopy", &["--remove-section=.note.gnu.build-id"], &[&folder.join(places), &other]);
        damage(&other);
        std::fs::rename(&other, folder.join(places)).expect("both are the test's own");
        super::check_comment(what, &super::run(&program).profile, Some(STRIPPED));
    }
    without_build_id(what, &whole);
}

/// Without a build id the checksum tells whether a file belongs to the program.
fn without_build_id(what: &str, whole: &Path) {
    let folder = folder_for(whole, "without-build-id");
    let program = copied(whole, &folder, "chain");
    succeed("objcopy", &["--remove-section=.note.gnu.build-id"], &[&program]);
    let debug = folder.join("chain.debug");
    move_debug_information(&program, &debug);
    let main = ["leaf", "inlined", "middle", "outer", "main"];
    let profile = super::run(&program).profile;
    super::check_chain(what, &super::sample(&profile, 50_001), &main, "main", Names::Lines);
    damage(&debug);
    super::check_comment(what, &super::run(&program).profile, Some(STRIPPED));
}

/// Appends a byte: nothing changes but the checksum.
fn damage(file: &Path) {
    let mut bytes = std::fs::read(file).expect("the file is the test's own");
    bytes.push(0);
    std::fs::write(file, bytes).expect("the file is the test's own");
}

/// Compressed sections, and the compression of Debian's and Fedora's packages.
pub(super) fn compressed(flags: Flags) {
    let what = flags.0;
    let whole = whole(flags);
    for format in ["zlib", "zstd"] {
        let program = folder_for(&whole, format).join("chain");
        succeed("objcopy", &[&format!("--compress-debug-sections={format}")], &[&whole, &program]);
        super::check_built(flags, &program, Names::Lines);
    }
    if Command::new("dwz").arg("--version").output().is_err() {
        let message = "dwz is absent (Debian: apt-get install dwz)";
        assert!(std::env::var("RTPROF_REQUIRE_DWZ").as_deref() != Ok("1"), "{message}");
        return test_support::skipped("compressed", message);
    }
    // Neither the number of entries nor of bytes is limited.
    let unlimited = ["-L", "none", "-l", "none"];
    let alone = copied(&whole, &folder_for(&whole, "dwz"), "chain");
    succeed("dwz", &unlimited, &[&alone]);
    super::check_built(flags, &alone, Names::Lines);
    // What two programs share lies in a third file. Its path in the programs is relative.
    let folder = folder_for(&whole, "dwz-shared");
    let [program, other] = ["one", "two"].map(|name| copied(&whole, &folder.join(name), "chain"));
    let shared = folder.join("shared");
    let shared_path = shared.display().to_string();
    succeed("dwz", &[&unlimited[..], &["-r", "-m", &shared_path]].concat(), &[&program, &other]);
    assert!(shared.exists(), "{what}: they share something");
    super::check_built(flags, &program, Names::Lines);
    std::fs::remove_file(&shared).expect("the file is the test's own");
    let profile = super::run(&program).profile;
    super::check_comment(what, &profile, Some(WITHOUT_ALTERNATIVE));
    let mapping = super::mapping(what, &profile);
    assert!(mapping.has_line_numbers && !mapping.has_inline_frames, "{what}: the flags are truthful");
    let sample = super::sample(&profile, 50_001);
    for function in ["leaf", "middle", "outer", "main"] {
        let full = format!("chain::{function}");
        let frame = sample.frames.iter().find(|frame| frame.function == full);
        let frame = frame.unwrap_or_else(|| panic!("{what}: no {full} in {:#?}", sample.frames));
        // Right or absent.
        assert!(frame.line == 0 || frame.line == super::line_of(function), "{what}: {:#?}", sample.frames);
    }
    let nameless = sample.frames.iter().find(|frame| frame.function.contains('?'));
    assert_eq!(nameless, None, "{what}: {:#?}", sample.frames);
}
