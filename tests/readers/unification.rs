//! The effect of rtprof on the crates that a program shares with it. Cargo builds one copy of each with the features
//! that either requests, and a feature may replace the program's choice: a compression's backend, for example.
//!
//! The program here depends on every shared crate, once with default features and once without, and in each case with
//! and without rtprof.
#![cfg(target_os = "linux")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use test_support::child;
use test_support::folder;

/// Features that only add items, which do not affect a program that does not name them. Read the crate before adding to
/// this list.
const ONLY_ADD: [(&str, &[&str]); 22] = [
    ("addr2line", &["loader", "std"]),
    ("base64", &["alloc"]),
    ("bitflags", &["std"]),
    // It finds the processor's instructions: checksums are the same. flate2 asks for it.
    ("crc32fast", &["default", "std"]),
    // A program that has a backend keeps it: this backend is used only if there is no other.
    ("flate2", &["any_impl", "default", "miniz_oxide", "runtime_detection", "rust_backend"]),
    ("form_urlencoded", &["alloc", "default", "std"]),
    ("gimli", &["std"]),
    ("hyper", &["http1", "server"]),
    ("hyper-util", &["tokio"]),
    ("linux-raw-sys", &["prctl"]),
    ("lock_api", &["arc_lock"]),
    ("mio", &["net", "os-ext", "os-poll"]),
    ("object", &["compression", "elf", "read_core", "std"]),
    ("prost", &["derive", "std"]),
    ("regex-lite", &["default", "std", "string"]),
    ("rustix", &["alloc", "process", "std"]),
    ("serde_json", &["default", "std"]),
    ("smallvec", &["const_generics", "const_new"]),
    ("socket2", &["all"]),
    // Global subscribers, and those of a thread, need them.
    ("tracing-core", &["once_cell", "std"]),
    ("tracing-subscriber", &["alloc", "registry", "sharded-slab", "std", "thread_local"]),
    // `enable_all` of a runtime enables the compiled-in drivers: here that of time too.
    ("tokio", &["rt", "time"]),
];

/// The crates whose default features need hardly any further crate.
const WITH_DEFAULTS: [&str; 9] =
    ["bytes", "flate2", "http", "hyper", "lock_api", "parking_lot_core", "prost", "serde_json", "tokio"];

/// Package and version.
type Package = (String, String);
type Features = BTreeMap<Package, BTreeSet<String>>;

#[test]
fn a_program_keeps_its_own_features() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = shared_crates(root);
    assert!(shared.len() > 15 && shared.iter().any(|(name, _)| name == "flate2"), "{shared:?}");
    for has_defaults in [true, false] {
        let alone = features(root, &shared, has_defaults, false);
        let with_us = features(root, &shared, has_defaults, true);
        assert!(with_us.keys().any(|(name, _)| name == "rtprof-http"), "{with_us:#?}");
        for (package, own) in &alone {
            let merged = with_us.get(package).unwrap_or_else(|| panic!("{package:?} is replaced"));
            let allowed =
                ONLY_ADD.iter().find(|(name, _)| *name == package.0).map_or(&[][..], |(_, added)| added);
            for added in merged.difference(own) {
                assert!(
                    allowed.contains(&added.as_str()),
                    "{package:?} gets {added} (defaults: {has_defaults})"
                );
            }
        }
    }
}

/// A build of rtprof costs its users the time for these crates, and the trust in them.
#[test]
fn few_crates_are_needed() {
    let by_default = third_party(&[]);
    assert!(by_default.len() <= 60, "{}: {by_default:#?}", by_default.len());
    let gimlis = by_default.iter().filter(|package| package.starts_with("gimli ")).count();
    assert_eq!(gimlis, 1, "framehop and addr2line use different versions: {by_default:#?}");
    let allocator_only = third_party(&["--no-default-features"]);
    assert!((1..=20).contains(&allocator_only.len()), "{}: {allocator_only:#?}", allocator_only.len());
}

/// Returns the names and versions of the third-party crates that a build of the facade needs.
fn third_party(features: &[&str]) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let arguments = ["--package", "rtprof", "--edges", "normal,build", "--format", "{p}"];
    let text = tree(root, &[&arguments, features].concat());
    let packages = text.lines().map(|line| line.trim_end_matches(" (*)"));
    let is_other = |line: &&str| !line.is_empty() && !line.starts_with("rtprof");
    packages.filter(is_other).map(str::to_owned).collect()
}

/// Returns the names and versions of our packages' dependencies, from the workspace's table.
fn shared_crates(root: &Path) -> Vec<(String, String)> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("it is in the repository");
    let (_, table) = manifest.split_once("[workspace.dependencies]\n").expect("it has one");
    let (table, _) = table.split_once("\n[").expect("it ends");
    let lines = table.lines().filter_map(|line| line.split_once(" = "));
    let is_ours = |name: &str| name.starts_with("rtprof");
    // Dependencies of tests alone.
    let is_tests = |name: &str| ["loom", "parking_lot"].contains(&name);
    let ours = lines.filter(|(name, _)| !is_ours(name) && !is_tests(name));
    let versions = ours.map(|(name, value)| {
        let version = value.split('"').nth(1).expect("a version");
        (name.to_owned(), version.to_owned())
    });
    versions.collect()
}

/// Returns the features of all packages that the program is built from.
fn features(root: &Path, shared: &[(String, String)], has_defaults: bool, has_rtprof: bool) -> Features {
    let package = folder::tmp().join("unification");
    std::fs::create_dir_all(package.join("src")).expect("the build's own folder can be written");
    let mut manifest =
        "[package]\nname = \"program\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n".to_owned();
    for (name, version) in shared {
        let has_defaults = has_defaults && WITH_DEFAULTS.contains(&name.as_str());
        manifest += &format!("{name} = {{ version = \"{version}\", default-features = {has_defaults} }}\n");
    }
    if has_rtprof {
        manifest +=
            &format!("rtprof = {{ path = {root:?}, features = [\"axum\", \"tokio\", \"tracing\"] }}\n");
    }
    let write = |name: &str, text: &str| std::fs::write(package.join(name), text).expect("it can be written");
    write("Cargo.toml", &manifest);
    write("src/main.rs", "fn main() {}\n");
    std::fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).expect("the lock file is there");
    let text = tree(&package, &["--edges", "normal", "--format", "{p};{f}"]);
    let lines = text.lines().filter_map(|line| line.split_once(';'));
    lines
        .map(|(package, features)| {
            let mut words = package.split(' ').map(str::to_owned);
            let mut word = || words.next().expect("name and version");
            let features = features.trim_end_matches(" (*)").split(',').filter(|feature| !feature.is_empty());
            ((word(), word()), features.map(str::to_owned).collect())
        })
        .collect()
}

/// Returns the packages that the one in `folder` is built from, a line each.
fn tree(folder: &Path, arguments: &[&str]) -> String {
    let tree = |network: &[&str]| {
        let mut tree = Command::new(env!("CARGO"));
        child::finish(
            tree.current_dir(folder).args(["tree", "--prefix", "none"]).args(arguments).args(network),
        )
    };
    let mut output = tree(&["--offline"]);
    if !output.status.success() {
        // It needs crates that none of our builds has needed so far.
        output = tree(&[]);
    }
    assert!(output.status.success(), "{}", child::report(&output));
    String::from_utf8(output.stdout).expect("a text")
}
