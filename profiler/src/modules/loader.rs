//! Reading the dynamic loader's list.
//!
//! Everything that is wanted of a module is taken inside the callback, under the loader's lock, because
//! the module may be gone a moment later. Files are looked at afterwards.

use super::{FileIdentity, Generation, Listing, Module, UnwindTables};
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::AtomicBool;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::fork_lock::ForkLock;

/// Held as long as the loader's lock is, for us.
static ASKING: ForkLock = ForkLock::new();

type Callback = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

/// Calls back for each module. `None`, without a call, in a forked child whose parent was in here at the instant of the
/// fork: the C library leaves its lock held there for ever.
///
/// # Safety
///
/// The callback may be called with `data` and what `dl_iterate_phdr` gives, and does not unwind.
unsafe fn ask(callback: Callback, data: *mut c_void) -> Option<()> {
    let _held = ASKING.lock_whole()?;
    // SAFETY: the caller's promise.
    unsafe { libc::dl_iterate_phdr(Some(callback), data) };
    Some(())
}

/// The loader's counts as they are now. `None` if it cannot be asked.
pub(super) fn generation() -> Option<Generation> {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _size: usize, out: *mut c_void) -> c_int {
        // SAFETY: the loader hands a valid record, and `out` is the Option below.
        unsafe { *out.cast::<Option<Generation>>() = Some(generation_of(&*info)) };
        1
    }
    let mut out: Option<Generation> = None;
    // SAFETY: the callback does not unwind and stays within its arguments.
    unsafe { ask(first, (&raw mut out).cast()) }?;
    out
}

fn generation_of(info: &libc::dl_phdr_info) -> Generation {
    Generation { added: info.dlpi_adds, removed: info.dlpi_subs }
}

/// A segment as the loader lists it.
struct Draft {
    name: String,
    start: usize,
    limit: usize,
    file_offset: u64,
    bias: usize,
    build_id: Vec<u8>,
    is_main_executable: bool,
    base: usize,
    unwind: UnwindTables,
    known: Option<&'static Module>,
}

struct Walk<'a> {
    before: &'a [&'static Module],
    found: Vec<Draft>,
    index: usize,
    generation: Generation,
}

/// Walks the loader's list. A module that stands in `before` unchanged is taken over from there.
/// Unwind tables are copied, but for those of the program itself: any library may be unloaded one
/// day, those present at the start too (a plugin's host may have loaded this crate after others). `None` if it cannot
/// be asked.
pub(super) fn list(before: &[&'static Module]) -> Option<Listing> {
    let mut walk = Walk { before, found: Vec::new(), index: 0, generation: Generation::default() };
    // SAFETY: the callback stays within its arguments; a panic in it (out of memory) aborts at
    // the `extern "C"` boundary.
    unsafe { ask(each, (&raw mut walk).cast()) }?;
    // Files are asked for after the loader's lock is released.
    let modules = walk.found.into_iter().map(|draft| draft.known.unwrap_or_else(|| draft.keep())).collect();
    Some(Listing { modules, generation: walk.generation })
}

impl Draft {
    fn keep(self) -> &'static Module {
        let mut is_what_was_executed = false;
        let path = if self.is_main_executable {
            let executed = std::fs::read_link("/proc/self/exe").ok();
            let program = program_path(self.start, executed.as_deref());
            is_what_was_executed = program == executed;
            program
        } else if self.name.is_empty() || self.name.starts_with("linux-vdso") {
            Some("[vdso]".into())
        } else {
            std::fs::canonicalize(&self.name).ok()
        };
        let path = path.unwrap_or_else(|| self.name.clone().into());
        // Reachable there even when another file lies at its path by now.
        let file = FileIdentity::of(if is_what_was_executed { "/proc/self/exe".as_ref() } else { &path });
        Box::leak(Box::new(Module {
            path: path.to_string_lossy().into_owned(),
            file,
            start: self.start,
            limit: self.limit,
            file_offset: self.file_offset,
            bias: self.bias,
            build_id: self.build_id,
            is_main_executable: self.is_main_executable,
            base: self.base,
            unwind: self.unwind,
            loader_name: self.name,
            loaded: AtomicBool::new(true),
        }))
    }
}

/// The path of the program whose code lies at `address`. What was executed may be the loader with the program as an
/// argument (`ld-linux.so.2 ./app`): then /proc/self/exe leads to the loader.
fn program_path(address: usize, executed: Option<&Path>) -> Option<PathBuf> {
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    let Some(mapped) = mapped_path(&maps, address) else { return executed.map(Path::to_path_buf) };
    // The list writes a line feed in a path as four other bytes, and leaves those as they are: it does not say which
    // is meant.
    match executed {
        Some(executed) if escaped(executed.as_os_str().as_bytes()) == mapped => Some(executed.to_path_buf()),
        _ => Some(PathBuf::from(OsStr::from_bytes(mapped))),
    }
}

/// The path in the line of an address of /proc/self/maps: `start-end access offset device inode  path`.
fn mapped_path(maps: &[u8], address: usize) -> Option<&[u8]> {
    maps.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.splitn(6, |&byte| byte == b' ');
        let (start, end) = str::from_utf8(fields.next()?).ok()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let path = fields.nth(4)?.trim_ascii_start();
        ((number(start)?..number(end)?).contains(&address) && path.starts_with(b"/")).then_some(path)
    })
}

fn escaped(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for &byte in path {
        match byte {
            b'\n' => out.extend_from_slice(b"\\012"),
            byte => out.push(byte),
        }
    }
    out
}

unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: `data` is the Walk of `list`, which waits for this call, and `info` is valid
    // for its duration; so are the program headers it points to.
    let (walk, info) = unsafe { (&mut *data.cast::<Walk<'_>>(), &*info) };
    let headers = if info.dlpi_phnum == 0 {
        &[]
    } else {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) }
    };
    let is_main_executable = walk.index == 0;
    walk.index += 1;
    walk.generation = generation_of(info);
    let bias = info.dlpi_addr as usize;
    let name = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: the loader's names end in NUL.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
    };
    let build_id = build_id(headers, bias);
    let segments = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    let base = segments.map(|h| bias.wrapping_add(h.p_vaddr as usize)).min().unwrap_or(bias);
    let mut tables = None;
    for segment in headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0) {
        let start = bias.wrapping_add(segment.p_vaddr as usize);
        let limit = start.saturating_add(segment.p_memsz as usize);
        let current = *tables.get_or_insert_with(|| unwind_tables(headers, bias));
        // Without a build id only the tables tell a rebuilt library at the same place from the old one.
        let same_tables =
            |m: &Module| m.unwind.header.0 == current.header.0 && m.unwind.frames.0 == current.frames.0;
        let known = walk.before.iter().copied().find(|m| {
            m.start == start
                && m.limit == limit
                && m.build_id == build_id
                && m.loader_name == name
                && (is_main_executable || !build_id.is_empty() || same_tables(m))
        });
        let unwind = match known {
            Some(known) => known.unwind,
            None if is_main_executable => current,
            None => keep(current, walk.before),
        };
        walk.found.push(Draft {
            name: name.clone(),
            start,
            limit,
            file_offset: segment.p_offset,
            bias,
            build_id: build_id.clone(),
            is_main_executable,
            base,
            unwind,
            known,
        });
    }
    0
}

/// Copies tables that may be unmapped later. A module seen before with equal ones lends its copy, so
/// that a program that loads and unloads one plugin for ever keeps one copy of it: the tables are
/// relative to their own address, which is kept beside them.
fn keep(tables: UnwindTables, before: &[&'static Module]) -> UnwindTables {
    let copy = |(bytes, address): (&'static [u8], usize), old: fn(&UnwindTables) -> &'static [u8]| {
        let lent = before.iter().filter(|m| m.unwind.is_copy).map(|m| old(&m.unwind)).find(|o| *o == bytes);
        (lent.unwrap_or_else(|| Box::leak(bytes.to_vec().into_boxed_slice())), address)
    };
    UnwindTables {
        header: copy(tables.header, |t| t.header.0),
        frames: copy(tables.frames, |t| t.frames.0),
        is_copy: true,
    }
}

/// The bytes of a part of a module, if it lies in one readable segment: what a header claims beyond
/// that may not be mapped.
fn readable(
    headers: &[libc::Elf64_Phdr],
    bias: usize,
    vaddr: u64,
    len: u64,
) -> Option<(&'static [u8], usize)> {
    let end = vaddr.checked_add(len)?;
    let inside = |h: &libc::Elf64_Phdr| {
        h.p_type == libc::PT_LOAD
            && h.p_flags & libc::PF_R != 0
            && h.p_vaddr <= vaddr
            && end <= h.p_vaddr.saturating_add(h.p_filesz)
    };
    headers.iter().find(|h| inside(h))?;
    let at = bias.wrapping_add(vaddr as usize);
    // SAFETY: inside a readable segment, which is mapped while the module is loaded. Callers copy
    // what is to outlive it, under the loader's lock.
    Some((unsafe { core::slice::from_raw_parts(at as *const u8, len as usize) }, at))
}

fn build_id(headers: &[libc::Elf64_Phdr], bias: usize) -> Vec<u8> {
    const NT_GNU_BUILD_ID: u32 = 3;
    for note in headers.iter().filter(|h| h.p_type == libc::PT_NOTE) {
        let Some((mut bytes, _)) = readable(headers, bias, note.p_vaddr, note.p_memsz) else { continue };
        let word = |b: &[u8], i: usize| u32::from_ne_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        while bytes.len() >= 12 {
            let (name_len, len, kind) = (word(bytes, 0) as usize, word(bytes, 4) as usize, word(bytes, 8));
            let name_end = 12 + name_len.next_multiple_of(4);
            let Some(content) = bytes.get(name_end..name_end.saturating_add(len)) else { break };
            if kind == NT_GNU_BUILD_ID && bytes.get(12..16) == Some(b"GNU\0") {
                return content.to_vec();
            }
            bytes = bytes.get(name_end + len.next_multiple_of(4)..).unwrap_or_default();
        }
    }
    Vec::new()
}

/// `.eh_frame_hdr` by its program header; `.eh_frame` by the pointer in it, up to the end of its
/// segment (the loader does not tell its length, and its own terminator ends it).
fn unwind_tables(headers: &[libc::Elf64_Phdr], bias: usize) -> UnwindTables {
    let found = headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME).and_then(|header| {
        let tables = readable(headers, bias, header.p_vaddr, header.p_memsz)?;
        Some((header.p_vaddr, tables))
    });
    let Some((vaddr, header)) = found else { return UnwindTables::default() };
    let bytes = header.0;
    // The version is 1 and linkers encode the pointer as pcrel | sdata4; anything else is left
    // to the fall-back by frame pointers.
    const PCREL_SDATA4: u8 = 0x1b;
    if bytes.len() < 8 || bytes[0] != 1 || bytes[1] != PCREL_SDATA4 {
        return UnwindTables::default();
    }
    let offset = i32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let frames = vaddr.wrapping_add(4).wrapping_add_signed(offset.into());
    let holder = headers
        .iter()
        .filter(|h| h.p_type == libc::PT_LOAD)
        .find(|h| (h.p_vaddr..h.p_vaddr.saturating_add(h.p_filesz)).contains(&frames));
    let frames = holder.and_then(|h| readable(headers, bias, frames, h.p_vaddr + h.p_filesz - frames));
    UnwindTables { header, frames: frames.unwrap_or_default(), is_copy: false }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_an_address_is_found() {
        let maps = b"1000-2000 r--p 00000000 fe:00 11   /bin/a b\n\
                     2000-3000 r-xp 00001000 fe:00 11   /bin/a b\n\
                     3000-4000 rw-p 00000000 00:00 0 \n\
                     7000-8000 r-xp 00000000 00:00 0    [vdso]\n";
        assert_eq!(mapped_path(maps, 0x2fff), Some(&b"/bin/a b"[..]));
        for nowhere in [0xfff, 0x3000, 0x7000, 0x8000] {
            assert_eq!(mapped_path(maps, nowhere), None, "{nowhere:#x}");
        }
    }

    #[test]
    fn this_test_lies_at_its_own_path() {
        let here = program_path as fn(usize, Option<&Path>) -> Option<PathBuf> as usize;
        let exe = std::env::current_exe().unwrap();
        assert_eq!(program_path(here, None), Some(exe.clone()));
        assert_eq!(program_path(here, Some(&exe)), Some(exe.clone()));
        assert_eq!(program_path(here, Some(Path::new("/lib/ld.so"))), Some(exe.clone()));
        assert_eq!(program_path(8, Some(&exe)), Some(exe));
        assert_eq!(escaped(b"/a\nb"), b"/a\\012b");
    }
}
