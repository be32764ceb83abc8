//! Which code is the program's, and which that of its dependencies.
//!
//! A stack that begins in a library says what waits there: `Acquire::poll` of tokio's semaphore, for every async lock of
//! the program. The line that an engineer can change is further out. It is found by the source file: Cargo unpacks
//! dependencies into folders that are named alike everywhere. Other members of a workspace, and dependencies by path,
//! count as the program.

use crate::names;
use crate::path::in_crate;
use crate::source_path::{Sources, has_version, is_of_rtprof};
use crate::symbol_cache::Line;

/// The lines of an address that are the program's, a bit for each of the first 64, innermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramLines(u64);

impl ProgramLines {
    pub(crate) fn of(lines: &[Line], sources: &Sources<'_>) -> Self {
        let of_program = lines.iter().take(64).enumerate().filter(|(_, line)| is_programs(line, sources));
        Self(of_program.fold(0, |bits, (at, _)| bits | 1 << at))
    }

    /// Returns the first of them from this line on.
    pub(crate) fn first_from(self, line: usize) -> Option<usize> {
        let rest = self.0 & u64::MAX.checked_shl(line as u32).unwrap_or(0);
        (rest != 0).then(|| rest.trailing_zeros() as usize)
    }
}

/// The crates that every program has without naming them. Their functions are also recognized where no file is known.
const ALWAYS_THERE: [&str; 5] = ["alloc", "core", "std", "hashbrown", "compiler_builtins"];

fn is_programs(line: &Line, sources: &Sources<'_>) -> bool {
    let function = &*line.function;
    if ALWAYS_THERE.iter().any(|krate| in_crate(&function.name, krate)) || is_of_rtprof(&function.name) {
        return false;
    }
    match &*function.file {
        // Without debug information: all of Rust's code. C's may be that of any library.
        "" => names::is_mangled(&function.system_name),
        file => !sources.is_library(file) && !is_dependency(file),
    }
}

/// Whether Cargo has put this file where it unpacks dependencies: from a registry, a git repository, or a folder of
/// `cargo vendor`, also where these were given other names (`-Ztrim-paths`, distributions' builds). Folders of programs may be
/// called alike (`src/vendor/mod.rs`, `registry/src/main.rs`), so what Cargo puts into them is looked for too.
fn is_dependency(file: &str) -> bool {
    let segments: Vec<&str> = file.split('/').collect();
    // `tokio-1.30.0/src/lib.rs`, where the folder of the registry was removed from all paths
    let is_trimmed = segments.first().is_some_and(|first| has_version(first));
    is_trimmed
        || (0..segments.len()).any(|at| match &segments[at..] {
            ["registry", "src", _, package, ..] => has_version(package),
            // Debian's
            ["cargo", "registry", package, ..] => has_version(package),
            ["git", "checkouts", _, _, ..] => true,
            ["vendor", _, "src", ..] => true,
            // Nix's `cargo-vendor-dir`
            [folder, package, "src", ..] => folder.contains("vendor") && has_version(package),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::source_path::Roots;
    use crate::symbol_cache::Function;

    fn line(name: &str, system_name: &str, file: &str) -> Line {
        let function = Function { name: name.into(), system_name: system_name.into(), file: file.into() };
        Line { function: Arc::new(function), line: 1, column: 1 }
    }

    #[test]
    fn dependencies_are_told_by_their_folder() {
        for file in [
            "/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/tokio-1.30.0/src/sync/notify.rs",
            "/usr/share/cargo/registry/tokio-1.30.0/src/lib.rs",
            "/root/.cargo/git/checkouts/tokio-0123456789abcdef/abcdef0/tokio/src/lib.rs",
            "/home/u/app/vendor/tokio/src/lib.rs",
            "/build/cargo-vendor-dir/tokio-1.30.0/src/lib.rs",
            "tokio-1.30.0/src/lib.rs",
        ] {
            assert!(is_dependency(file), "{file}");
        }
        for file in [
            "src/main.rs",
            "/home/u/app/src/main.rs",
            "/home/u/registry/src/api/mod.rs",
            "/build/app-1.2.0/src/main.rs",
            "/home/u/git/app/checkouts/src/lib.rs",
            "/home/u/vendor-portal/src/main.rs",
            "/home/u/app/src/vendor/mod.rs",
            "/home/u/app/src/vendors/api.rs",
            "/home/u/vendors/app/src/main.rs",
            "/builds/registry/app-1.2.0/src/main.rs",
        ] {
            assert!(!is_dependency(file), "{file}");
        }
    }

    #[test]
    fn the_program_is_what_is_left() {
        let sources = Sources::new(&Roots::default);
        let rustc = "/rustc/0123456789abcdef0123456789abcdef01234567/library/core/src/ops/function.rs";
        let own = "/home/u/app/src/main.rs";
        for (name, system_name, file, expected) in [
            ("app::handle", "_ZN3app6handleE", own, true),
            ("app::handle", "_ZN3app6handleE", "", true),
            ("memcpy", "memcpy", "", false),
            ("app_of_c", "app_of_c", "/home/u/app/src/c/app.c", true),
            ("core::ops::function::FnOnce::call_once", "_ZN4coreE", rustc, false),
            ("core::ops::function::FnOnce::call_once", "_ZN4coreE", "", false),
            ("rtprof_hooks::task::poll", "_ZN6rtprofE", "/home/u/rtprof/hooks/src/task/mod.rs", false),
            ("rtprof_demo::main", "_ZN6rtprofE", "/home/u/demo/src/main.rs", true),
        ] {
            assert_eq!(is_programs(&line(name, system_name, file), &sources), expected, "{name} {file}");
        }
    }

    #[test]
    fn the_first_line_from_another_on() {
        let lines = ProgramLines(0b1010);
        assert_eq!(
            [0, 1, 2, 3, 4, 64, 100].map(|from| lines.first_from(from)),
            [Some(1), Some(1), Some(3), Some(3), None, None, None]
        );
    }
}
