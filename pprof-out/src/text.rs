//! Parts of the text formats: a stack with its lines, and the locations of the binaries.

use std::borrow::Cow;
use std::fmt::Write as _;

use rtprof_runtime::modules::Module;

use crate::mapped_pages::MappedPages;
use rtprof_symbols::frames::Frames;
use rtprof_symbols::object_file::hex;
use rtprof_symbols::symbol_cache::Line;

/// The longest part of a line. Readers in Go reject a text with a line of 64 KiB or more (`bufio.MaxScanTokenSize`). A
/// line has at most two parts of arbitrary length, a function's name and its file.
const LONGEST_PART: usize = 24 << 10;

/// Writes ` @ 0x… 0x…`: the return addresses, leaf first, without the first `hidden` ones. A reader symbolizes them
/// itself.
pub(crate) fn addresses(text: &mut String, frames: &Frames<'_>, hidden: usize) {
    text.push_str(" @");
    for address in frames.return_addresses(hidden) {
        let _ = write!(text, " {address:#x}");
    }
}

/// Writes one `#` line for each function of the stack, inlined ones included.
pub(crate) fn lines(text: &mut String, frames: &Frames<'_>) {
    for (address, lines) in frames.shown() {
        let pc = address.return_address;
        if lines.is_empty() {
            let _ = writeln!(text, "#\t{pc:#x}");
        }
        for line in lines {
            function_line(text, pc, address.symbols.offset, line);
        }
    }
}

fn function_line(text: &mut String, pc: usize, offset: u64, line: &Line) {
    let function = &line.function;
    let _ = write!(text, "#\t{pc:#x}\t{}+{offset:#x}", cut(&function.name));
    if !function.file.is_empty() {
        let _ = write!(text, "\t{}:{}", cut(&function.file), line.line);
    }
    text.push('\n');
}

/// Cuts a part that is too long for a line, and marks the cut with three dots.
pub(crate) fn cut(part: &str) -> Cow<'_, str> {
    if part.len() <= LONGEST_PART {
        return part.into();
    }
    let end = (0..=LONGEST_PART).rev().find(|&end| part.is_char_boundary(end)).unwrap_or(0);
    format!("{}...", &part[..end]).into()
}

/// Writes `# labels: {"key":"value", "key2":"value2"}`, as Go's viewers read them; nothing if there are none.
pub(crate) fn labels(text: &mut String, labels: &[(String, String)]) {
    if labels.is_empty() {
        return;
    }
    let mut pairs = String::new();
    for (number, (key, value)) in labels.iter().enumerate() {
        pairs.push_str(if number == 0 { "" } else { ", " });
        quote(&mut pairs, key);
        pairs.push(':');
        quote(&mut pairs, value);
    }
    let _ = writeln!(text, "# labels: {{{}}}", cut(&pairs));
}

/// Writes a string as Go's `%q` does. It differs from Rust in the characters that are escaped by number.
pub(crate) fn quote(text: &mut String, string: &str) {
    text.push('"');
    for c in string.chars() {
        let _ = match c {
            '\'' => text.write_char(c),
            '\0' => text.write_str(r"\x00"),
            '\x07' => text.write_str(r"\a"),
            '\x08' => text.write_str(r"\b"),
            '\x0b' => text.write_str(r"\v"),
            '\x0c' => text.write_str(r"\f"),
            // Characters that are not printable, by Rust's tables.
            _ if c.escape_debug().len() > 2 => match u32::from(c) {
                code @ ..0x80 => write!(text, "\\x{code:02x}"),
                code @ ..0x10000 => write!(text, "\\u{code:04x}"),
                code => write!(text, "\\U{code:08x}"),
            },
            _ => write!(text, "{}", c.escape_debug()),
        };
    }
    text.push('"');
}

/// Writes remarks for the reader, one line each.
pub(crate) fn comments(text: &mut String, comments: &[String]) {
    for comment in comments {
        let _ = writeln!(text, "# {}", cut(&comment.replace('\n', " ")));
    }
}

/// Ends the samples of a text whose reader takes every earlier line for a sample, and lists the binaries.
pub(crate) fn memory_map(text: &mut String, modules: impl Iterator<Item = &'static Module>) {
    text.push_str("--- Memory map: ---\n");
    mapped_libraries(text, modules);
}

/// Lists the executable segments, so that `go tool pprof` finds the binaries of a text profile. It reads this form with
/// build ids, and /proc/self/maps without. A text profile does not say which location belongs to which module, so
/// modules that were loaded where another one had been are left out (`Owners::unambiguous`).
pub(crate) fn mapped_libraries(text: &mut String, modules: impl Iterator<Item = &'static Module>) {
    text.push_str("\nMAPPED_LIBRARIES:\n");
    for module in modules {
        let pages = MappedPages::of(module);
        let _ = writeln!(
            text,
            "{:x}-{:x}: {} (@{:x}) {}",
            pages.start,
            pages.limit,
            module.path,
            pages.file_offset,
            hex(&module.build_id)
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use rtprof_symbols::symbol_cache::Function;

    /// Compares with the output of Go's `fmt.Sprintf("%q", ..)`.
    #[test]
    fn labels_are_quoted_as_in_go() {
        for (value, quoted) in [
            ("a", r#""a""#),
            ("a\"b\\c'd", r#""a\"b\\c'd""#),
            ("\0\x07\x08\t\n\x0b\x0c\r\x1b\x7f", r#""\x00\a\b\t\n\v\f\r\x1b\x7f""#),
            ("gr\u{fc}n \u{1f680}", "\"gr\u{fc}n \u{1f680}\""),
            ("\u{85}\u{200b}\u{e0001}", r#""\u0085\u200b\U000e0001""#),
        ] {
            let mut text = String::new();
            quote(&mut text, value);
            assert_eq!(text, quoted);
        }
        let mut text = String::new();
        labels(&mut text, &[]);
        assert_eq!(text, "");
        labels(&mut text, &[("k".into(), "v".into()), ("k2".into(), "v2".into())]);
        assert_eq!(text, "# labels: {\"k\":\"v\", \"k2\":\"v2\"}\n");
    }

    /// Go's `bufio.MaxScanTokenSize`.
    const LONGEST_LINE: usize = 64 << 10;

    #[test]
    fn no_line_is_too_long_for_readers_in_go() {
        let name = "\u{fc}".repeat(50_000);
        let part: Arc<str> = name.as_str().into();
        let function = Function { name: part.clone(), system_name: "".into(), file: part };
        let line = Line { function: function.into(), line: u32::MAX, column: 0 };
        let mut text = String::new();
        function_line(&mut text, usize::MAX, u64::MAX, &line);
        labels(&mut text, &[(name.clone(), "\n".repeat(50_000))]);
        comments(&mut text, &[name]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines.iter().all(|line| line.len() < LONGEST_LINE && line.contains("\u{fc}...")),
            "{lines:?}"
        );
    }

    #[test]
    fn what_fits_is_whole() {
        let name = "n".repeat(LONGEST_PART);
        assert_eq!(cut(&name), name);
    }
}
