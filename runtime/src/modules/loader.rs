//! Reading the dynamic loader's list.
//!
//! All data of a module is copied inside the callback, under the loader's lock, because the module may be unloaded a
//! moment later. The kernel is asked for its data afterwards.

use super::debug_frame;
use super::image::{Copies, Image};
use super::memory::Memory;
use super::module::{Generation, Listing, Module, UnwindTables};
use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use core::sync::atomic::AtomicBool;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::lock::fork_lock::ForkLock;
use crate::process::own_files;

/// Held while our own code holds the loader's lock.
static ASKING: ForkLock = ForkLock::new();
/// Held while our own code may wait for the lock that the loader holds during constructors. Not `ASKING`: a constructor may
/// read the list.
#[cfg(not(target_feature = "crt-static"))]
static FINDING: ForkLock = ForkLock::new();

type Callback = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

/// Calls back for each module. Returns `None` without a call in a forked child whose parent was in this function at the
/// instant of the fork: there the C library's lock stays held for ever.
///
/// # Safety
///
/// The callback may be called with `data` and the arguments of `dl_iterate_phdr`, and does not unwind.
unsafe fn ask(callback: Callback, data: *mut c_void) -> Option<()> {
    let _held = ASKING.lock_whole()?;
    // SAFETY: the caller allows the callback to be called with `data`.
    unsafe { libc::dl_iterate_phdr(Some(callback), data) };
    Some(())
}

/// Returns the address of an exported function.
pub(super) fn exported(name: &CStr) -> Option<usize> {
    // A static program has no exported functions, and a linker that finds `dlsym` in it warns.
    #[cfg(not(target_feature = "crt-static"))]
    {
        let _held = FINDING.lock_whole()?;
        // SAFETY: the name is terminated.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!address.is_null()).then(|| address.addr())
    }
    #[cfg(target_feature = "crt-static")]
    {
        let _ = name;
        None
    }
}

/// Returns the loader's current counts. Returns `None` if its list cannot be read.
pub(super) fn generation() -> Option<Generation> {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _size: usize, out: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record, and `out` is the Option below.
        unsafe { *out.cast::<Option<Generation>>() = Some(generation_of(&*info)) };
        1
    }
    let mut out: Option<Generation> = None;
    // SAFETY: the callback does not unwind and accesses only its arguments.
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
    /// Program headers, if this is the program itself.
    headers: Vec<u8>,
    known: Option<&'static Module>,
}

/// The modules seen before.
#[derive(Default)]
struct Before {
    by_start: HashMap<usize, Vec<&'static Module>>,
    by_bias: HashMap<usize, Vec<&'static Module>>,
    copies: Copies,
}

impl Before {
    fn new(modules: &[&'static Module]) -> Self {
        let mut before = Self::default();
        for &module in modules {
            before.by_start.entry(module.start).or_default().push(module);
            before.by_bias.entry(module.bias).or_default().push(module);
            before.copies.add(&module.unwind);
        }
        before
    }
}

struct Walk {
    before: Before,
    memory: Memory,
    found: Vec<Draft>,
    index: usize,
    generation: Generation,
}

/// Walks the loader's list. A module that is unchanged since `before` is taken from there. Unwind tables are copied,
/// except for those of the program itself: any library may be unloaded some day, also one that was present at the start
/// (a plugin's host may have loaded this crate after others). Returns `None` if the list cannot be read.
pub(super) fn list(before: &[&'static Module]) -> Option<Listing> {
    let memory = Memory::open();
    let before = Before::new(before);
    let mut walk = Walk { before, memory, found: Vec::new(), index: 0, generation: Generation::default() };
    // SAFETY: the callback accesses only its arguments; a panic in it (out of memory) aborts at the `extern "C"`
    // boundary.
    unsafe { ask(each, (&raw mut walk).cast()) }?;
    // The kernel is asked after the loader's lock is released.
    let files = MappedFiles::read(walk.generation);
    let modules =
        walk.found.into_iter().map(|draft| draft.known.unwrap_or_else(|| draft.keep(&files))).collect();
    Some(Listing { modules, generation: walk.generation })
}

impl Draft {
    /// Makes a module of the segment. Accesses no file except the one that is being executed: on a file system that does
    /// not answer it would block for ever.
    fn keep(self, files: &MappedFiles) -> &'static Module {
        let mapped = files.at(self.start);
        let path = if self.is_main_executable {
            program_path(mapped)
        } else if self.name.is_empty() || self.name.starts_with("linux-vdso") {
            Some("[vdso]".into())
        } else {
            mapped.map(|file| file.path_when_mapped().to_path_buf())
        };
        Box::leak(Box::new(Module {
            path: path.unwrap_or_else(|| self.name.clone().into()).to_string_lossy().into_owned(),
            device: mapped.map(|file| file.device.to_owned()),
            first_seen: SystemTime::now(),
            start: self.start,
            limit: self.limit,
            file_offset: self.file_offset,
            bias: self.bias,
            build_id: self.build_id,
            is_main_executable: self.is_main_executable,
            base: self.base,
            unwind: match self.is_main_executable {
                true => UnwindTables { debug_frame: debug_frame::of_program(&self.headers), ..self.unwind },
                false => self.unwind,
            },
            loader_name: self.name,
            loaded: AtomicBool::new(true),
            is_foreign: false,
        }))
    }
}

/// The files of the process's mappings, by [`own_files::MAPS`]: the kernel lists them without a file system access.
struct MappedFiles {
    maps: Vec<u8>,
    /// The addresses of mappings of files, in order, and where the device and the path are in the text.
    all: Vec<Mapped>,
}

struct Mapped {
    addresses: Range<usize>,
    device: Range<usize>,
    path: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MappedFile<'a> {
    /// Major and minor number.
    device: &'a str,
    path: &'a Path,
}

impl<'a> MappedFile<'a> {
    /// Returns the path without the suffix that the kernel appends for an unlinked file. The file now at this path may
    /// be the same build.
    fn path_when_mapped(self) -> &'a Path {
        let path = self.path.as_os_str().as_bytes();
        Path::new(OsStr::from_bytes(path.strip_suffix(b" (deleted)").unwrap_or(path)))
    }
}

impl MappedFiles {
    /// Reads the mappings for a state of the loader's list. Empty if the list has changed since: another library may be
    /// at an address.
    fn read(generation: Generation) -> Self {
        let maps = std::fs::read(own_files::MAPS).unwrap_or_default();
        Self::of(if self::generation() == Some(generation) { maps } else { Vec::new() })
    }

    fn of(maps: Vec<u8>) -> Self {
        let lines = maps.split(|&byte| byte == b'\n');
        let mut begin = 0;
        let all = lines
            .filter_map(|line| {
                let mapped = Mapped::of(line, begin);
                begin += line.len() + 1;
                mapped
            })
            .collect();
        Self { maps, all }
    }

    /// Returns the file of an address.
    fn at(&self, address: usize) -> Option<MappedFile<'_>> {
        // The kernel lists them in the order of their addresses.
        let after = self.all.partition_point(|mapped| mapped.addresses.start <= address);
        let mapped = self.all[..after].last().filter(|mapped| mapped.addresses.contains(&address))?;
        let path = Path::new(OsStr::from_bytes(&self.maps[mapped.path.clone()]));
        Some(MappedFile { device: str::from_utf8(&self.maps[mapped.device.clone()]).ok()?, path })
    }
}

impl Mapped {
    /// Reads a line `start-end access offset device inode  path`, which begins at `begin` of the text. `None` for a mapping of
    /// no file.
    fn of(line: &[u8], begin: usize) -> Option<Self> {
        let mut fields = line.splitn(6, |&byte| byte == b' ');
        let (start, end) = str::from_utf8(fields.next()?).ok()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let (device, path) = (fields.nth(2)?, fields.nth(1)?.trim_ascii_start());
        // Parts of the line.
        let range = |part: &[u8]| {
            let at = begin + (part.as_ptr().addr() - line.as_ptr().addr());
            at..at + part.len()
        };
        let addresses = number(start)?..number(end)?;
        path.starts_with(b"/").then(|| Self { addresses, device: range(device), path: range(path) })
    }
}

/// Returns the path of the program. If the loader was executed with the program as an argument (`ld-linux.so.2 ./app`),
/// [`own_files::EXECUTABLE`] leads to the loader.
fn program_path(mapped: Option<MappedFile<'_>>) -> Option<PathBuf> {
    let executed = std::fs::read_link(own_files::EXECUTABLE).ok();
    match (mapped, executed) {
        // The list of mappings writes a line feed in a path as four other bytes, but does not escape those four bytes
        // themselves, so an escaped path is ambiguous.
        (Some(mapped), Some(executed))
            if escaped(executed.as_os_str().as_bytes()) == mapped.path.as_os_str().as_bytes() =>
        {
            Some(executed)
        }
        (Some(mapped), _) => Some(mapped.path.to_path_buf()),
        (None, Some(executed)) => Some(executed),
        (None, None) => path_at_start(),
    }
}

/// Returns the path by which the program was started, as the kernel (or the loader, if that was executed) has passed it
/// to the C library. For programs without /proc.
fn path_at_start() -> Option<PathBuf> {
    // SAFETY: `getauxval` reads a number of the auxiliary vector. It is 0 or the address of a string at the end of the
    // main stack, which exists as long as the process.
    let name = unsafe {
        let name = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
        (!name.is_null()).then(|| CStr::from_ptr(name))
    };
    std::path::absolute(OsStr::from_bytes(name?.to_bytes())).ok()
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
    // SAFETY: `data` is the Walk of `list`, which waits for this call, and `info` is valid during the call.
    let (walk, info) = unsafe { (&mut *data.cast::<Walk>(), &*info) };
    let is_main_executable = walk.index == 0;
    walk.index += 1;
    walk.generation = generation_of(info);
    let bias = info.dlpi_addr as usize;
    let name = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: the loader's names end in NUL, and are not in a file.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
    };
    let image = Image::new(info, &walk.memory);
    let Some((image, build_id)) = image.and_then(|image| image.build_id().map(|id| (image, id))) else {
        // Its file was truncated. A known module is most likely unchanged; otherwise nothing is known of it.
        let alike = walk.before.by_bias.get(&bias).into_iter().flatten().copied();
        let same = alike.filter(|m| m.loader_name == name);
        walk.found.extend(same.map(Draft::of));
        return 0;
    };
    let base = image.segments().map(|h| bias.wrapping_add(h.p_vaddr as usize)).min().unwrap_or(bias);
    let mut tables = None;
    for segment in image.segments().filter(|h| h.p_flags & libc::PF_X != 0) {
        let start = bias.wrapping_add(segment.p_vaddr as usize);
        let limit = start.saturating_add(segment.p_memsz as usize);
        let mut alike = walk
            .before
            .by_start
            .get(&start)
            .into_iter()
            .flatten()
            .copied()
            .filter(|m| m.limit == limit && m.build_id == build_id && m.loader_name == name);
        let known = if is_main_executable || !build_id.is_empty() {
            alike.next()
        } else {
            // Without a build id only the tables distinguish a rebuilt library at the same place from the old one.
            let current = tables.get_or_insert_with(|| image.tables());
            alike.find(|m| current.have_bytes_of(&m.unwind))
        };
        let unwind = match known {
            Some(known) => known.unwind,
            None if is_main_executable => image.tables_in_place(),
            None => tables.get_or_insert_with(|| image.tables()).kept(&mut walk.before.copies),
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
            headers: if is_main_executable { image.header_bytes.clone() } else { Vec::new() },
            known,
        });
    }
    0
}

impl Draft {
    /// Makes the draft of a known module.
    fn of(known: &'static Module) -> Self {
        Self {
            name: known.loader_name.clone(),
            start: known.start,
            limit: known.limit,
            file_offset: known.file_offset,
            bias: known.bias,
            build_id: known.build_id.clone(),
            is_main_executable: known.is_main_executable,
            base: known.base,
            unwind: known.unwind,
            headers: Vec::new(),
            known: Some(known),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_an_address_is_found() {
        let maps = b"1000-2000 r--p 00000000 fe:00 11   /bin/a b\n\
                     2000-3000 r-xp 00001000 fe:00 11   /bin/a b\n\
                     3000-4000 rw-p 00000000 00:00 0 \n\
                     7000-8000 r-xp 00000000 00:00 0    [vdso]\n";
        let files = MappedFiles::of(maps.to_vec());
        let file = MappedFile { device: "fe:00", path: Path::new("/bin/a b") };
        assert_eq!(files.at(0x2fff), Some(file));
        assert_eq!(file.path_when_mapped(), file.path);
        let unlinked = MappedFile { path: Path::new("/bin/a b (deleted)"), ..file };
        assert_eq!(unlinked.path_when_mapped(), file.path);
        for nowhere in [0xfff, 0x3000, 0x7000, 0x8000] {
            assert_eq!(files.at(nowhere), None, "{nowhere:#x}");
        }
    }

    #[test]
    fn this_test_lies_at_its_own_path() {
        let here = program_path as fn(Option<MappedFile<'_>>) -> Option<PathBuf> as usize;
        let exe = std::env::current_exe().unwrap();
        let files = MappedFiles::of(std::fs::read(own_files::MAPS).unwrap());
        let mapped = files.at(here).unwrap();
        assert_eq!(mapped.path, exe);
        assert_eq!(program_path(Some(mapped)), Some(exe.clone()));
        assert_eq!(program_path(None), Some(exe.clone()));
        let loader = MappedFile { device: "", path: Path::new("/lib/ld.so") };
        assert_eq!(program_path(Some(loader)), Some("/lib/ld.so".into()));
        assert_eq!(path_at_start(), Some(exe));
        assert_eq!(escaped(b"/a\nb"), b"/a\\012b");
    }
}
