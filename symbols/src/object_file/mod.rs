//! The file from which a module was loaded: its symbols and its debug information.
//!
//! `bytes` reads the file, `section` presents a part of it to parsers, `functions` has the symbol tables and `debug`
//! the debug information.

mod bytes;
mod debug;
mod functions;
mod section;
mod tables;

use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ReadCache};
use rtprof_runtime::modules::Module;
use rtprof_runtime::own_files;

use crate::symbol_cache::{DebugState, FileState};
use bytes::FileBytes;
use debug::DebugInfo;
use functions::Functions;
use tables::Tables;

pub(crate) use debug::Store;
pub(crate) use functions::FunctionSymbol;

/// The source of headers and tables.
type Data<'a> = &'a ReadCache<Tables<'a>>;
type Elf<'a> = ElfFile64<'a, Endianness, Data<'a>>;

/// Debug information and symbols of one module, for the duration of an export.
pub(crate) struct ObjectFile<'a> {
    debug: Option<DebugInfo<'a>>,
    functions: Functions<'a>,
    state: FileState,
}

impl<'a> ObjectFile<'a> {
    /// Opens the file of `module`, if it is the file that was loaded: a binary replaced on disk since then has other
    /// functions at the same addresses, and a wrong name is worse than none. The kernel keeps the running executable
    /// available under /proc even then.
    pub(crate) fn open(module: &Module, store: &'a Store) -> Option<Self> {
        let path = Path::new(&module.path);
        let executed = Path::new(own_files::EXECUTABLE);
        let has_build_id = !module.build_id.is_empty();
        // The executed file may have been the loader.
        let was_executed =
            module.is_main_executable && std::fs::read_link(executed).is_ok_and(|executed| executed == path);
        // Without a build id only the file's identity can show it. The program's file cannot be written to while it
        // runs.
        let is_the_file = |file: &FileBytes| match was_executed {
            _ if has_build_id => true,
            true => file.is_at(executed),
            false => file.is_older_than(module.first_seen),
        };
        let mut best = path
            .is_absolute()
            .then(|| Self::open_matching(path, &module.build_id, is_the_file, store))
            .flatten();
        if best.is_none() && (was_executed || module.is_main_executable && has_build_id) {
            best = Self::open_matching(executed, &module.build_id, |_| true, store);
        }
        // Not for libraries: the C library's debug information, installed on many machines, takes a hundred
        // milliseconds to read, only for the name of the function that called main.
        if module.is_main_executable
            && has_build_id
            && best.as_ref().is_none_or(|file| !file.state.has_lines())
            && let Some(debug) = installed_debug_file(&module.build_id)
            && let Some(file) = Self::open_matching(&debug, &module.build_id, |_| true, store)
        {
            best = Some(file);
        }
        best
    }

    /// Opens a file and reads everything from the descriptor whose build id was compared.
    fn open_matching(
        path: &Path,
        build_id: &[u8],
        is_the_file: impl Fn(&FileBytes) -> bool,
        store: &'a Store,
    ) -> Option<Self> {
        let bytes = store.open(path).filter(|file| is_the_file(file))?;
        let tables = tables(bytes);
        let elf = parse(&tables)?;
        if elf.build_id().ok().flatten().unwrap_or_default() != build_id {
            return None;
        }
        let has_section = |name: &str| elf.section_by_name(name).is_some_and(|s| s.size() > 0);
        // The debug information looks for split files beside this very path, so it must be the real path.
        let debug = DebugInfo::of(path, bytes, &elf, store);
        let state = FileState {
            has_symbol_table: !elf.elf_symbol_table().is_empty(),
            debug: match has_section(".debug_line") {
                true if debug.is_some() => DebugState::Whole,
                true => DebugState::Unreadable,
                false => DebugState::Absent,
            },
            is_read: true,
            is_unreadable: false,
        };
        Some(Self { debug, functions: Functions::of(bytes, &elf), state })
    }

    pub(crate) fn state(&self) -> FileState {
        self.state
    }

    /// Whether a look-up since the last call has missed a part of split debug information, and with it the inlined
    /// functions.
    pub(crate) fn has_missed_unit(&self) -> bool {
        self.debug.as_ref().is_some_and(|debug| debug.has_missed_unit())
    }

    /// Returns the function whose code contains `address`.
    pub(crate) fn symbol(&self, address: u64) -> Option<FunctionSymbol<'a>> {
        self.functions.at(address)
    }

    /// Calls `line` for each line of `address`, innermost first: the function's name if the debug information has one,
    /// and the source location.
    pub(crate) fn lines(&self, address: u64, mut line: impl FnMut(DebugLine<'_>)) {
        let Some(Ok(mut frames)) = self.debug.as_ref().map(|debug| debug.frames(address)) else {
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

/// One frame of the debug information.
pub(crate) struct DebugLine<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) is_rust: bool,
    pub(crate) file: Option<&'a str>,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

fn tables(bytes: &FileBytes) -> ReadCache<Tables<'_>> {
    ReadCache::new(Tables::of(bytes))
}

/// Parses an ELF file of this machine's kind; the loader accepts no others.
fn parse<'a>(tables: Data<'a>) -> Option<Elf<'a>> {
    Elf::parse(tables).ok().filter(|elf| elf.endian() == Endianness::default())
}

/// Returns the path where distributions install the debug information of their libraries.
fn installed_debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let path = format!("/usr/lib/debug/.build-id/{first:02x}/{}.debug", hex(rest));
    Some(PathBuf::from(path))
}

/// Formats a build id as tools print it.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Progress;

    #[test]
    fn another_build_id_is_refused() {
        let exe = std::env::current_exe().unwrap();
        let opens = |path: &Path, build_id: &[u8]| {
            ObjectFile::open_matching(path, build_id, |_| true, &Store::new(&Progress::default())).is_some()
        };
        assert!(!opens(&exe, &[1, 2, 3]));
        assert!(!opens(Path::new("/nonexistent"), &[]));
    }

    #[test]
    fn build_ids_are_padded() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
        let path = installed_debug_file(&[0xab, 0x01]).unwrap();
        assert_eq!(path, Path::new("/usr/lib/debug/.build-id/ab/01.debug"));
        assert!(installed_debug_file(&[]).is_none());
    }
}

#[cfg(all(test, target_os = "linux"))]
mod fuzz_tests;
