//! Which module an address lies in.

use rtprof_profiler::modules::{self, Module};

/// The executable segments of the process, as they were when the export began.
pub(crate) struct ModuleMap {
    modules: Vec<&'static Module>,
    /// Indices into `modules`; of segments that once lay at the same place, the better one is earlier.
    by_start: Vec<usize>,
}

impl ModuleMap {
    /// Reads the loader's list again, so that libraries loaded since the last export are known.
    pub(crate) fn read() -> Self {
        modules::refresh();
        Self::new(modules::known())
    }

    fn new(modules: Vec<&'static Module>) -> Self {
        let mut by_start: Vec<usize> = (0..modules.len()).collect();
        by_start.sort_by_key(|&at| modules[at].start);
        Self { modules, by_start }
    }

    pub(crate) fn modules(&self) -> &[&'static Module] {
        &self.modules
    }

    /// The module of an address. Where a library was unloaded and another took its place, the one that is
    /// loaded now is meant, else the one seen last.
    pub(crate) fn find(&self, address: usize) -> Option<usize> {
        let after = self.by_start.partition_point(|&at| self.modules[at].start <= address);
        self.by_start[..after]
            .iter()
            .copied()
            .filter(|&at| address < self.modules[at].limit)
            .max_by_key(|&at| (self.modules[at].is_loaded(), at))
    }
}

/// A segment as the kernel maps it, in whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappedPages {
    pub(crate) start: usize,
    pub(crate) limit: usize,
    pub(crate) file_offset: u64,
}

impl MappedPages {
    /// Segments begin and end anywhere in a page. Readers expect what /proc/self/maps shows: `go tool pprof` works
    /// out from the start where the file was loaded, and from an odd one finds the names of other functions.
    pub(crate) fn of(module: &Module) -> Self {
        Self::rounded(module.start, module.limit, module.file_offset)
    }

    fn rounded(start: usize, limit: usize, file_offset: u64) -> Self {
        const PAGE: usize = 4096;
        let before = start % PAGE;
        Self {
            start: start - before,
            limit: limit.checked_next_multiple_of(PAGE).unwrap_or(limit),
            file_offset: file_offset.saturating_sub(before as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_shown_in_whole_pages() {
        let pages = MappedPages { start: 0x5000, limit: 0x7000, file_offset: 0x2000 };
        assert_eq!(MappedPages::rounded(0x57e0, 0x6840, 0x27e0), pages);
        assert_eq!(MappedPages::rounded(0x5000, 0x7000, 0x2000), pages);
    }

    #[test]
    fn code_lies_in_a_module_and_the_heap_in_none() {
        let map = ModuleMap::read();
        let here = map.find(ModuleMap::read as fn() -> ModuleMap as usize).unwrap();
        assert!(map.modules()[here].is_main_executable);
        assert!(map.find(&raw const *Box::new(1u8) as usize).is_none());
        let main = &map.modules()[here];
        assert_ne!(map.find(main.limit), Some(here));
    }
}
