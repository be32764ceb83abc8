//! Changes of a profile between two snapshots.
//!
//! Records are compared, not written profiles, so nothing has to be resolved or encoded twice, and nothing is lost by
//! rounding. Go writes both profiles, parses them, scales one by -1 and merges them.

use std::collections::HashMap;
use std::sync::Arc;

use rtprof_runtime::hook;

use crate::contention;
use crate::incomplete;
use crate::kind::ProfileKind;
use crate::profile_time::ProfileTime;
use crate::record::{Record, RecordKey};
use crate::snapshot::Snapshot;

/// How a later snapshot is compared with an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Every value minus the earlier value. A value in use that has shrunk is negative. Go: `seconds=` of
    /// `net/http/pprof`.
    Everything,
    /// Values that only grow (allocations, waits, created threads) minus the earlier values; values in use as they are
    /// now. godeltaprof does the same.
    Accumulated,
}

impl Snapshot {
    /// Returns what was added since `earlier`, a snapshot of the same profile. Records to which nothing was added are
    /// left out.
    ///
    /// If `earlier` is of another profile, all of this snapshot counts as added.
    pub fn since(&self, earlier: &Self, since: Since) -> Self {
        let _workspace = hook::workspace();
        if !self.kind.has_records_of(&earlier.kind) {
            return self.clone();
        }
        let duration = self.instant.saturating_duration_since(earlier.instant);
        let duration_nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        // The dump of single goroutines does not cover a time span, so it is left out.
        let mut added = Self { goroutines: None, ..self.clone() };
        added.time = ProfileTime { duration_nanos, ..self.time };
        added.records = Arc::new(self.records_since(earlier, since));
        let of_all = incomplete::remarks(&self.kind, &self.records);
        added.comments.retain(|comment| !of_all.contains(comment));
        added.comments.extend(incomplete::remarks(&added.kind, &added.records));
        added
    }

    fn records_since(&self, earlier: &Self, since: Since) -> Vec<Record> {
        let is_subtracted = self.kind.grows().map(|grows| grows || since == Since::Everything);
        let mut bases: HashMap<RecordKey<'_>, [i64; 2]> = HashMap::with_capacity(earlier.records.len());
        for record in earlier.records.iter() {
            let base = bases.entry(record.key()).or_default();
            for at in (0..base.len()).filter(|&at| is_subtracted[at]) {
                base[at] = base[at].saturating_add(record.counts[at]);
            }
        }
        let mut all = Vec::with_capacity(self.records.len());
        for record in self.records.iter() {
            let base = bases.remove(&record.key()).unwrap_or_default();
            all.push(Record { base, ..record.clone() });
        }
        // Things may have been removed altogether; counts of other profiles never are.
        let may_be_gone = earlier
            .records
            .iter()
            .filter(|_| matches!(self.kind, ProfileKind::Count { .. } | ProfileKind::Custom { .. }));
        for record in may_be_gone {
            if let Some(base) = bases.remove(&record.key()) {
                all.push(Record { counts: [0; 2], base, ..record.clone() });
            }
        }
        all.retain(|record| record.counts != record.base);
        if matches!(self.kind, ProfileKind::Contention { .. }) {
            contention::sort(&mut all);
        }
        all
    }
}

#[cfg(test)]
#[path = "since_tests.rs"]
mod tests;
