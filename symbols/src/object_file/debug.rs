//! Debug information (DWARF): lines and inlined functions of addresses.

use std::cell::Cell;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::gimli::{Dwarf, DwarfPackage, Error, Reader, Result, Section as _, SectionId};
use addr2line::{Context, FrameIter, LookupContinuation, LookupResult, SplitDwarfLoad};
use object::read::CompressionFormat;
use object::{Object, ObjectSection};
use typed_arena::Arena;

use super::bytes::{Allowance, FileBytes};
use super::elf::{Elf, parse, tables};
use super::section::{self, Section};
use super::separate::as_path;
use super::{partial_units, separate};
use crate::progress::Progress;

/// The data that the debug information of one module borrows: its files, and the sections unpacked from them.
pub(crate) struct Store {
    pub(super) allowance: Allowance,
    files: Arena<FileBytes>,
    unpacked: Arena<Vec<u8>>,
}

impl Store {
    /// An empty store. Each read into it notes a step of `progress`.
    pub(crate) fn new(progress: &Progress) -> Self {
        Self { allowance: Allowance::new(progress), files: Arena::new(), unpacked: Arena::new() }
    }

    pub(super) fn open(&self, path: &Path) -> Option<&FileBytes> {
        let bytes = FileBytes::open(path, &self.allowance).ok()?;
        Some(self.files.alloc(bytes))
    }

    /// Opens a file like [`open`](Self::open), without keeping a descriptor: there may be a thousand of these files.
    fn look_into(&self, path: &Path) -> Option<&FileBytes> {
        let bytes = FileBytes::look_into(path, &self.allowance).ok()?;
        Some(self.files.alloc(bytes))
    }

    /// Whether a read has failed since the last call, for a temporary reason.
    pub(crate) fn has_failed(&self) -> bool {
        self.allowance.has_failed()
    }

    /// Whether none of the store's files was written to since it was opened. Otherwise results from them may be wrong.
    pub(crate) fn is_unchanged(&mut self) -> bool {
        self.files.iter_mut().all(|file| file.is_unchanged())
    }
}

pub(super) struct DebugInfo<'a> {
    store: &'a Store,
    context: Context<Section<'a>>,
    /// The split debug information of all units, in one file beside the program's.
    package: Option<DwarfPackage<Section<'a>>>,
    /// Whether a unit was found neither in the package nor in a file by itself.
    missed_unit: Cell<bool>,
    /// Whether the file with what this one shares with others is missing.
    lacks_alternative: bool,
}

impl<'a> DebugInfo<'a> {
    /// Reads the debug information in the file at `path`, of the program or library at `program`. Without the sections
    /// for it no address has any.
    pub(super) fn of(
        path: &Path,
        program: &Path,
        bytes: &'a FileBytes,
        elf: &Elf<'_>,
        store: &'a Store,
    ) -> Option<Self> {
        let mut dwarf = Dwarf::load(|id| load(id, id.name(), bytes, elf, store)).ok()?;
        let (units, abbreviations) = (*dwarf.debug_info.reader(), *dwarf.debug_abbrev.reader());
        if let Some(changed) = partial_units::without_line_tables(units, abbreviations) {
            store.allowance.take(changed.len() as u64).ok()?;
            dwarf.debug_abbrev = Section::in_memory(store.unpacked.alloc(changed)).into();
        }
        let mut lacks_alternative = false;
        if let Some((places, build_id)) = separate::alternative(path, elf, Path::new(separate::INSTALLED)) {
            let open = |place: &PathBuf| alternative(place, &build_id, store);
            match places.iter().find_map(open) {
                Some(shared) => dwarf.set_sup(shared),
                None => lacks_alternative = true,
            }
        }
        dwarf.populate_abbreviations_cache(addr2line::gimli::AbbreviationsCacheStrategy::Duplicates);
        let context = Context::from_dwarf(dwarf).ok()?;
        let package = [path, program].iter().find_map(|path| package(&package_path(path), store));
        Some(Self { store, context, package, missed_unit: Cell::new(false), lacks_alternative })
    }

    /// Whether the file is missing that has what `dwz` found in several files. Some functions have no name then.
    pub(super) fn lacks_alternative(&self) -> bool {
        self.lacks_alternative
    }

    /// Returns the frames at an address, innermost first.
    pub(super) fn frames(&self, address: u64) -> Result<FrameIter<'_, Section<'a>>> {
        if address == u64::MAX {
            // The parser adds 1, which would overflow.
            return Err(Error::AddressOverflow);
        }
        let mut found = self.context.find_frames(address);
        loop {
            match found {
                LookupResult::Output(frames) => return frames,
                LookupResult::Load { load, continuation } => {
                    let unit = self.split_unit(&load);
                    if unit.is_none() {
                        self.missed_unit.set(true);
                    }
                    found = continuation.resume(unit);
                }
            }
        }
    }

    /// Whether a look-up since the last call has missed a unit, and with it the inlined functions.
    pub(super) fn has_missed_unit(&self) -> bool {
        self.missed_unit.replace(false)
    }

    /// Loads a unit whose debug information the linker left in another file.
    #[expect(clippy::arc_with_non_send_sync, reason = "the parser asks for an Arc")]
    fn split_unit(&self, load: &SplitDwarfLoad<Section<'a>>) -> Option<Arc<Dwarf<Section<'a>>>> {
        let packed =
            self.package.as_ref().and_then(|package| package.find_cu(load.dwo_id, &load.parent).ok()?);
        if let Some(unit) = packed {
            return Some(Arc::new(unit));
        }
        let mut path = PathBuf::new();
        for part in [load.comp_dir, Some(load.path?)].into_iter().flatten() {
            path.push(as_path(&part.to_slice().ok()?));
        }
        let bytes = self.store.look_into(&path)?;
        let tables = tables(bytes);
        let elf = parse(&tables)?;
        let mut dwarf = Dwarf::load(|id| load_named(id, id.dwo_name(), bytes, &elf, self.store)).ok()?;
        let header = dwarf.units().next().ok()??;
        if dwarf.unit(header).ok()?.dwo_id != Some(load.dwo_id) {
            return None;
        }
        dwarf.make_dwo(&load.parent);
        Some(Arc::new(dwarf))
    }
}

/// Returns the package of the program at `path`: `app.dwp` for `app`, `app.so.dwp` for `app.so`.
fn package_path(path: &Path) -> PathBuf {
    let mut extension = path.extension().map(OsStr::to_os_string).unwrap_or_default();
    extension.push(if extension.is_empty() { "dwp" } else { ".dwp" });
    path.with_extension(extension)
}

fn package<'a>(path: &Path, store: &'a Store) -> Option<DwarfPackage<Section<'a>>> {
    let bytes = store.open(path)?;
    let tables = tables(bytes);
    let elf = parse(&tables)?;
    DwarfPackage::load(|id| load_named(id, id.dwo_name(), bytes, &elf, store), Section::EMPTY).ok()
}

/// Opens the file with the debug information that several files share.
fn alternative<'a>(path: &Path, build_id: &[u8], store: &'a Store) -> Option<Dwarf<Section<'a>>> {
    let bytes = store.open(path)?;
    let tables = tables(bytes);
    let elf = parse(&tables)?;
    if elf.build_id().ok().flatten()? != build_id {
        return None;
    }
    Dwarf::load(|id| load(id, id.name(), bytes, &elf, store)).ok()
}

fn load_named<'a>(
    id: SectionId,
    name: Option<&str>,
    bytes: &'a FileBytes,
    elf: &Elf<'_>,
    store: &'a Store,
) -> Result<Section<'a>> {
    name.map_or(Ok(Section::EMPTY), |name| load(id, name, bytes, elf, store))
}

fn load<'a>(
    id: SectionId,
    name: &str,
    bytes: &'a FileBytes,
    elf: &Elf<'_>,
    store: &'a Store,
) -> Result<Section<'a>> {
    // These sections are not needed for lines, and are large: unpacking them would be wasted.
    let is_needed = !matches!(
        id,
        SectionId::DebugLoc
            | SectionId::DebugLocLists
            | SectionId::DebugMacinfo
            | SectionId::DebugMacro
            | SectionId::DebugNames
    );
    let Some(found) = elf.section_by_name(name) else { return Ok(Section::EMPTY) };
    let range = found.compressed_file_range().map_err(|_| Error::Io)?;
    if range.format == CompressionFormat::None {
        // Includes sections that are not needed: the index of a package refers to them, and is rejected where they are
        // missing.
        return Ok(Section::in_file(bytes, range.offset, range.compressed_size));
    }
    if !is_needed {
        return Ok(Section::EMPTY);
    }
    let unpacked = section::unpacked(bytes, &range).map_err(|_| Error::Io)?;
    Ok(Section::in_memory(store.unpacked.alloc(unpacked)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_lies_beside_its_program() {
        for (program, package) in [("/a/app", "/a/app.dwp"), ("/a/lib.so", "/a/lib.so.dwp")] {
            assert_eq!(package_path(Path::new(program)), Path::new(package));
        }
    }
}
