//! Opening the file that a module was loaded from.

use std::fs::File;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::{Object, ObjectSection, ObjectSymbol, ReadCache, SymbolKind};
use rtprof_profiler::modules::{FileIdentity, Module};

use crate::symbol_cache::FileState;

/// Debug information and symbols of one module, for the length of an export.
pub(crate) struct ObjectFile {
    loader: Loader,
    functions: Vec<Extent>,
    state: FileState,
}

/// Where the code of a named function lies, in the file's own addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Extent {
    start: u64,
    end: u64,
}

/// A symbol that covers an address.
pub(crate) struct FunctionSymbol<'a> {
    pub(crate) name: &'a str,
    pub(crate) start: u64,
}

impl ObjectFile {
    /// Opens the file of `module`, if it is the one that was loaded: a binary replaced on disk since then
    /// has other functions at the same addresses, and a wrong name is worse than none. The kernel keeps
    /// the running executable reachable under /proc even then.
    pub(crate) fn open(module: &Module) -> Option<Self> {
        let path = Path::new(&module.path);
        // Without a build id only the file itself tells.
        let is_the_file = !module.build_id.is_empty() || FileIdentity::of(path) == module.file;
        let mut best = (path.is_absolute() && is_the_file)
            .then(|| Self::open_matching(path, &module.build_id))
            .flatten();
        if best.is_none() && module.is_main_executable {
            best = Self::open_matching(Path::new("/proc/self/exe"), &module.build_id);
        }
        // Not for libraries: the C library's debug information, installed on many machines, costs a hundred
        // milliseconds to read, for the name of the function that called main.
        if module.is_main_executable
            && !module.build_id.is_empty()
            && best.as_ref().is_none_or(|file| !file.state.has_lines)
            && let Some(debug) = installed_debug_file(&module.build_id)
            && let Some(file) = Self::open_matching(&debug, &module.build_id)
        {
            best = Some(file);
        }
        best
    }

    fn open_matching(path: &Path, build_id: &[u8]) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let found = file.build_id().ok().flatten().unwrap_or_default();
        if found != build_id {
            return None;
        }
        let has_section = |name: &str| file.section_by_name(name).is_some_and(|s| s.size() > 0);
        let state = FileState {
            has_symbol_table: file.symbols().next().is_some(),
            has_lines: has_section(".debug_line") || has_section(".zdebug_line"),
        };
        let functions = functions_of(&file);
        // The loader looks for split debug information beside this very path, so it must be the real one.
        let loader = Loader::new(path).ok()?;
        Some(Self { loader, functions, state })
    }

    pub(crate) fn state(&self) -> FileState {
        self.state
    }

    /// The function whose code contains `address`. A symbol that merely precedes it does not count: in a
    /// stripped library the nearest exported name is mostly another function's.
    pub(crate) fn symbol(&self, address: u64) -> Option<FunctionSymbol<'_>> {
        let after = self.functions.partition_point(|f| f.start <= address);
        let extent = self.functions[..after].last()?;
        if address >= extent.end {
            return None;
        }
        let symbol = self.loader.find_symbol_info(extent.start)?;
        (symbol.address() == extent.start)
            .then_some(FunctionSymbol { name: symbol.name(), start: extent.start })
    }

    /// Calls `line` for each line of `address`, innermost first: the function's name if the debug
    /// information has one, and the place in its source.
    pub(crate) fn lines(&self, address: u64, mut line: impl FnMut(DebugLine<'_>)) {
        let Ok(mut frames) = self.loader.find_frames(address) else {
            return;
        };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
            let location = frame.location.as_ref();
            line(DebugLine {
                name: name.as_deref(),
                is_rust: frame
                    .function
                    .as_ref()
                    .is_some_and(|f| f.language.is_some_and(|l| l.0 == DW_LANG_RUST)),
                file: location.and_then(|l| l.file),
                line: location.and_then(|l| l.line).unwrap_or(0),
                column: location.and_then(|l| l.column).unwrap_or(0),
            });
        }
    }
}

const DW_LANG_RUST: u16 = 0x1c;

/// One frame as the debug information has it.
pub(crate) struct DebugLine<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) is_rust: bool,
    pub(crate) file: Option<&'a str>,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

fn functions_of<'data>(file: &impl Object<'data>) -> Vec<Extent> {
    let mut functions: Vec<Extent> = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.address() != 0)
        .map(|symbol| Extent { start: symbol.address(), end: symbol.address() + symbol.size() })
        .collect();
    // The longest of those that begin at the same address comes last, and is the one found.
    functions.sort_unstable();
    functions.dedup();
    // Functions in assembly, `_start` among them, often have no size: they reach to the next one.
    for at in 1..functions.len() {
        let next = functions[at].start;
        let before = &mut functions[at - 1];
        if before.end == before.start {
            before.end = next;
        }
    }
    functions
}

/// Where distributions install the debug information of their libraries.
fn installed_debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let path = format!("/usr/lib/debug/.build-id/{first:02x}/{}.debug", hex(rest));
    Some(PathBuf::from(path))
}

/// A build id as tools print it.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_build_id_is_refused() {
        let exe = std::env::current_exe().unwrap();
        assert!(ObjectFile::open_matching(&exe, &[1, 2, 3]).is_none());
        assert!(ObjectFile::open_matching(Path::new("/nonexistent"), &[]).is_none());
    }

    #[test]
    fn build_ids_are_padded() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
        let path = installed_debug_file(&[0xab, 0x01]).unwrap();
        assert_eq!(path, Path::new("/usr/lib/debug/.build-id/ab/01.debug"));
        assert!(installed_debug_file(&[]).is_none());
    }
}
