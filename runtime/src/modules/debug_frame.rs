//! The section `.debug_frame` of the program's file: the rules of functions that `.eh_frame` does not list.
//!
//! Problem: musl's C library is compiled without `.eh_frame`, as many C libraries are that never unwind. A thread that
//! waits in it (std's locks, channels and `park` wait in its function `syscall`) then has a stack of one function,
//! because that function keeps no frame pointer either. Where debug information is kept, the rules of such functions are
//! in `.debug_frame`, which the loader does not map.
//!
//! Scheme: the section is read from the file once, when the program's executable segment is first listed (linkers make one).
//! Only the program's: the kernel opens its file under any name while it is executed. A library's file may be on a file system
//! that does not answer, and the request for a profile would wait for it. The bytes are copied, so a file that changes
//! gives wrong rules at worst.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::process::own_files;

/// The length up to which a section is kept in memory. C code has 50 to 100 bytes for each function.
const MAX_LEN: u64 = 16 << 20;

/// Returns the section of the executed file, if that is the file of these program headers. Empty if it has none, if it is
/// compressed, or if the file cannot be read.
pub(super) fn of_program(program_headers: &[u8]) -> &'static [u8] {
    let section = File::open(own_files::EXECUTABLE).ok().and_then(|file| section(&file, program_headers));
    Box::leak(section.unwrap_or_default().into_boxed_slice())
}

fn section(file: &File, program_headers: &[u8]) -> Option<Vec<u8>> {
    let read = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, at).is_ok().then_some(bytes)
    };
    let header = read(0, size_of::<libc::Elf64_Ehdr>())?;
    // SAFETY: it has the size of a header, and any bytes are a valid one.
    let header = unsafe { header.as_ptr().cast::<libc::Elf64_Ehdr>().read_unaligned() };
    // If the loader was executed with the program as an argument, this is the loader's file.
    if read(header.e_phoff, program_headers.len())? != program_headers {
        return None;
    }
    const LEN: usize = size_of::<libc::Elf64_Shdr>();
    if usize::from(header.e_shentsize) != LEN {
        return None;
    }
    let sections = read(header.e_shoff, usize::from(header.e_shnum) * LEN)?;
    // SAFETY: as above; each chunk has a section header's size.
    let section = |chunk: &[u8]| unsafe { chunk.as_ptr().cast::<libc::Elf64_Shdr>().read_unaligned() };
    let mut sections = sections.chunks_exact(LEN).map(section);
    let names = sections.clone().nth(header.e_shstrndx.into())?;
    const MAX_NAMES: u64 = 1 << 20;
    let names = read(names.sh_offset, names.sh_size.min(MAX_NAMES) as usize)?;
    let is_wanted = |section: &libc::Elf64_Shdr| {
        let name = names.get(section.sh_name as usize..).unwrap_or_default();
        name.starts_with(b".debug_frame\0")
    };
    let found = sections.find(is_wanted)?;
    const SHT_PROGBITS: u32 = 1;
    const SHF_COMPRESSED: u64 = 1 << 11;
    // In a file of debug information alone, other sections have no bytes.
    if found.sh_type != SHT_PROGBITS || found.sh_flags & SHF_COMPRESSED != 0 || found.sh_size > MAX_LEN {
        return None;
    }
    read(found.sh_offset, found.sh_size as usize)
}
