//! What the build of the program leaves out, as a comment for the reader of a profile.

use std::sync::Arc;

use crate::source_path;
use crate::symbol_cache::{FileState, Line, Symbols};

/// Returns what the profile lacks because of how the program was built, where `file` is what the program's file
/// provides and `symbols` are those of all addresses in it.
///
/// Libraries have no such comment: most systems install them stripped, and their functions are shown by the name of the
/// library.
pub(crate) fn comment<'a>(
    file: FileState,
    symbols: impl Iterator<Item = &'a Arc<Symbols>>,
) -> Option<String> {
    if !file.is_read {
        return None;
    }
    let (mut nameless, mut named, mut located) = (0, 0, 0);
    for symbols in symbols {
        match &*symbols.lines {
            [] => nameless += 1,
            lines => {
                named += 1;
                located += usize::from(lines.iter().any(is_located));
            }
        }
    }
    if nameless > 0 && !file.has_symbol_table {
        return Some(format!(
            "{nameless} addresses have no names, because the program is stripped: give go tool pprof an unstripped copy \
             of the same build that has debug information"
        ));
    }
    (named > 0 && located == 0).then(|| {
        "inlined functions, files and lines are missing, because the program has no debug information: set \
         debug = 1 in the Cargo profile"
            .into()
    })
}

/// Whether the debug information of the program's own build has this line. The standard library comes with lines.
fn is_located(line: &Line) -> bool {
    line.line != 0 && !source_path::is_library(&line.function.file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol_cache::Function;

    const LIBRARY: &str = "/rustc/5980/library/std/src/thread/mod.rs";
    const WHOLE: FileState =
        FileState { has_symbol_table: true, has_lines: true, is_read: true, is_unreadable: false };

    fn address(lines: &[(&str, u32)]) -> Arc<Symbols> {
        let line = |&(file, line): &(&str, u32)| {
            let function = Function { name: "f".into(), system_name: "f".into(), file: file.into() };
            Line { function: Arc::new(function), line, column: 0 }
        };
        Arc::new(Symbols { lines: lines.iter().map(line).collect(), ..Symbols::default() })
    }

    #[test]
    fn the_comment_names_what_the_build_lacks() {
        let stripped = FileState { has_symbol_table: false, has_lines: false, ..WHOLE };
        let unread = FileState { is_read: false, ..stripped };
        let (nothing, name) = (address(&[]), address(&[("", 0)]));
        let (program, library) = (address(&[(LIBRARY, 7), ("src/main.rs", 3)]), address(&[(LIBRARY, 7)]));
        let has = |file, addresses: &[&Arc<Symbols>], words: &str| {
            let comment = comment(file, addresses.iter().copied()).unwrap_or_default();
            assert!(comment.is_empty() == words.is_empty() && comment.contains(words), "{comment}");
        };
        has(stripped, &[&nothing, &nothing], "2 addresses have no names, because the program is stripped");
        has(WHOLE, &[&name, &library], "the program has no debug information");
        // A library without debug information is linked into the program, or the linker's own code.
        has(WHOLE, &[&name, &library, &program, &nothing], "");
        has(WHOLE, &[], "");
        has(unread, &[&nothing], "");
    }
}
