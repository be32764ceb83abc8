//! The head of an ELF file: its parser, its build id, and its segments with code.

use std::io;
use std::path::Path;

use object::elf;
use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Endianness, Object, ReadCache};

use super::bytes::{FileBytes, open_regular};
use super::tables::Tables;

/// The source of headers and tables.
pub(super) type Data<'a> = &'a ReadCache<Tables<'a>>;
pub(super) type Elf<'a> = ElfFile64<'a, Endianness, Data<'a>>;

pub(super) fn tables(bytes: &FileBytes) -> ReadCache<Tables<'_>> {
    ReadCache::new(Tables::of(bytes))
}

/// Parses an ELF file of this machine's kind; the loader accepts no others.
pub(super) fn parse<'a>(tables: Data<'a>) -> Option<Elf<'a>> {
    Elf::parse(tables).ok().filter(|elf| elf.endian() == Endianness::default())
}

/// What a file on disk says of itself.
#[derive(Clone, Debug)]
pub struct Image {
    /// The linker's build id; empty when there is none.
    pub build_id: Vec<u8>,
    /// Its segments with code: the offset of each in the file, and its address in the file's own numbering.
    pub code: Vec<(u64, u64)>,
}

impl Image {
    /// Reads the head of a program or library.
    ///
    /// # Errors
    /// Those of reading it; [`InvalidInput`](io::ErrorKind::InvalidInput) if it is not a regular file;
    /// [`InvalidData`](io::ErrorKind::InvalidData) if it is not one of the kind that this machine executes.
    pub fn read(path: &Path) -> io::Result<Self> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "not a program or library in ELF format");
        let data = ReadCache::new(open_regular(path)?);
        let elf = ElfFile64::<Endianness, _>::parse(&data).map_err(|_| invalid())?;
        let endian = elf.endian();
        let is_code = |header: &&elf::ProgramHeader64<Endianness>| {
            header.p_type(endian) == elf::PT_LOAD && header.p_flags(endian).contains(elf::PF_X)
        };
        let place =
            |header: &elf::ProgramHeader64<Endianness>| (header.p_offset(endian), header.p_vaddr(endian));
        Ok(Self {
            build_id: elf.build_id().map_err(|_| invalid())?.unwrap_or_default().to_vec(),
            code: elf.elf_program_headers().iter().filter(is_code).map(place).collect(),
        })
    }
}

/// Formats a build id as tools print it.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_are_padded() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
    }
}
