//! framehop's unwinders of a set of modules.
//!
//! A module's functions have their rules in `.eh_frame`, or, where C code was compiled without it, in `.debug_frame`
//! (see `modules::debug_frame`); a static program of musl has both kinds. framehop uses one of the sections for a module,
//! so a second unwinder knows the modules by the other section, and is asked for the addresses that this section lists.

use core::ops::Range;

use framehop::{ExplicitModuleSectionInfo, MustNotAllocateDuringUnwind, Unwinder, UnwinderNative};
use gimli::{BaseAddresses, CieOrFde, DebugFrame, EhFrame, EhFrameHdr, LittleEndian, UnwindSection};

use crate::modules::Module;

pub(super) type Native = UnwinderNative<&'static [u8], MustNotAllocateDuringUnwind>;

pub(super) struct Unwinders {
    by_eh_frame: Native,
    by_debug_frame: Native,
    /// Run-time addresses of the functions that the second one knows: in order, those beside each other merged.
    in_debug_frame: Vec<Range<u64>>,
    /// In the order of their addresses.
    modules: Vec<&'static Module>,
}

impl Unwinders {
    pub(super) fn new(modules: &[&'static Module]) -> Self {
        // framehop keeps them in order too, in a vector: those with lower addresses are not to be inserted before the
        // others.
        let mut modules: Vec<_> = modules.iter().copied().filter(|module| module.is_loaded()).collect();
        modules.sort_by_key(|module| module.start);
        let mut unwinders = Self {
            by_eh_frame: Native::new(),
            by_debug_frame: Native::new(),
            in_debug_frame: Vec::new(),
            modules: Vec::new(),
        };
        for module in &modules {
            if !module.unwind.frames.0.is_empty() {
                unwinders.by_eh_frame.add_module(by_eh_frame(module));
            }
            let functions = functions(module);
            if !functions.is_empty() {
                unwinders.by_debug_frame.add_module(by_debug_frame(module));
                unwinders.in_debug_frame.extend(functions);
            }
        }
        Self { modules, ..unwinders }
    }

    /// Returns the unwinder that knows the rule of an address.
    pub(super) fn of(&self, address: u64) -> &Native {
        let after = self.in_debug_frame.partition_point(|functions| functions.start <= address);
        match self.in_debug_frame[..after].last() {
            Some(functions) if address < functions.end => &self.by_debug_frame,
            _ => &self.by_eh_frame,
        }
    }

    /// Returns the depth of a stack without invented callers at its outer end.
    ///
    /// framehop takes the frame pointer of a function without rules for one. Where the function uses the register for
    /// another value, as musl's do, the words found there are taken for return addresses. Such words are recognized when
    /// they lie in no module. (Code that was generated at run time does too, but calls functions that have rules.)
    #[cold]
    #[inline(never)]
    pub(super) fn without_invented(&self, interrupted: usize, frames: &[usize]) -> usize {
        let is_known = |&frame: &usize| self.module(frame).is_some();
        let depth = frames.iter().rposition(is_known).map_or(0, |last| last + 1);
        if depth == frames.len() {
            return depth;
        }
        let called = if depth == 0 { interrupted } else { frames[depth - 1] - 1 };
        if self.has_no_rule(called) { depth } else { frames.len() }
    }

    fn module(&self, address: usize) -> Option<&'static Module> {
        let after = self.modules.partition_point(|module| module.start <= address);
        self.modules[..after].last().copied().filter(|module| module.contains(address))
    }

    /// Whether the address is in a module whose tables do not list its function.
    fn has_no_rule(&self, address: usize) -> bool {
        let Some(module) = self.module(address) else { return false };
        let ((header, header_at), (frames, frames_at)) = (module.unwind.header, module.unwind.frames);
        let bases =
            BaseAddresses::default().set_eh_frame_hdr(header_at as u64).set_eh_frame(frames_at as u64);
        let header = EhFrameHdr::new(header, LittleEndian).parse(&bases, 8);
        let Some(table) = header.as_ref().ok().and_then(|header| header.table()) else { return false };
        // gimli subtracts the section's start from what the table says, which may be any number.
        let start = header.as_ref().ok().and_then(|header| header.eh_frame_ptr().direct().ok());
        let entry = table.lookup(address as u64, &bases).ok().filter(|at| at.direct().ok() >= start);
        let found = entry.and_then(|at| table.pointer_to_offset(at).ok());
        let section = EhFrame::new(frames, LittleEndian);
        let function =
            found.and_then(|at| section.fde_from_offset(&bases, at, EhFrame::cie_from_offset).ok());
        let is_in_eh_frame = function.is_some_and(|function| function.contains(address as u64));
        !is_in_eh_frame && core::ptr::eq(self.of(address as u64), &raw const self.by_eh_frame)
    }
}

fn by_eh_frame(module: &Module) -> framehop::Module<&'static [u8]> {
    let (header, header_at) = module.unwind.header;
    let (frames, frames_at) = module.unwind.frames;
    // framehop wants addresses in the module's own numbering beside the bytes in memory. The file's numbering could
    // begin anywhere; this one begins at 0.
    let svma = |at: usize, len: usize| {
        let start = at.wrapping_sub(module.base) as u64;
        Some(start..start.wrapping_add(len as u64))
    };
    framehop::Module::new(
        module.path.clone(),
        module.start as u64..module.limit as u64,
        module.base as u64,
        ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: svma(module.start, module.limit - module.start),
            eh_frame_hdr_svma: svma(header_at, header.len()),
            eh_frame_hdr: Some(header),
            eh_frame_svma: svma(frames_at, frames.len()),
            eh_frame: Some(frames),
            ..Default::default()
        },
    )
}

/// In the file's own numbering, as the section's addresses are: what lies at 0 there is at `bias` in memory.
fn by_debug_frame(module: &Module) -> framehop::Module<&'static [u8]> {
    framehop::Module::new(
        module.path.clone(),
        module.start as u64..module.limit as u64,
        module.bias as u64,
        ExplicitModuleSectionInfo {
            base_svma: 0,
            debug_frame: Some(module.unwind.debug_frame),
            ..Default::default()
        },
    )
}

/// Returns the run-time addresses of the functions that the module's `.debug_frame` lists, as in
/// [`Unwinders::in_debug_frame`]. Empty if the section is malformed: framehop then makes no use of it.
fn functions(module: &Module) -> Vec<Range<u64>> {
    let mut section = DebugFrame::new(module.unwind.debug_frame, LittleEndian);
    section.set_address_size(8);
    let bases = BaseAddresses::default();
    let mut entries = section.entries(&bases);
    let mut functions = Vec::new();
    loop {
        match entries.next() {
            Ok(Some(CieOrFde::Cie(_))) => {}
            Ok(Some(CieOrFde::Fde(function))) => {
                let Ok(function) = function.parse(DebugFrame::cie_from_offset) else { return Vec::new() };
                let start = function.initial_address();
                // framehop's limit.
                if u32::try_from(start).is_err() {
                    return Vec::new();
                }
                let at = start.wrapping_add(module.bias as u64);
                // Linkers leave the entries of functions that they have removed, at address 0.
                if start != 0 && module.contains(at as usize) {
                    functions.push(at..at.saturating_add(function.len()));
                }
            }
            Ok(None) => break,
            Err(_) => return Vec::new(),
        }
    }
    functions.sort_unstable_by_key(|function| function.start);
    functions.dedup_by(|next, last| {
        let is_beside = next.start <= last.end;
        if is_beside {
            last.end = last.end.max(next.end);
        }
        is_beside
    });
    functions
}
