//! A module: one program or library in this process.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashSet;
use std::time::SystemTime;

/// One executable segment of a program or library.
#[derive(Debug)]
pub struct Module {
    /// Absolute path, or a name in brackets where there is no file (`[vdso]`): pprof does not look for a file of such a
    /// name.
    pub path: String,
    /// First run-time address of the segment.
    pub start: usize,
    /// One past its last address.
    pub limit: usize,
    /// The offset of the segment in the file.
    pub file_offset: u64,
    /// Run-time address minus the address in the file's own numbering (ELF `p_vaddr`), modulo 2^64: a library that was
    /// linked for a higher address than it is loaded at has a "negative" bias.
    pub bias: usize,
    /// The linker's build id (GNU note), empty when there is none.
    pub build_id: Vec<u8>,
    /// Whether this is the program itself.
    pub is_main_executable: bool,
    /// The device of its file, as the kernel lists mappings; `None` if it is not listed, or if there is no file.
    pub device: Option<String>,
    /// When it was first seen. Without a build id, a file that was changed later may not be what was loaded.
    pub first_seen: SystemTime,
    /// The lowest address that the loader mapped for this program or library.
    pub(crate) base: usize,
    pub(crate) unwind: UnwindTables,
    /// The loader's name for it.
    pub(super) loader_name: String,
    pub(super) loaded: AtomicBool,
    pub(super) is_foreign: bool,
}

impl Module {
    /// Returns whether it is a module of another process: its addresses mean nothing in this one.
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Returns the loader's name for it.
    pub(crate) fn loader_name(&self) -> &str {
        &self.loader_name
    }

    /// Returns whether it was still loaded at the last [`refresh`](super::refresh).
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Relaxed)
    }

    /// Returns whether a run-time address lies in this segment.
    pub fn contains(&self, address: usize) -> bool {
        (self.start..self.limit).contains(&address)
    }
}

/// The unwind tables of a module, readable for as long as the process lives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnwindTables {
    /// `.eh_frame_hdr` and its run-time address.
    pub(crate) header: (&'static [u8], usize),
    /// `.eh_frame` and its run-time address.
    pub(crate) frames: (&'static [u8], usize),
    /// `.debug_frame`, of the program alone. Its addresses are those of the file's own numbering.
    pub(crate) debug_frame: &'static [u8],
    /// Whether the other bytes are our own copy, and not the module's, which are unmapped when it is unloaded.
    pub(super) is_copy: bool,
}

/// The loader's counts of modules added and removed: at least one changes whenever the list does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Generation {
    pub(super) added: u64,
    pub(super) removed: u64,
}

/// The loader's list as it was read.
pub(super) struct Listing {
    pub(super) modules: Vec<&'static Module>,
    pub(super) generation: Generation,
}

impl Listing {
    pub(super) fn identities(&self) -> HashSet<usize> {
        self.modules.iter().map(|module| identity(module)).collect()
    }
}

/// Returns a number that identifies a module: they are never freed.
pub(super) fn identity(module: &'static Module) -> usize {
    core::ptr::from_ref(module).addr()
}
