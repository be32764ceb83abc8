//! What the build of the program leaves out, as a comment for the reader of a profile.

use std::sync::Arc;

use rtprof_runtime::modules::Module;

use crate::symbol_cache::{DebugState, FileState, Symbols};

/// Returns what the profile lacks because of how `program` was built, where `file` is what its file provides and
/// `symbols` are those of all addresses in it.
pub(crate) fn comment<'a>(
    program: &Module,
    file: FileState,
    symbols: impl Iterator<Item = &'a Arc<Symbols>>,
) -> Option<String> {
    let name = if program.is_main_executable { "the program" } else { &program.path };
    comment_on(name, file, symbols)
}

fn comment_on<'a>(
    name: &str,
    file: FileState,
    symbols: impl Iterator<Item = &'a Arc<Symbols>>,
) -> Option<String> {
    if !file.is_read {
        return None;
    }
    let (mut nameless, mut named, mut located) = (0, 0, 0);
    for symbols in symbols {
        match symbols.lines.is_empty() {
            true => nameless += 1,
            false => named += 1,
        }
        located += usize::from(symbols.has_own_line);
    }
    if named + nameless == 0 {
        return None;
    }
    let lines = "inlined functions, files and lines";
    let (missing, cause) = match file.debug {
        DebugState::Absent if nameless > 0 && !file.has_symbol_table => {
            return Some(format!(
                "{} no names, because {name} is stripped: give go tool pprof an unstripped copy of the same build that \
                 has debug information",
                addresses_have(nameless)
            ));
        }
        DebugState::Unreadable => {
            (lines, "has debug information that is damaged, or that is compressed and larger than 256 MiB")
        }
        DebugState::WithoutUnits => (
            "inlined functions",
            "has split debug information that was not found: put its .dwp file in its folder",
        ),
        DebugState::WithoutAlternative => (
            "inlined functions",
            "has debug information that was compressed by dwz and whose common file was not found: put the file where \
             readelf --string-dump=.gnu_debugaltlink says",
        ),
        DebugState::Absent | DebugState::NotOurs if named > 0 && located == 0 => {
            (lines, "has no debug information: set debug = 1 in the Cargo profile")
        }
        DebugState::Absent | DebugState::NotOurs | DebugState::Whole => return None,
    };
    Some(format!("{missing} are missing, because {name} {cause}"))
}

/// Returns `1 address has` or `2 addresses have`.
pub(crate) fn addresses_have(number: usize) -> String {
    match number {
        1 => "1 address has".into(),
        _ => format!("{number} addresses have"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol_cache::{Function, Line};

    const LIBRARY: &str = "/rustc/5980/library/std/src/thread/mod.rs";
    const WHOLE: FileState =
        FileState { has_symbol_table: true, debug: DebugState::Whole, is_read: true, is_unreadable: false };

    fn address(lines: &[(&str, u32)]) -> Arc<Symbols> {
        let line = |&(file, line): &(&str, u32)| {
            let function = Function { name: "f".into(), system_name: "f".into(), file: file.into() };
            Line { function: Arc::new(function), line, column: 0 }
        };
        let has_own_line = lines.iter().any(|(file, line)| *line != 0 && *file != LIBRARY);
        Arc::new(Symbols { lines: lines.iter().map(line).collect(), has_own_line, ..Symbols::default() })
    }

    #[test]
    fn the_comment_names_what_the_build_lacks() {
        let without = FileState { debug: DebugState::Absent, ..WHOLE };
        let stripped = FileState { has_symbol_table: false, ..without };
        let std_only = FileState { debug: DebugState::NotOurs, ..WHOLE };
        let unread = FileState { is_read: false, ..stripped };
        let damaged = FileState { debug: DebugState::Unreadable, ..WHOLE };
        let split = FileState { debug: DebugState::WithoutUnits, ..WHOLE };
        let compressed = FileState { debug: DebugState::WithoutAlternative, ..WHOLE };
        let unnamed = FileState { has_symbol_table: false, ..WHOLE };
        let (nothing, name) = (address(&[]), address(&[("", 0)]));
        let (program, library) = (address(&[(LIBRARY, 7), ("src/main.rs", 3)]), address(&[(LIBRARY, 7)]));
        let has = |file, addresses: &[&Arc<Symbols>], words: &str| {
            let comment = comment_on("the program", file, addresses.iter().copied()).unwrap_or_default();
            assert!(comment.is_empty() == words.is_empty() && comment.contains(words), "{comment}");
        };
        has(stripped, &[&nothing], "1 address has no names, because the program is stripped");
        has(
            stripped,
            &[&nothing, &name, &nothing],
            "2 addresses have no names, because the program is stripped",
        );
        // Only names that a library exports are known.
        has(stripped, &[&name], "the program has no debug information");
        has(without, &[&name, &nothing], "the program has no debug information");
        has(std_only, &[&name, &library], "the program has no debug information");
        has(damaged, &[&name], "damaged");
        has(split, &[&program], "inlined functions are missing, because the program has split");
        has(
            compressed,
            &[&program],
            "inlined functions are missing, because the program has debug information that was",
        );
        // The program has debug information, but rtprof has none.
        has(std_only, &[&name, &library, &program], "");
        // A stack of a thread that has just begun.
        has(WHOLE, &[&library], "");
        // A library without debug information is linked into the program, or the linker's own code.
        has(WHOLE, &[&name, &library, &program, &nothing], "");
        has(unnamed, &[&program, &nothing], "");
        for file in [WHOLE, damaged, split, compressed, std_only, stripped] {
            has(file, &[], "");
        }
        has(unread, &[&nothing], "");
    }
}
