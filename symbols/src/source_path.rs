//! Finds the crate and module of a source file.
//!
//! Problem: a path does not begin with the same folders everywhere. Each distribution compiles the standard library
//! elsewhere, and reproducible builds (`--remap-path-prefix`) replace any prefix, also that of this very crate.
//! Scheme: paths are recognized by the folders that all builds have in common, such as `library/alloc/src` in a folder
//! of Rust's sources. Where that says nothing, the debug information itself is asked, once: it knows the files of a
//! function of ours and of a function of std, and what precedes the known ends of these paths precedes the others too.

use std::cell::OnceCell;

/// What precedes the sources that are recognized by their path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roots {
    /// What precedes `symbols/src/..` of this workspace; `None` if its crates come from a registry.
    own: Option<String>,
    /// What precedes `library/std/src/..`.
    library: Option<String>,
}

impl Roots {
    /// Derives them from the files of a function of this module's parent and of a function of std, where known.
    pub(crate) fn of(own_file: Option<&str>, library_file: Option<&str>) -> Self {
        let own = own_file.and_then(|file| file.strip_suffix(OWN_FILE));
        let library = library_file.and_then(|file| Some(file.rsplit_once("library/std/src/")?.0));
        Self { own: own.map(str::to_owned), library: library.map(str::to_owned) }
    }
}

/// The end of the path of the file whose function leads to [`Roots::own`].
const OWN_FILE: &str = "symbols/src/file_symbols.rs";

/// The source files of a program.
pub(crate) struct Sources<'a> {
    find: &'a dyn Fn() -> Roots,
    found: OnceCell<Roots>,
}

/// The folders of this workspace whose crates are part of programs.
const OWN_FOLDERS: [&str; 9] =
    ["allocator", "hooks", "http", "pprof-out", "profiler", "runtime", "symbols", "trace-out", "tracer"];

/// The folders of Rust's `library` folder with code that is part of programs.
const LIBRARY_FOLDERS: [&str; 12] = [
    "alloc",
    "backtrace",
    "compiler-builtins",
    "core",
    "panic_abort",
    "panic_unwind",
    "portable-simd",
    "proc_macro",
    "std",
    "stdarch",
    "test",
    "unwind",
];

impl<'a> Sources<'a> {
    /// `find` is called only if the paths alone leave a question open.
    pub(crate) fn new(find: &'a dyn Fn() -> Roots) -> Self {
        Self { find, found: OnceCell::new() }
    }

    fn roots(&self) -> &Roots {
        self.found.get_or_init(self.find)
    }

    /// Returns `alloc::raw_vec` for `/rustc/…/library/alloc/src/raw_vec/mod.rs`; `None` if the path shows no module.
    ///
    /// A package from a registry or in a workspace gets the name of its folder. That is a guess, wrong for packages in
    /// a folder with another name; file and line stand beside it in the profile.
    pub(crate) fn module_of(&self, file: &str) -> Option<String> {
        let stem = file.strip_suffix(".rs")?;
        let (crate_name, inner) = match self.own_crate(stem) {
            Some(found) => found,
            None => self.split(stem)?,
        };
        let mut path = crate_name;
        let mut segments = inner.split('/').peekable();
        while let Some(segment) = segments.next() {
            let implied = segments.peek().is_none() && matches!(segment, "mod" | "lib" | "main");
            if !implied && !segment.is_empty() {
                path.push_str("::");
                path.push_str(segment);
            }
        }
        Some(path)
    }

    /// Whether a file belongs to the standard library, or to the hash table crate that it is built with, which programs
    /// also use directly.
    pub(crate) fn is_library(&self, file: &str) -> bool {
        let in_library = |path: &str| {
            let path = path.strip_prefix("library/")?;
            LIBRARY_FOLDERS
                .iter()
                .find(|folder| path.strip_prefix(**folder).is_some_and(|rest| rest.starts_with('/')))
        };
        let mut at_library =
            file.match_indices("library/").filter(|(at, _)| in_library(&file[*at..]).is_some());
        at_library.clone().any(|(at, _)| ends_in_rust_sources(&file[..at]))
            // What std is built with, in rustup's toolchains.
            || file.starts_with("/rust/deps/")
            || is_hash_table(file)
            || at_library.any(|(at, _)| self.roots().library.as_deref() == Some(&file[..at]))
    }

    /// Whether it is known where the standard library's sources are, so that [`is_library`](Self::is_library) is sure.
    pub(crate) fn know_library(&self) -> bool {
        self.roots().library.is_some()
    }

    /// Recognizes a crate of this workspace. The hiding of our own frames depends on it.
    fn own_crate<'s>(&self, stem: &'s str) -> Option<(String, &'s str)> {
        let compiled_at = env!("CARGO_MANIFEST_DIR").strip_suffix("symbols");
        if let Some(own) = compiled_at.and_then(|root| own_crate_in(root, stem)) {
            return Some(own);
        }
        let may_be_own = OWN_FOLDERS.iter().any(|folder| {
            stem.match_indices(folder).any(|(at, _)| stem[at + folder.len()..].starts_with("/src/"))
        });
        // The folder of the facade may have any name, so that its files are recognized only together with others.
        may_be_own.then(|| own_crate_in(self.roots().own.as_deref()?, stem))?
    }

    /// Splits a path into the crate, and the path below its source folder.
    fn split<'s>(&self, stem: &'s str) -> Option<(String, &'s str)> {
        for folder in ["/examples/", "/tests/", "/benches/", "/bin/"] {
            // Each file there is a separate crate, or a folder with a main.rs, or an ordinary package.
            if let Some((_, inner)) = stem.rsplit_once(folder)
                && !format!("/{inner}").contains("/src/")
            {
                let (name, rest) = inner.split_once('/').unwrap_or((inner, ""));
                return Some((name.replace('-', "_"), rest));
            }
        }
        let (before, inner) = stem.rsplit_once("/src/")?;
        let folder = before.rsplit('/').next()?;
        let name = without_version(folder).replace('-', "_");
        if name.is_empty() {
            return None;
        }
        let is_taken = matches!(name.as_str(), "alloc" | "core" | "std" | "hashbrown");
        if is_taken && !self.is_library(&format!("{stem}.rs")) {
            // A member of a workspace in a folder called `core`: the parent folder is added, so that the name is not
            // mistaken for the library's.
            let around = before.rsplit('/').nth(1).unwrap_or("crate").replace('-', "_");
            return Some((format!("{around}::{name}"), inner));
        }
        Some((name, inner))
    }
}

/// Recognizes a crate of the workspace at `root`, by its folder: that has the package's name without `rtprof-`, and the
/// facade's folder is the workspace's.
fn own_crate_in<'s>(root: &str, stem: &'s str) -> Option<(String, &'s str)> {
    let (folder, inner) = stem.strip_prefix(root)?.split_once("src/")?;
    match folder.strip_suffix('/') {
        None if folder.is_empty() && !root.is_empty() => Some(("rtprof".to_owned(), inner)),
        Some(folder) if OWN_FOLDERS.contains(&folder) => {
            Some((format!("rtprof_{}", folder.replace('-', "_")), inner))
        }
        // A folder that is not part of programs, or a package of another workspace.
        _ => None,
    }
}

/// Whether a folder has Rust's sources: `/rustc/HASH/`, `/build/rustc-1.86.0-src/`, `…/rustlib/src/rust/`,
/// `/usr/src/debug/rust-1.83.0/`. Names of other folders around it say nothing: a program's workspace may have a folder
/// `library` too.
fn ends_in_rust_sources(folder: &str) -> bool {
    let mut segments = folder.strip_suffix('/').unwrap_or_default().rsplit('/');
    let is_rust = |name: &str| {
        let rest = name.strip_prefix("rustc").or_else(|| name.strip_prefix("rust"));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let last = segments.next().unwrap_or_default();
    is_rust(last) || last.bytes().all(|byte| byte.is_ascii_hexdigit()) && segments.next() == Some("rustc")
}

/// Whether a file belongs to the package hashbrown, of a registry or among the sources of std's dependencies.
fn is_hash_table(file: &str) -> bool {
    file.split('/').any(|segment| {
        segment
            .strip_prefix("hashbrown-")
            .is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// Whether a function, by its name, belongs to a crate of this workspace.
pub(crate) fn is_of_rtprof(name: &str) -> bool {
    let krate = name.trim_start_matches(['<', '&']).split_once("::").map_or(name, |(krate, _)| krate);
    if krate == "rtprof" {
        return true;
    }
    let folder = krate.strip_prefix("rtprof_");
    folder.is_some_and(|folder| OWN_FOLDERS.iter().any(|own| own.replace('-', "_") == folder))
}

/// Returns `hashbrown` for `hashbrown-0.15.2`.
fn without_version(folder: &str) -> &str {
    match folder.rsplit_once('-') {
        Some((name, version))
            if version.starts_with(|c: char| c.is_ascii_digit()) && version.contains('.') =>
        {
            name
        }
        _ => folder,
    }
}

/// Whether a folder's name ends in a version, as those of packages from a registry do.
pub(crate) fn has_version(folder: &str) -> bool {
    without_version(folder).len() < folder.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module_of(file: &str) -> Option<String> {
        Sources::new(&Roots::default).module_of(file)
    }

    fn is_library(file: &str) -> bool {
        Sources::new(&Roots::default).is_library(file)
    }

    #[test]
    fn paths_of_the_wild() {
        for (file, module) in [
            ("/rustc/5980/library/alloc/src/raw_vec/mod.rs", Some("alloc::raw_vec")),
            ("/rustc/5980/library/alloc/src/alloc.rs", Some("alloc::alloc")),
            (
                "/home/u/.rustup/toolchains/stable/lib/rustlib/src/rust/library/core/src/iter/traits/iterator.rs",
                Some("core::iter::traits::iterator"),
            ),
            ("/usr/src/rustc-1.85.0/library/std/src/thread/mod.rs", Some("std::thread")),
            ("/rust/deps/hashbrown-0.15.2/src/raw/mod.rs", Some("hashbrown::raw")),
            (
                "/home/u/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/serde-json-1.0.1/src/de.rs",
                Some("serde_json::de"),
            ),
            ("/home/u/my-app/src/main.rs", Some("my_app")),
            ("/home/u/my-app/src/store/index.rs", Some("my_app::store::index")),
            ("/home/u/my-app/examples/heap.rs", Some("heap")),
            ("/home/u/my-app/examples/web-shop/src/store.rs", Some("web_shop::store")),
            ("/home/u/my-app/benches/src/main.rs", Some("benches")),
            ("/home/u/my-shop/core/src/store.rs", Some("my_shop::core::store")),
            ("/home/u/my-app/src/bin/tool/main.rs", Some("tool")),
            ("src/main.rs", None),
            ("/usr/include/c++/12/vector", None),
        ] {
            assert_eq!(module_of(file).as_deref(), module, "{file}");
        }
    }

    #[test]
    fn the_library_is_known_by_its_folders() {
        for sources in [
            "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860",
            "/home/u/.rustup/toolchains/stable/lib/rustlib/src/rust",
            // Debian, Fedora, Ubuntu, Arch, Gentoo, Alpine, Nix.
            "/usr/src/rustc-1.85.0",
            "/builddir/build/BUILD/rust-1.83.0-build/rustc-1.83.0-src",
            "/build/rustc-1.86.0-src",
            "/usr/src/debug/rust/rustc-1.86.0-src",
            "/usr/lib/rust-1.85/lib/rustlib/src/rust",
            "/home/buildozer/aports/main/rust/src/rustc-1.83.0-src",
            "/nix/store/0c5b8vw40dy2pr1hqy8h0dqyfwg6kmif-rustc-1.83.0/lib/rustlib/src/rust",
        ] {
            for inner in
                ["std/src/lib.rs", "alloc/src/vec/mod.rs", "portable-simd/crates/core_simd/src/lib.rs"]
            {
                let file = format!("{sources}/library/{inner}");
                assert!(is_library(&file), "{file}");
            }
            let file = format!("{sources}/library/alloc/src/vec/mod.rs");
            assert_eq!(module_of(&file).as_deref(), Some("alloc::vec"));
            assert!(is_library(&format!("{sources}/vendor/hashbrown-0.15.2/src/raw/mod.rs")));
        }
        for file in [
            "/usr/src/app/library/src/lib.rs",
            "/home/u/app/library/core/src/lib.rs",
            "/home/u/rust/app/library/core/src/lib.rs",
            "/home/u/rusty/library/core/src/lib.rs",
            "/build/rustc-1.86.0-src/compiler/rustc_span/src/lib.rs",
            "/home/u/rust/library/catalogue/src/lib.rs",
            "/home/u/app/hashbrown-fork/src/lib.rs",
            "library/core/src/lib.rs",
        ] {
            assert!(!is_library(file), "{file}");
        }
    }

    #[test]
    fn what_is_remapped_is_known_by_the_known_ends() {
        let roots =
            || Roots::of(Some("/1/symbols/src/file_symbols.rs"), Some("/2/library/std/src/thread/mod.rs"));
        let sources = Sources::new(&roots);
        for (file, module) in [
            ("/1/runtime/src/stack/scratch.rs", "rtprof_runtime::stack::scratch"),
            ("/1/pprof-out/src/lib.rs", "rtprof_pprof_out"),
            ("/0/runtime/src/stack.rs", "runtime::stack"),
            ("/2/library/core/src/ptr/mod.rs", "core::ptr"),
            ("/0/library/core/src/ptr.rs", "library::core::ptr"),
        ] {
            assert_eq!(sources.module_of(file).as_deref(), Some(module), "{file}");
        }
        assert!(sources.is_library("/2/library/core/src/ptr/mod.rs") && sources.know_library());
        assert!(!sources.is_library("/0/library/core/src/ptr/mod.rs"));
        // Nothing is left of the prefix.
        let roots = || Roots::of(Some("symbols/src/file_symbols.rs"), Some("library/std/src/thread/mod.rs"));
        let sources = Sources::new(&roots);
        for (file, module) in [
            ("hooks/src/sync/mod.rs", Some("rtprof_hooks::sync")),
            ("app/src/main.rs", Some("app")),
            ("src/main.rs", None),
        ] {
            assert_eq!(sources.module_of(file).as_deref(), module, "{file}");
        }
        assert!(sources.is_library("library/alloc/src/vec/mod.rs"));
        // Packages from a registry.
        let file = "/deps/rtprof-symbols-0.1.0/src/file_symbols.rs";
        assert_eq!(Roots::of(Some(file), None), Roots::default());
        assert_eq!(module_of(file).as_deref(), Some("rtprof_symbols::file_symbols"));
    }

    #[test]
    fn the_debug_information_is_asked_only_if_paths_leave_a_question_open() {
        let sources = Sources::new(&|| unreachable!("the path says it"));
        assert!(sources.is_library("/rustc/5980/library/std/src/lib.rs"));
        assert!(!sources.is_library("/home/u/app/src/main.rs"));
        let own = file!().strip_suffix("symbols/src/source_path.rs").unwrap_or_default();
        for file in
            ["/home/u/app/src/main.rs", "/home/u/app/src/store/index.rs", &format!("{own}/x/src/lib.rs")]
        {
            sources.module_of(file);
        }
    }

    /// Checks each member of the workspace, so that a new one is not forgotten.
    #[test]
    fn own_crates_go_by_their_package_names() {
        let Some(root) = env!("CARGO_MANIFEST_DIR").strip_suffix("/symbols") else { return };
        let read =
            |path: &str| std::fs::read_to_string(format!("{root}/{path}")).expect("it is in the repository");
        let between = |text: &str, from: &str, to: &str| {
            let (_, rest) = text.split_once(from).expect("it has one");
            rest.split_once(to).expect("it ends").0.to_owned()
        };
        let workspace = read("Cargo.toml");
        let members = between(&workspace, "members = [", "]");
        let members: Vec<_> = members.split(',').map(|member| member.trim().trim_matches('"')).collect();
        // The others are not part of programs.
        let mut in_programs = members.clone();
        in_programs.retain(|member| !["cli", "trace-check", "test-support", "benches"].contains(member));
        in_programs.sort_unstable();
        assert_eq!(in_programs, OWN_FOLDERS);
        for member in OWN_FOLDERS.into_iter().chain([""]) {
            let folder = if member.is_empty() { String::new() } else { format!("{member}/") };
            let name = between(&read(&format!("{folder}Cargo.toml")), "\nname = \"", "\"").replace('-', "_");
            let module = module_of(&format!("{root}/{folder}src/sample.rs"));
            assert_eq!(module, Some(format!("{name}::sample")));
        }
        let chain = format!("{root}/tests/fixtures/chain/src/main.rs");
        assert_eq!(module_of(&chain).as_deref(), Some("chain"));
    }
}
