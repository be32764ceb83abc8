//! Finds the function that contains the code at an address, in the symbol tables.

use std::borrow::Cow;

use object::elf;
use object::read::elf::{Sym, SymbolTable};
use object::{Endianness, Object, ObjectSection};

use super::bytes::FileBytes;
use super::elf::{Data, Elf};
use super::indirect::Chosen;
use super::section::Section;

/// The functions of a file, in the order of their addresses.
pub(super) struct Functions<'a> {
    functions: Vec<Function>,
    /// The names in the full table and in the table of exported ones.
    names: [Section<'a>; 2],
}

/// The number of the table of exported names.
const EXPORTED: u8 = 1;

/// The code range of a function, in the file's own addresses, and the place of its name.
#[derive(Clone, Copy)]
struct Function {
    start: u64,
    end: u64,
    /// The rank of its name among names for the same code; lower is better.
    rank: u8,
    table: u8,
    /// The offset in its table of names.
    name: u32,
}

/// A symbol that covers an address.
pub(crate) struct FunctionSymbol<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) start: u64,
}

type Table<'data> = SymbolTable<'data, elf::FileHeader64<Endianness>, Data<'data>>;

impl<'a> Functions<'a> {
    pub(super) fn of(bytes: &'a FileBytes, elf: &Elf<'_>) -> Self {
        let tables = [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()];
        let mut all = Vec::new();
        for (table, number) in tables.iter().zip(0..) {
            collect(&mut all, table, number, elf);
        }
        Self { functions: settled(all), names: tables.map(|table| names(bytes, elf, table)) }
    }

    /// Adds functions whose names are among the exported ones, where no other function is known to begin.
    pub(super) fn add(&mut self, chosen: impl Iterator<Item = Chosen>) {
        for Chosen { start, end, name } in chosen {
            let at = self.functions.partition_point(|f| f.start < start);
            if self.functions.get(at).is_none_or(|next| next.start != start) {
                self.functions.insert(at, Function { start, end, rank: 0, table: EXPORTED, name });
            }
        }
    }

    /// Returns the function whose code contains `address`. A symbol that merely precedes the address does not count: in
    /// a stripped library the nearest exported name mostly belongs to another function.
    pub(super) fn at(&self, address: u64) -> Option<FunctionSymbol<'a>> {
        let after = self.functions.partition_point(|f| f.start <= address);
        let function = self.functions[..after].last()?;
        if address >= function.end {
            return None;
        }
        let name = self.names[usize::from(function.table)].text(function.name.into())?;
        // One byte that is not UTF-8 must not hide the rest; names of the debug information are treated the same way.
        let name = match name {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        };
        Some(FunctionSymbol { name, start: function.start })
    }
}

fn collect(all: &mut Vec<Function>, table: &Table<'_>, number: u8, elf: &Elf<'_>) {
    let endian = elf.endian();
    for symbol in table.iter() {
        let is_code = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
        let is_defined = symbol.st_shndx(endian) != elf::SHN_UNDEF && symbol.st_value(endian) != 0;
        if !is_code || !is_defined || symbol.st_name(endian) == 0 {
            continue;
        }
        let start = symbol.st_value(endian);
        let size = symbol.st_size(endian);
        // Among aliases a symbol with a size and one that other modules see are preferred.
        let is_local = symbol.st_bind() == elf::STB_LOCAL;
        let is_hidden = symbol.st_visibility() != elf::STV_DEFAULT;
        let rank = 4 * u8::from(size == 0) + if is_local { 2 } else { u8::from(is_hidden) };
        // A damaged file may contain any numbers.
        let end = start.saturating_add(size);
        all.push(Function { start, end, rank, table: number, name: symbol.st_name(endian) });
    }
}

/// Keeps one function for each start, with its best name and the longest size.
fn settled(mut all: Vec<Function>) -> Vec<Function> {
    // The full table comes before the exported names; of equal symbols the later one, which is mostly the more
    // specific.
    all.reverse();
    all.sort_by_key(|f| (f.start, f.table, f.rank));
    all.dedup_by(|later, first| {
        let is_same = later.start == first.start;
        if is_same {
            first.end = first.end.max(later.end);
        }
        is_same
    });
    // Functions in assembly, `_start` among them, often have no size: they extend to the next one.
    for at in 1..all.len() {
        let next = all[at].start;
        let before = &mut all[at - 1];
        if before.end == before.start {
            before.end = next;
        }
    }
    all.shrink_to_fit();
    all
}

fn names<'a>(bytes: &'a FileBytes, elf: &Elf<'_>, table: &Table<'_>) -> Section<'a> {
    let range = elf.section_by_index(table.string_section()).ok().and_then(|section| section.file_range());
    range.map_or(Section::EMPTY, |(offset, size)| Section::in_file(bytes, offset, size))
}
