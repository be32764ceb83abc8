//! The parts of a program's or library's file that the loader has mapped: headers, build id, unwind tables. They are
//! read through [`Memory`], because the file may have been truncated since.

use std::collections::HashMap;

use super::memory::Memory;
use super::module::UnwindTables;

pub(super) struct Image<'a> {
    /// The bytes of `headers`.
    pub(super) header_bytes: Vec<u8>,
    headers: Vec<libc::Elf64_Phdr>,
    bias: usize,
    memory: &'a Memory,
}

/// Copies of unwind tables, each with its run-time address.
pub(super) struct CopiedTables {
    header: (Vec<u8>, usize),
    frames: (Vec<u8>, usize),
}

/// Addresses and lengths.
#[derive(Clone, Copy, Default)]
struct Places {
    header: (usize, usize),
    frames: (usize, usize),
}

impl<'a> Image<'a> {
    /// Reads the headers. Returns `None` if they cannot be read.
    pub(super) fn new(info: &libc::dl_phdr_info, memory: &'a Memory) -> Option<Self> {
        const LEN: usize = size_of::<libc::Elf64_Phdr>();
        let number = usize::from(info.dlpi_phnum);
        let bytes = memory.copy(info.dlpi_phdr as usize, number * LEN)?;
        // SAFETY: any bytes are a valid header, and each chunk has a header's size.
        let header = |chunk: &[u8]| unsafe { chunk.as_ptr().cast::<libc::Elf64_Phdr>().read_unaligned() };
        let headers = bytes.chunks_exact(LEN).map(header).collect();
        Some(Self { header_bytes: bytes, headers, bias: info.dlpi_addr as usize, memory })
    }

    pub(super) fn segments(&self) -> impl Iterator<Item = &libc::Elf64_Phdr> {
        self.headers.iter().filter(|h| h.p_type == libc::PT_LOAD)
    }

    /// Returns the run-time address and length of a part, if it lies within one readable segment: a header may claim
    /// ranges that are not mapped.
    fn readable(&self, vaddr: u64, len: u64) -> Option<(usize, usize)> {
        let end = vaddr.checked_add(len)?;
        let inside = |h: &libc::Elf64_Phdr| {
            h.p_flags & libc::PF_R != 0 && h.p_vaddr <= vaddr && end <= h.p_vaddr.saturating_add(h.p_filesz)
        };
        self.segments().find(|h| inside(h))?;
        Some((self.bias.wrapping_add(vaddr as usize), len as usize))
    }

    fn copy(&self, (address, len): (usize, usize)) -> Option<Vec<u8>> {
        self.memory.copy(address, len)
    }

    /// Returns the build id, which is empty if the module has none; `None` if it cannot be read.
    pub(super) fn build_id(&self) -> Option<Vec<u8>> {
        const NT_GNU_BUILD_ID: u32 = 3;
        for note in self.headers.iter().filter(|h| h.p_type == libc::PT_NOTE) {
            let Some(part) = self.readable(note.p_vaddr, note.p_memsz) else { continue };
            let notes = self.copy(part)?;
            let mut bytes = &notes[..];
            let word = |b: &[u8], i: usize| u32::from_ne_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
            while bytes.len() >= 12 {
                let (name_len, len, kind) =
                    (word(bytes, 0) as usize, word(bytes, 4) as usize, word(bytes, 8));
                let name_end = 12 + name_len.next_multiple_of(4);
                let Some(content) = bytes.get(name_end..name_end.saturating_add(len)) else { break };
                if kind == NT_GNU_BUILD_ID && bytes.get(12..16) == Some(b"GNU\0") {
                    return Some(content.to_vec());
                }
                bytes = bytes.get(name_end + len.next_multiple_of(4)..).unwrap_or_default();
            }
        }
        Some(Vec::new())
    }

    /// Finds `.eh_frame_hdr` by its program header, and `.eh_frame` by the pointer in it, up to the end of its segment
    /// (the loader does not know its length, and its own terminator ends it).
    fn places(&self) -> Option<Places> {
        let found = self.headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME)?;
        let vaddr = found.p_vaddr;
        let header = self.readable(vaddr, found.p_memsz)?;
        // The version is 1, and linkers encode the pointer as pcrel | sdata4; for anything else the walk falls back to
        // frame pointers.
        const PCREL_SDATA4: u8 = 0x1b;
        let start: [u8; 8] = self.copy((header.0, header.1.min(8)))?.try_into().ok()?;
        let [1, PCREL_SDATA4, _, _, offset @ ..] = start else { return None };
        let frames = vaddr.wrapping_add(4).wrapping_add_signed(i32::from_ne_bytes(offset).into());
        let holder =
            self.segments().find(|h| (h.p_vaddr..h.p_vaddr.saturating_add(h.p_filesz)).contains(&frames));
        let frames = holder.and_then(|h| self.readable(frames, h.p_vaddr + h.p_filesz - frames));
        Some(Places { header, frames: frames.unwrap_or_default() })
    }

    /// Copies the tables. They are empty if they cannot be read.
    pub(super) fn tables(&self) -> CopiedTables {
        let Places { header, frames } = self.places().unwrap_or_default();
        let copied = |part: (usize, usize)| (self.copy(part).unwrap_or_default(), part.0);
        CopiedTables { header: copied(header), frames: copied(frames) }
    }

    /// Returns the tables of the program itself, in place.
    pub(super) fn tables_in_place(&self) -> UnwindTables {
        let Places { header, frames } = self.places().unwrap_or_default();
        let slice = |(address, len): (usize, usize)| {
            if len == 0 {
                return (&[][..], address);
            }
            // SAFETY: the range is inside a readable segment of the program, which is mapped as long as the process
            // lives. The kernel refuses writes to the file that it executes. (Linux 6.11 did not, and the kernel does
            // not protect a program that was started through the loader: where such a file is truncated, the program
            // also dies at its next page of code.)
            (unsafe { core::slice::from_raw_parts(address as *const u8, len) }, address)
        };
        UnwindTables { header: slice(header), frames: slice(frames), ..UnwindTables::default() }
    }
}

impl CopiedTables {
    pub(super) fn have_bytes_of(&self, known: &UnwindTables) -> bool {
        self.header.0 == known.header.0 && self.frames.0 == known.frames.0
    }

    /// Turns the copies into tables that stay. If a module seen before has a copy with equal contents, that copy is
    /// shared, so that a program that loads and unloads one plugin for ever keeps a single copy of it: the tables are
    /// relative to their own address, which is stored beside them.
    pub(super) fn kept(&self, copies: &mut Copies) -> UnwindTables {
        let mut keep = |(bytes, address): &(Vec<u8>, usize)| (copies.of(bytes), *address);
        let (header, frames) = (keep(&self.header), keep(&self.frames));
        UnwindTables { header, frames, is_copy: true, ..UnwindTables::default() }
    }
}

/// All copies that stay, by their lengths.
#[derive(Default)]
pub(super) struct Copies(HashMap<usize, Vec<&'static [u8]>>);

impl Copies {
    /// Adds those of a module.
    pub(super) fn add(&mut self, tables: &UnwindTables) {
        if tables.is_copy {
            for (copy, _) in [tables.header, tables.frames] {
                self.0.entry(copy.len()).or_default().push(copy);
            }
        }
    }

    /// Returns a copy with these bytes.
    fn of(&mut self, bytes: &[u8]) -> &'static [u8] {
        let alike = self.0.entry(bytes.len()).or_default();
        if let Some(copy) = alike.iter().find(|copy| **copy == bytes) {
            return copy;
        }
        let copy: &'static [u8] = Box::leak(bytes.to_vec().into_boxed_slice());
        alike.push(copy);
        copy
    }
}
