//! The file from which a module was loaded: its symbols and its debug information.
//!
//! `bytes` reads the file, `elf` parses its head, and `section` presents a part of it to parsers. `functions` has the symbol tables, with names from
//! `indirect` for functions that the loader has chosen among several. `debug` has the debug information, from which
//! `partial_units` takes what misleads the parser. `separate` finds the files to which packages move all this.

mod bytes;
mod debug;
mod elf;
mod functions;
mod indirect;
mod partial_units;
mod section;
mod separate;
mod tables;

use std::path::Path;

use object::{Object, ObjectSection};
use rtprof_runtime::modules::Module;
use rtprof_runtime::process::own_files;

use crate::symbol_cache::{DebugState, FileState};
use bytes::FileBytes;
use debug::DebugInfo;
use elf::{Elf, parse, tables};
use functions::Functions;
use separate::{Candidate, DebugLink};

pub(crate) use debug::Store;
pub use elf::{Image, hex};
pub(crate) use functions::FunctionSymbol;

/// Debug information and symbols of one module, for the duration of an export.
pub(crate) struct ObjectFile<'a> {
    debug: Option<DebugInfo<'a>>,
    functions: Functions<'a>,
    state: FileState,
    link: Option<DebugLink>,
}

/// What is read from a file.
#[derive(Clone, Copy, PartialEq)]
enum Parts {
    All,
    Functions,
}

impl<'a> ObjectFile<'a> {
    /// Opens the file of `module`, if it is the file that was loaded: a binary replaced on disk since then has other
    /// functions at the same addresses, and a wrong name is worse than none. The kernel keeps the running executable
    /// available under /proc even then. What the file lacks is read from the file to which a package moved it.
    pub(crate) fn open(module: &Module, store: &'a Store) -> Option<Self> {
        let path = Path::new(&module.path);
        let found = Self::open_loaded(module, store);
        let state = found.as_ref().map(Self::state).unwrap_or_default();
        // The debug information of the C library, installed on many machines, takes a hundred milliseconds to read.
        // Functions are enough for it.
        let wants_lines = !state.has_lines() && (module.is_main_executable || !separate::is_of_system(path));
        if !wants_lines && state.has_symbol_table {
            return found;
        }
        let parts = if wants_lines { Parts::All } else { Parts::Functions };
        let link = found.as_ref().and_then(|file| file.link.as_ref());
        let places = separate::candidates(path, &module.build_id, link, Path::new(separate::INSTALLED));
        let open = |place| Self::open_separate(place, module, parts, store);
        match (found, places.iter().find_map(open)) {
            (Some(found), Some(separate)) => Some(found.completed_by(separate)),
            (found, separate) => found.or(separate),
        }
    }

    fn open_loaded(module: &Module, store: &'a Store) -> Option<Self> {
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
        let at_its_path = path
            .is_absolute()
            .then(|| Self::open_matching(path, &module.build_id, is_the_file, Some(module), store))
            .flatten();
        if at_its_path.is_none() && (was_executed || module.is_main_executable && has_build_id) {
            return Self::open_matching(executed, &module.build_id, |_| true, Some(module), store);
        }
        at_its_path
    }

    /// Opens a file and reads everything from the descriptor whose build id was compared. `loaded` is the module that was
    /// loaded from it, if any.
    fn open_matching(
        path: &Path,
        build_id: &[u8],
        is_the_file: impl Fn(&FileBytes) -> bool,
        loaded: Option<&Module>,
        store: &'a Store,
    ) -> Option<Self> {
        let bytes = store.open(path).filter(|file| is_the_file(file))?;
        let tables = tables(bytes);
        let elf = parse(&tables)?;
        let is_it = elf.build_id().ok().flatten().unwrap_or_default() == build_id;
        let mut file = is_it.then(|| Self::of(path, path, bytes, &elf, Parts::All, store))?;
        if let Some(module) = loaded.filter(|_| !file.state.has_symbol_table) {
            file.functions.add(indirect::chosen(module, bytes, &elf).into_iter());
        }
        Some(file)
    }

    /// Opens the separate debug information of `module`, if it belongs to the same build.
    fn open_separate(place: &Candidate, module: &Module, parts: Parts, store: &'a Store) -> Option<Self> {
        let bytes = store.open(&place.path)?;
        let tables = tables(bytes);
        let elf = parse(&tables)?;
        let is_it = match elf.build_id().ok().flatten() {
            Some(build_id) => build_id == module.build_id,
            // Costs the reading of the whole file.
            None => place.checksum.is_some_and(|sum| bytes.checksum().is_ok_and(|of_file| of_file == sum)),
        };
        is_it.then(|| Self::of(&place.path, Path::new(&module.path), bytes, &elf, parts, store))
    }

    /// Reads a file at `path`. `program` is the path of the file that was loaded.
    fn of(
        path: &Path,
        program: &Path,
        bytes: &'a FileBytes,
        elf: &Elf<'_>,
        parts: Parts,
        store: &'a Store,
    ) -> Self {
        let has_lines = elf.section_by_name(".debug_line").is_some_and(|section| section.size() > 0);
        let wants_lines = has_lines && parts == Parts::All;
        let debug = wants_lines.then(|| DebugInfo::of(path, program, bytes, elf, store)).flatten();
        let state = FileState {
            has_symbol_table: !elf.elf_symbol_table().is_empty(),
            debug: match &debug {
                Some(debug) if debug.lacks_alternative() => DebugState::WithoutAlternative,
                Some(_) => DebugState::Whole,
                None if wants_lines => DebugState::Unreadable,
                None => DebugState::Absent,
            },
            is_read: true,
            is_unreadable: false,
        };
        Self { debug, functions: Functions::of(bytes, elf), state, link: DebugLink::of(elf) }
    }

    /// Takes what this file lacks from its separate debug information.
    fn completed_by(mut self, separate: Self) -> Self {
        if separate.state.has_lines() {
            (self.debug, self.state.debug) = (separate.debug, separate.state.debug);
        }
        if separate.state.has_symbol_table && !self.state.has_symbol_table {
            (self.functions, self.state.has_symbol_table) = (separate.functions, true);
        }
        self
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
        let Some(debug) = &self.debug else { return };
        let Ok(mut frames) = debug.frames(address) else { return };
        let mut following = frames.next().ok().flatten();
        while let Some(frame) = following {
            following = frames.next().ok().flatten();
            if frame.function.is_none() && following.is_some() && debug.lacks_alternative() {
                // The name of this inlined function is in the file that is missing. The function into which it was
                // inlined has its own name and line.
                continue;
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Progress;

    #[test]
    fn another_build_id_is_refused() {
        let exe = std::env::current_exe().unwrap();
        let opens = |path: &Path, build_id: &[u8]| {
            let store = Store::new(&Progress::default());
            ObjectFile::open_matching(path, build_id, |_| true, None, &store).is_some()
        };
        assert!(!opens(&exe, &[1, 2, 3]));
        assert!(!opens(Path::new("/nonexistent"), &[]));
    }

    /// The C library exports `memmove` only as a function that chooses one of several.
    #[test]
    #[cfg(all(
        target_os = "linux",
        target_env = "gnu",
        target_arch = "x86_64",
        not(target_feature = "crt-static")
    ))]
    fn a_chosen_function_has_its_name() {
        rtprof_runtime::modules::refresh();
        let address = libc::memmove as *const () as usize;
        let module = rtprof_runtime::modules::find(address).expect("it is loaded");
        let store = Store::new(&Progress::default());
        let file = ObjectFile::open_loaded(module, &store).expect("it is there");
        let place = address.wrapping_sub(module.bias) as u64;
        for place in [place, place + 1] {
            let name = file.symbol(place).map(|symbol| symbol.name.into_owned()).unwrap_or_default();
            assert!(name.contains("mem"), "{name:?} at {place:#x} of {}", module.path);
        }
        assert!(file.symbol(place).is_some_and(|symbol| symbol.start == place));
    }
}

#[cfg(all(test, target_os = "linux"))]
mod fuzz_tests;
