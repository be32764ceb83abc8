//! Names of functions that the loader chooses for this processor.
//!
//! `memmove` of the C library is a function that returns one of a dozen others, each for a kind of processor. The file exports
//! only that one, and the others have no name once it is stripped: in a CPU profile they are a tenth of many programs. The
//! loader knows which of them it has chosen, and the unwind tables know where it ends.

use std::cmp::Ordering;
use std::ffi::CString;

use addr2line::gimli::{BaseAddresses, EhFrame, EhFrameOffset, Reader as _, UnwindSection as _};
use object::read::elf::Sym as _;
use object::{Object, ObjectSection, elf};
use rtprof_runtime::modules::{self, Module};

use super::bytes::FileBytes;
use super::elf::Elf;
use super::section::Section;

/// The code of a chosen function, in the file's own addresses, and the place of its name among the exported names.
#[derive(Debug, PartialEq)]
pub(super) struct Chosen {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) name: u32,
}

/// Returns the functions that were chosen in `module`, which was loaded from this file.
pub(super) fn chosen(module: &Module, bytes: &FileBytes, elf: &Elf<'_>) -> Vec<Chosen> {
    if module.is_foreign() {
        return Vec::new();
    }
    let Some(tables) = Tables::of(bytes, elf) else { return Vec::new() };
    let symbols = elf.elf_dynamic_symbol_table();
    let indirect = symbols.iter().filter(|symbol| symbol.st_type() == elf::STT_GNU_IFUNC);
    let chosen = indirect.filter_map(|symbol| {
        let name = symbols.symbol_name(elf.endian(), symbol).ok()?;
        let address = modules::exported(&CString::new(name).ok()?)?;
        // A library that was loaded before may have another function of this name.
        let start = module.contains(address).then(|| address.wrapping_sub(module.bias) as u64)?;
        Some(Chosen { start, end: tables.end_of(start)?, name: symbol.st_name(elf.endian()) })
    });
    chosen.collect()
}

/// The unwind tables of a file: the sorted table of where functions begin (`.eh_frame_hdr`), and what is known of them
/// (`.eh_frame`).
pub(super) struct Tables<'a> {
    /// From the first entry on.
    starts: Section<'a>,
    count: u64,
    /// The address to which the entries are relative.
    starts_at: u64,
    frames: EhFrame<Section<'a>>,
    frames_at: u64,
}

impl<'a> Tables<'a> {
    pub(super) fn of(bytes: &'a FileBytes, elf: &Elf<'_>) -> Option<Self> {
        let section = |name: &str| {
            let section = elf.section_by_name(name)?;
            let (offset, len) = section.file_range()?;
            Some((Section::in_file(bytes, offset, len), section.address()))
        };
        let ((mut starts, starts_at), (frames, frames_at)) =
            (section(".eh_frame_hdr")?, section(".eh_frame")?);
        // The version is 1. Linkers encode the pointer to the frames as pcrel | sdata4, the count as udata4, and the table as
        // datarel | sdata4. gimli reads other forms too, but its sums overflow in a damaged table.
        let form = [(); 4].map(|()| starts.read_u8().ok());
        if form != [Some(1), Some(0x1b), Some(0x03), Some(0x3b)] {
            return None;
        }
        starts.skip(4).ok()?;
        let count = u64::from(starts.read_u32().ok()?).min(starts.len() as u64 / 8);
        Some(Self { starts, count, starts_at, frames: frames.into(), frames_at })
    }

    /// Returns an entry of the table: the addresses of a function, and of what is known of it.
    fn entry(&self, at: u64) -> Option<[u64; 2]> {
        let mut entry = self.starts;
        entry.skip(usize::try_from(at * 8).ok()?).ok()?;
        let address = |relative: u32| self.starts_at.wrapping_add_signed(i64::from(relative as i32));
        Some([address(entry.read_u32().ok()?), address(entry.read_u32().ok()?)])
    }

    /// Returns where the function ends that begins at `start`; `None` if none begins there.
    pub(super) fn end_of(&self, start: u64) -> Option<u64> {
        let (mut from, mut to) = (0, self.count);
        while from < to {
            let middle = from + (to - from) / 2;
            let [function, known] = self.entry(middle)?;
            match function.cmp(&start) {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => {
                    let offset = usize::try_from(known.checked_sub(self.frames_at)?).ok()?;
                    let bases = BaseAddresses::default().set_eh_frame(self.frames_at);
                    let entry =
                        self.frames.fde_from_offset(&bases, EhFrameOffset(offset), EhFrame::cie_from_offset);
                    let entry = entry.ok().filter(|entry| entry.initial_address() == start)?;
                    return start.checked_add(entry.len());
                }
            }
        }
        None
    }
}
