//! The block and mutex profiles as tables, for those who have no pprof at hand.

use std::time::Duration;

use rtprof_runtime::hook;

use crate::contention::{Contention, ContentionRecords};
use crate::top::{ByFunction, Sums, Values};
use rtprof_symbols::locations::Locations;
use rtprof_symbols::view::View;

/// What one function waited, or made others wait. Scaled to what the samples stand for, as in the profile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContentionTopEntry {
    /// The function's name; its library (`[libc.so.6]`) or its address in the program where no name is known.
    pub function: String,
    /// The time that it waited itself, or that others waited for what it unlocked itself (pprof's *flat* value).
    pub delay: Duration,
    /// How many waits that were.
    pub contentions: i64,
    /// The time that it or a function it called waited, or made others wait (pprof's *cum* value).
    pub cumulative_delay: Duration,
}

/// The `n` functions that waited longest, as `go tool pprof -top` shows the block profile.
pub fn block_top(n: usize) -> Vec<ContentionTopEntry> {
    top(Contention::Block, n)
}

/// The `n` functions that made others wait longest, as `go tool pprof -top` shows the mutex profile.
pub fn mutex_top(n: usize) -> Vec<ContentionTopEntry> {
    top(Contention::Mutex, n)
}

#[derive(Clone, Copy, Default)]
struct Waits {
    nanos: i64,
    count: i64,
}

impl Values for Waits {
    fn add(&mut self, other: Self) {
        self.nanos = self.nanos.saturating_add(other.nanos);
        self.count = self.count.saturating_add(other.count);
    }
}

fn top(kind: Contention, n: usize) -> Vec<ContentionTopEntry> {
    let mut entries = {
        let _workspace = hook::workspace();
        entries_of(&ContentionRecords::take(kind))
    };
    entries.truncate(n);
    // Made again where it is tracked: the result belongs to the caller.
    entries.to_vec()
}

fn entries_of(contention: &ContentionRecords<'_>) -> Vec<ContentionTopEntry> {
    let mut locations = Locations::new(View::default());
    locations.prepare(contention.stacks());
    let mut functions = ByFunction::default();
    for record in contention.shown(&mut locations) {
        let waits = Waits { nanos: contention.nanos(record.cycles), count: record.count };
        functions.add(&locations.event(record.stack), waits);
    }
    let duration = |waits: Waits| Duration::from_nanos(waits.nanos.max(0) as u64);
    let mut entries: Vec<ContentionTopEntry> = functions
        .into_sums()
        // Those that only called somebody who waited are not asked for.
        .filter(|(_, sums)| sums.flat.nanos > 0)
        .map(|(function, Sums { flat, cumulative })| ContentionTopEntry {
            function: function.to_string(),
            delay: duration(flat),
            contentions: flat.count,
            cumulative_delay: duration(cumulative),
        })
        .collect();
    entries.sort_unstable_by(|a, b| {
        let rank = |e: &ContentionTopEntry| (e.delay, e.cumulative_delay);
        rank(b).cmp(&rank(a)).then_with(|| a.function.cmp(&b.function))
    });
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contention::ContentionRecord;
    use crate::taken::Taken;

    #[test]
    fn flat_is_who_waited_and_cumulative_all_above() {
        let record = |stack: &'static [usize], count, cycles| ContentionRecord {
            stack: stack.into(),
            labels: &[],
            is_wake: false,
            waited_at: None,
            count,
            cycles,
        };
        let contention = ContentionRecords {
            kind: Contention::Block,
            // 0x20 calls itself; a tick is half a nanosecond.
            records: vec![record(&[0x10, 0x20, 0x20], 3, 2000), record(&[0x20, 0x30], 1, 500)],
            ticks_per_second: 2_000_000_000,
            fraction: 0,
            comments: Vec::new(),
            taken: Taken::default(),
        };
        let table: Vec<_> = entries_of(&contention)
            .into_iter()
            .map(|e| (e.function, e.delay.as_nanos(), e.contentions, e.cumulative_delay.as_nanos()))
            .collect();
        assert_eq!(table, [("0x10".to_owned(), 1000, 3, 1000), ("0x20".to_owned(), 250, 1, 1250),]);
    }
}
