//! The programs and libraries in this process: where their code lies, how they are called, and
//! their unwind tables.
//!
//! The loader's list may only be read under the loader's lock, which a hook must not take (another
//! thread may hold it and allocate). So it is read outside the hooks: at start, and again by
//! [`refresh`] at each snapshot. A module loaded and unloaded between two of them is not known.
//!
//! Locks: `REFRESH` (a [`ForkLock`]) is held while the list is replaced, and inside it `loader::ASKING` while
//! the loader is asked; never in a hook.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::fork_lock::ForkLock;
use crate::sampling;

/// One executable segment of a program or library.
#[derive(Debug)]
pub struct Module {
    /// Absolute path, or a name in brackets where there is no file (`[vdso]`).
    pub path: String,
    /// First run-time address of the segment.
    pub start: usize,
    /// One past its last address.
    pub limit: usize,
    /// Where the segment begins in the file.
    pub file_offset: u64,
    /// Run-time address minus the address in the file's own numbering (ELF `p_vaddr`), modulo 2^64: a
    /// library that was linked for a higher place than it got has a "negative" one.
    pub bias: usize,
    /// The linker's build id (GNU note), empty when there is none.
    pub build_id: Vec<u8>,
    /// Whether this is the program itself.
    pub is_main_executable: bool,
    /// The file at `path` when the module was first seen.
    pub file: Option<FileIdentity>,
    /// The lowest address that the loader mapped for this program or library.
    pub(crate) base: usize,
    pub(crate) unwind: UnwindTables,
    /// As the loader calls it.
    loader_name: String,
    loaded: AtomicBool,
}

impl Module {
    /// What the loader calls it.
    pub fn loader_name(&self) -> &str {
        &self.loader_name
    }

    /// Whether it was still loaded at the last [`refresh`].
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Relaxed)
    }

    /// Whether a run-time address lies in this segment.
    pub fn contains(&self, address: usize) -> bool {
        (self.start..self.limit).contains(&address)
    }
}

/// What tells a file from another one that takes its place: device, inode, and time of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity([i64; 4]);

impl FileIdentity {
    /// That of the file at `path` now.
    pub fn of(path: &std::path::Path) -> Option<Self> {
        Self::of_metadata(&std::fs::metadata(path).ok()?)
    }

    /// Whether it is the same file, though its content may have changed.
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.0[..2] == other.0[..2]
    }

    /// That of a file that is open.
    pub fn of_metadata(metadata: &std::fs::Metadata) -> Option<Self> {
        #[cfg(rtprof_supported)]
        {
            use std::os::unix::fs::MetadataExt;
            let changed = (metadata.mtime(), metadata.mtime_nsec());
            Some(Self([metadata.dev() as i64, metadata.ino() as i64, changed.0, changed.1]))
        }
        #[cfg(not(rtprof_supported))]
        {
            let _ = metadata;
            None
        }
    }
}

/// The unwind tables of a module, readable for as long as the process lives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnwindTables {
    /// `.eh_frame_hdr` and its run-time address.
    pub(crate) header: (&'static [u8], usize),
    /// `.eh_frame` and its run-time address.
    pub(crate) frames: (&'static [u8], usize),
    /// Whether the bytes are a copy of ours, and not the module's own, which go when it is unloaded.
    is_copy: bool,
}

/// What the process has loaded. Replaced as a whole.
#[derive(Debug, Default)]
struct ModuleSet {
    modules: Vec<&'static Module>,
    generation: (u64, u64),
}

static REFRESH: ForkLock = ForkLock::new();
static CURRENT: AtomicPtr<ModuleSet> = AtomicPtr::new(core::ptr::null_mut());
/// Threads that are reading a set. A set that was replaced is freed when nobody reads any.
static READERS: AtomicUsize = AtomicUsize::new(0);
/// Unloaded modules that are remembered: their addresses may still stand in stacks. More would make a
/// program that loads and unloads plugins for ever grow with them.
const REMEMBERED: usize = 256;

/// Reads the set as of the last refresh; empty before the first. Lock-free: for hooks.
fn read<T>(f: impl FnOnce(&ModuleSet) -> T) -> T {
    static EMPTY: ModuleSet = ModuleSet { modules: Vec::new(), generation: (0, 0) };
    // Sequentially consistent, with the load below: a refresh that has stored a new set and then sees no
    // reader knows that whoever comes later sees the new one.
    READERS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: a set is freed only after it was replaced and no reader was left.
    let result = f(unsafe { CURRENT.load(Ordering::SeqCst).as_ref() }.unwrap_or(&EMPTY));
    READERS.fetch_sub(1, Ordering::SeqCst);
    result
}

/// The loaded module that holds a run-time address. Lock-free.
pub fn find(address: usize) -> Option<&'static Module> {
    read(|set| set.modules.iter().copied().find(|m| m.is_loaded() && m.contains(address)))
}

/// Every module seen, the program itself first, unloaded ones last; of these the latest 256.
pub fn known() -> Vec<&'static Module> {
    let mut all = read(|set| set.modules.clone());
    all.sort_by_key(|m| (!m.is_main_executable, !m.is_loaded()));
    all
}

/// Reads the loader's list again if it has changed. Not for hooks: it takes the loader's lock and
/// allocates. A forked child whose parent was in here with that lock at the instant of the fork keeps the modules
/// that it has. (One that found another thread with it waits for ever: nobody can tell.)
pub fn refresh() {
    let _held = REFRESH.lock();
    let Some(generation) = imp::generation() else { return };
    if read(|set| set.generation == generation && !set.modules.is_empty()) {
        return;
    }
    // The list stays, whatever work it is read for.
    sampling::outside_workspace(|| {
        let _untracked = sampling::untracked();
        read_again(generation);
    });
}

fn read_again(generation: (u64, u64)) {
    let before = read(|set| set.modules.clone());
    let Some(mut modules) = imp::list(&before) else { return };
    for module in &before {
        let still = modules.iter().any(|f| core::ptr::eq(*f, *module));
        module.loaded.store(still, Ordering::Relaxed);
    }
    for module in &modules {
        module.loaded.store(true, Ordering::Relaxed);
    }
    modules.extend(before.iter().copied().filter(|m| !m.is_loaded()).take(REMEMBERED));
    crate::stack::unwind::install(&modules);
    let set = Box::into_raw(Box::new(ModuleSet { modules, generation }));
    let old = CURRENT.swap(set, Ordering::SeqCst);
    if !old.is_null() && READERS.load(Ordering::SeqCst) == 0 {
        // SAFETY: replaced, and nobody reads it: who counted himself since reads the new one. (With a
        // reader about, or the ghost of one in a forked child, it is leaked.)
        drop(unsafe { Box::from_raw(old) });
    }
}

#[cfg(rtprof_supported)]
mod loader;
#[cfg(rtprof_supported)]
use loader as imp;

#[cfg(not(rtprof_supported))]
mod imp {
    use super::Module;

    pub(super) fn generation() -> Option<(u64, u64)> {
        None
    }

    pub(super) fn list(_before: &[&'static Module]) -> Option<Vec<&'static Module>> {
        None
    }
}

/// Keeps the library that contains this address from being unloaded. Not for hooks.
pub(crate) fn keep_loaded(address: usize) {
    #[cfg(rtprof_supported)]
    if let Some(library) = find(address).filter(|module| !module.is_main_executable)
        && let Ok(name) = std::ffi::CString::new(library.loader_name())
    {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: the library is loaded already, so this runs no code of it; it marks it as permanent.
        unsafe { libc::dlopen(name.as_ptr(), flags) };
    }
    #[cfg(not(rtprof_supported))]
    let _ = address;
}

#[cfg(all(test, rtprof_supported, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_test_program_is_the_first_module_and_holds_this_function() {
        refresh();
        let all = known();
        assert!(all[0].is_main_executable);
        let here = the_test_program_is_the_first_module_and_holds_this_function as fn() as usize;
        assert!(core::ptr::eq(find(here).unwrap(), all[0]));
        assert_eq!(all[0].path, std::env::current_exe().unwrap().to_string_lossy());
        assert!(all.iter().any(|m| m.path.contains("libc")), "{all:?}");
        assert!(all[0].unwind.frames.0.len() > 1000);
    }

    #[test]
    fn a_second_refresh_keeps_the_set() {
        refresh();
        let before = CURRENT.load(Ordering::Relaxed);
        refresh();
        assert_eq!(before, CURRENT.load(Ordering::Relaxed));
    }
}
