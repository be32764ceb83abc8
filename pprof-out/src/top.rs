//! Profiles as tables of functions, for people without pprof: the content of `go tool pprof -top`.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use rtprof_runtime::hook;
use rtprof_symbols::view::View;

use crate::built_in::{BLOCK, BuiltIn, HEAP, MUTEX};
use crate::description::MOST_VALUES;
use crate::heap_values::{ALLOC_OBJECTS, ALLOC_SPACE, INUSE_OBJECTS, INUSE_SPACE};
use crate::snapshot::Snapshot;

/// The allocations of one function. The values are estimates for all allocations, as in the heap profile.
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

/// The waits of one function, or the waits that it caused. Scaled to all waits that the samples represent, as in the
/// profile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContentionTopEntry {
    /// The function's name; its library (`[libc.so.6]`) or its address in the program where no name is known.
    pub function: String,
    /// The time that it waited itself, or that others waited for its own unlocks (pprof's *flat* value).
    pub delay: Duration,
    /// The number of those waits.
    pub contentions: i64,
    /// The time that it or a function it called waited, or made others wait (pprof's *cum* value).
    pub cumulative_delay: Duration,
}

/// Returns the `n` functions with the most bytes in use, and among equals with the most bytes ever allocated. A
/// function is ranked by its own allocations only, as in `go tool pprof -top` for a heap profile.
pub fn heap_top(n: usize) -> Vec<TopEntry> {
    top(n, &HEAP, heap_entries)
}

/// Returns the `n` functions that waited longest, as `go tool pprof -top` shows the block profile.
pub fn block_top(n: usize) -> Vec<ContentionTopEntry> {
    top(n, &BLOCK, contention_entries)
}

/// Returns the `n` functions that made others wait longest, as `go tool pprof -top` shows the mutex profile.
pub fn mutex_top(n: usize) -> Vec<ContentionTopEntry> {
    top(n, &MUTEX, contention_entries)
}

fn top<E: Clone>(n: usize, of: &'static BuiltIn, entries: impl FnOnce(&Snapshot) -> Vec<E>) -> Vec<E> {
    let mut entries = {
        let _workspace = hook::workspace();
        entries(&of.take())
    };
    entries.truncate(n);
    // Copied where allocations are tracked, because the result belongs to the caller.
    entries.to_vec()
}

/// The sums of one function.
#[derive(Default)]
struct Sums {
    /// Sums over the stacks of which it is the leaf.
    flat: [i64; MOST_VALUES],
    /// Sums over the stacks that contain it.
    cumulative: [i64; MOST_VALUES],
}

fn add(sum: &mut [i64; MOST_VALUES], values: &[i64]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
}

/// Returns every function with its sums, in no order.
fn sums(snapshot: &Snapshot) -> impl Iterator<Item = (Arc<str>, Sums)> {
    let mut sums: HashMap<Arc<str>, Sums> = HashMap::new();
    let mut seen: Vec<Arc<str>> = Vec::new();
    let all = snapshot.for_each(View::default(), |frames, values| {
        seen.clear();
        for (address, lines) in frames.shown() {
            if lines.is_empty() {
                seen.push(address.stand_in.clone());
            }
            seen.extend(lines.iter().map(|line| line.function.name.clone()));
        }
        if let Some(leaf) = seen.first() {
            add(&mut sums.entry(leaf.clone()).or_default().flat, values);
        }
        // A recursive function counts once for each record.
        seen.sort_unstable();
        seen.dedup();
        for function in &seen {
            add(&mut sums.entry(function.clone()).or_default().cumulative, values);
        }
        Ok::<(), Infallible>(())
    });
    let Ok(_comments) = all;
    sums.into_iter()
}

fn heap_entries(snapshot: &Snapshot) -> Vec<TopEntry> {
    let entry = |(function, Sums { flat, cumulative }): (Arc<str>, Sums)| TopEntry {
        function: function.to_string(),
        inuse_space: flat[INUSE_SPACE],
        inuse_objects: flat[INUSE_OBJECTS],
        alloc_space: flat[ALLOC_SPACE],
        alloc_objects: flat[ALLOC_OBJECTS],
        cumulative_inuse_space: cumulative[INUSE_SPACE],
        cumulative_alloc_space: cumulative[ALLOC_SPACE],
    };
    let rank = |e: &TopEntry| (e.inuse_space, e.alloc_space, e.cumulative_inuse_space);
    sorted(sums(snapshot).map(entry).collect(), rank, |e| &e.function)
}

fn contention_entries(snapshot: &Snapshot) -> Vec<ContentionTopEntry> {
    let duration = |nanos: i64| Duration::from_nanos(nanos.max(0) as u64);
    let entry = |(function, Sums { flat, cumulative }): (Arc<str>, Sums)| ContentionTopEntry {
        function: function.to_string(),
        delay: duration(flat[1]),
        contentions: flat[0],
        cumulative_delay: duration(cumulative[1]),
    };
    // Functions that only called a waiting one are left out.
    let waited = sums(snapshot).filter(|(_, sums)| sums.flat[1] > 0);
    sorted(waited.map(entry).collect(), |e| (e.delay, e.cumulative_delay), |e| &e.function)
}

/// Sorts by rank, highest first, then by name.
fn sorted<E, R: Ord>(mut entries: Vec<E>, rank: impl Fn(&E) -> R, name: impl Fn(&E) -> &String) -> Vec<E> {
    entries.sort_unstable_by(|a, b| match rank(b).cmp(&rank(a)) {
        Ordering::Equal => name(a).cmp(name(b)),
        order => order,
    });
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::ProfileKind;
    use crate::record::{Detail, Leaf, Record};

    #[test]
    fn flat_is_the_leaf_and_cumulative_the_whole_stack() {
        let record = |stack: &'static [usize], allocs, frees| Record {
            detail: Detail::Objects { size: 10, rate: 1 },
            ..Record::new(stack, Leaf::Allocator, [allocs, allocs - frees])
        };
        // 0x30 calls itself.
        let records = vec![record(&[0x10, 0x30, 0x30], 3, 1), record(&[0x20, 0x30], 5, 5)];
        let kind = ProfileKind::Heap { of: &HEAP.description, rate: 1 };
        let table: Vec<_> = heap_entries(&Snapshot::new(kind, records, Vec::new()))
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

    #[test]
    fn flat_is_who_waited_and_cumulative_all_above() {
        let record = |stack: &'static [usize], count, ticks| Record::new(stack, Leaf::Hooks, [count, ticks]);
        // 0x20 calls itself; a tick is half a nanosecond.
        let records = vec![record(&[0x10, 0x20, 0x20], 3, 2000), record(&[0x20, 0x30], 1, 500)];
        let kind =
            ProfileKind::Contention { of: &BLOCK.description, ticks_per_second: 2_000_000_000, fraction: 0 };
        let table: Vec<_> = contention_entries(&Snapshot::new(kind, records, Vec::new()))
            .into_iter()
            .map(|e| (e.function, e.delay.as_nanos(), e.contentions, e.cumulative_delay.as_nanos()))
            .collect();
        assert_eq!(table, [("0x10".to_owned(), 1000, 3, 1000), ("0x20".to_owned(), 250, 1, 1250),]);
    }
}
