//! Pieces of the text formats: a stack with its lines, and where the binaries lie.

use std::fmt::Write as _;

use rtprof_profiler::modules::Module;

use crate::locations::{Frames, file_name};
use crate::module_map::MappedPages;
use crate::object_file::hex;

/// ` @ 0x… 0x…`: the return addresses, leaf first, nothing hidden. A reader symbolizes them itself.
pub(crate) fn addresses(text: &mut String, stack: &[usize]) {
    text.push_str(" @");
    for address in stack {
        let _ = write!(text, " {address:#x}");
    }
}

/// One `#` line for each function of the stack, inlined ones included.
pub(crate) fn lines(text: &mut String, frames: &Frames<'_>) {
    for (address, hidden) in frames.shown() {
        let symbols = &address.symbols;
        let pc = address.return_address;
        if symbols.lines.is_empty() {
            let _ = writeln!(text, "#\t{pc:#x}");
        }
        for line in &symbols.lines[hidden..] {
            let (function, offset) = (&line.function, symbols.offset);
            let _ = write!(text, "#\t{pc:#x}\t{}+{offset:#x}", function.name);
            if !function.file.is_empty() {
                let _ = write!(text, "\t{}:{}", function.file, line.line);
            }
            text.push('\n');
        }
    }
}

/// One line for each label.
pub(crate) fn labels(text: &mut String, labels: &[(String, String)]) {
    for (key, value) in labels {
        let _ = writeln!(text, "# label {key:?}={value:?}");
    }
}

/// Remarks for the reader, one line each.
pub(crate) fn comments(text: &mut String, comments: &[String]) {
    for comment in comments {
        let _ = writeln!(text, "# {}", comment.replace('\n', " "));
    }
}

/// Ends the samples of a text whose reader takes every line for one up to this, and tells where the binaries lie.
pub(crate) fn memory_map(text: &mut String, modules: &[&'static Module]) {
    text.push_str("--- Memory map: ---\n");
    mapped_libraries(text, modules);
}

/// The executable segments, so that `go tool pprof` finds the binaries of a text profile. It reads this form
/// with build ids, and /proc/self/maps without.
pub(crate) fn mapped_libraries(text: &mut String, modules: &[&'static Module]) {
    text.push_str("\nMAPPED_LIBRARIES:\n");
    // Segments of libraries that are gone may overlap with present ones, and here nothing tells which
    // location belongs to which.
    for module in modules.iter().filter(|module| module.is_loaded()) {
        let pages = MappedPages::of(module);
        let _ = writeln!(
            text,
            "{:x}-{:x}: {} (@{:x}) {}",
            pages.start,
            pages.limit,
            file_name(&module.path),
            pages.file_offset,
            hex(&module.build_id)
        );
    }
}
