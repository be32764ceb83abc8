//! The heap profile as a table, for those who have no pprof at hand.

use rtprof_runtime::hook;

use crate::heap::HeapRecords;
use crate::top::{ByFunction, Sums};
use rtprof_symbols::locations::Locations;
use rtprof_symbols::view::View;

/// What one function allocated. The values are estimates for all allocations, as in the heap profile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopEntry {
    /// The function's name; its library (`[libc.so.6]`) or its address in the program where no name is known.
    pub function: String,
    /// Bytes that it allocated itself and that are still in use (pprof's *flat* value).
    pub inuse_space: i64,
    /// Objects that it allocated itself and that are still in use.
    pub inuse_objects: i64,
    /// Bytes that it ever allocated itself.
    pub alloc_space: i64,
    /// Objects that it ever allocated itself.
    pub alloc_objects: i64,
    /// Bytes in use that it or a function it called allocated (pprof's *cum* value).
    pub cumulative_inuse_space: i64,
    /// Bytes that it or a function it called ever allocated.
    pub cumulative_alloc_space: i64,
}

/// The `n` functions with the most bytes in use, then ever allocated, each counted with what it allocated
/// itself; as `go tool pprof -top` shows a heap profile.
pub fn heap_top(n: usize) -> Vec<TopEntry> {
    let mut entries = {
        let _workspace = hook::workspace();
        entries_of(&HeapRecords::take())
    };
    entries.truncate(n);
    // Made again where it is tracked: the result belongs to the caller.
    entries.to_vec()
}

fn entries_of(heap: &HeapRecords<'_>) -> Vec<TopEntry> {
    let mut locations = Locations::new(View::default());
    locations.prepare(heap.stacks());
    let mut functions = ByFunction::default();
    for record in &heap.records {
        functions.add(&locations.allocation(record.stack), record.estimated());
    }
    let mut entries: Vec<TopEntry> = functions
        .into_sums()
        .map(|(function, Sums { flat, cumulative })| TopEntry {
            function: function.to_string(),
            inuse_space: flat.inuse_space,
            inuse_objects: flat.inuse_objects,
            alloc_space: flat.alloc_space,
            alloc_objects: flat.alloc_objects,
            cumulative_inuse_space: cumulative.inuse_space,
            cumulative_alloc_space: cumulative.alloc_space,
        })
        .collect();
    entries.sort_unstable_by(|a, b| {
        let rank = |e: &TopEntry| (e.inuse_space, e.alloc_space, e.cumulative_inuse_space);
        rank(b).cmp(&rank(a)).then_with(|| a.function.cmp(&b.function))
    });
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::{HeapBase, HeapRecord};
    use crate::taken::Taken;

    #[test]
    fn flat_is_the_leaf_and_cumulative_the_whole_stack() {
        let record = |stack: &'static [usize], allocs, frees| HeapRecord {
            stack: stack.into(),
            size: 10,
            rate: 1,
            labels: &[],
            allocs,
            frees,
            base: HeapBase::default(),
        };
        let heap = HeapRecords {
            // 0x30 calls itself.
            records: vec![record(&[0x10, 0x30, 0x30], 3, 1), record(&[0x20, 0x30], 5, 5)],
            rate: 1,
            comments: Vec::new(),
            taken: Taken::default(),
        };
        let table: Vec<_> = entries_of(&heap)
            .into_iter()
            .map(|e| {
                (e.function, e.inuse_space, e.alloc_space, e.cumulative_inuse_space, e.cumulative_alloc_space)
            })
            .collect();
        assert_eq!(
            table,
            [
                ("0x10".to_owned(), 20, 30, 20, 30),
                ("0x20".to_owned(), 0, 50, 0, 50),
                ("0x30".to_owned(), 0, 0, 20, 80),
            ]
        );
    }
}
