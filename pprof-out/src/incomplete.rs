//! Remarks on records whose stacks are missing or cut, counted for one profile: what other profiles of the process lost is
//! not the reader's concern.

use rtprof_runtime::stack::{MAX_STACK, marker};

use crate::kind::ProfileKind;
use crate::record::Record;

/// Returns a remark for each way in which stacks of these records are incomplete.
pub(crate) fn remarks(kind: &ProfileKind, records: &[Record]) -> Vec<String> {
    let not_captured = marker::frame(marker::stack_not_captured);
    let (mut all, mut missing, mut cut) = (0_i64, 0_i64, 0_i64);
    for record in records {
        let count = kind.values(record)[0];
        all = all.saturating_add(count);
        // A sample of a running thread has its address before the marker.
        if record.stack.last() == Some(&not_captured) {
            missing = missing.saturating_add(count);
        }
        if record.stack.len() == MAX_STACK {
            cut = cut.saturating_add(count);
        }
    }
    let (name, _) = kind.sample_types()[0];
    let remark =
        |count: i64, what: &str| (count != 0).then(|| format!("rtprof: {count} of {all} {name} {what}"));
    let missing = remark(
        missing,
        "stand under stack_not_captured, because their stacks could not be walked (too many walks at once, or a coroutine that was \
         just switched?)",
    );
    let cut = remark(
        cut,
        &format!("have stacks of {MAX_STACK} frames; of deeper ones the outermost frames are missing"),
    );
    missing.into_iter().chain(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contention::Contention;
    use crate::record::Leaf;
    use crate::since::Since;
    use crate::snapshot::Snapshot;

    fn snapshot(counts: [i64; 3]) -> Snapshot {
        let kind = ProfileKind::Contention { of: Contention::Block, ticks_per_second: 1, fraction: 1 };
        let stacks = [vec![1], vec![7, marker::frame(marker::stack_not_captured)], vec![2; MAX_STACK]];
        let record = |(stack, count)| Record::new(stack, Leaf::Hooks, [count, count]);
        Snapshot::new(kind, stacks.into_iter().zip(counts).map(record).collect(), vec!["general".to_owned()])
    }

    #[test]
    fn each_profile_counts_its_own() {
        assert_eq!(snapshot([5, 0, 0]).comments(), ["general"]);
        let whole = snapshot([5, 3, 2]);
        let [general, missing, cut] = whole.comments() else { panic!("{:?}", whole.comments()) };
        assert_eq!(general, "general");
        assert!(
            missing.starts_with("rtprof: 3 of 10 contentions stand under stack_not_captured"),
            "{missing}"
        );
        assert!(cut.starts_with("rtprof: 2 of 10 contentions have stacks of 128"), "{cut}");
        let later = snapshot([9, 4, 2]).since(&whole, Since::Everything);
        let [general, missing] = later.comments() else { panic!("{:?}", later.comments()) };
        assert_eq!(general, "general");
        assert!(missing.starts_with("rtprof: 1 of 5 contentions"), "{missing}");
    }
}
