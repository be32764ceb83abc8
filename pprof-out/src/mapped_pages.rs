//! Segments as readers expect them.

use rtprof_runtime::modules::Module;

/// A segment as the kernel maps it, in whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappedPages {
    pub(crate) start: usize,
    pub(crate) limit: usize,
    pub(crate) file_offset: u64,
}

impl MappedPages {
    /// Rounds a segment to whole pages, because segments begin and end anywhere in a page. Readers expect what
    /// /proc/self/maps shows: `go tool pprof` computes the load address from the start, and with an unaligned start it
    /// finds the names of other functions.
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
}
