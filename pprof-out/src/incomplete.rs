//! Remarks on records whose stacks are missing or cut, counted for one profile: what other profiles of the process lost is
//! not the reader's concern.

use rtprof_runtime::stack::MAX_STACK;
use rtprof_runtime::stack::marker::{self, Marker};

use crate::kind::ProfileKind;
use crate::record::Record;

/// What stands in place of a task's stack, where the name of the frame does not say it all.
const OF_TASKS: [(Marker, &str); 3] = [
    (
        marker::task_is_polled,
        "stand under task_is_polled: at this moment they were polled, by a thread that was not found, because their polls are \
         short",
    ),
    (
        marker::task_was_not_polled_for_its_stack,
        "stand under task_was_not_polled_for_its_stack: they are asked for their stacks since now, and their executor has not \
         polled them in time; the next profile has the stacks of those that were",
    ),
    (
        marker::task_has_no_waker,
        "stand under task_has_no_waker: they wait, and no waker is left that could wake them; goroutineleak has those that do \
         so for long",
    ),
];

/// Returns a remark for each way in which stacks of these records are incomplete.
pub(crate) fn remarks(kind: &ProfileKind, records: &[Record]) -> Vec<String> {
    let not_captured = marker::frame(marker::stack_not_captured);
    let of_tasks = OF_TASKS.map(|(frame, _)| marker::frame(frame));
    let (mut all, mut missing, mut cut) = (0_i64, 0_i64, 0_i64);
    let mut tasks = [0_i64; OF_TASKS.len()];
    for record in records {
        let count = kind.values(record)[0];
        all = all.saturating_add(count);
        // A sample of a running thread has its address before the marker.
        if record.stack.last() == Some(&not_captured) {
            missing = missing.saturating_add(count);
        }
        let of_task = of_tasks.iter().position(|frame| record.stack.last() == Some(frame));
        if let Some(at) = of_task {
            tasks[at] = tasks[at].saturating_add(count);
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
    let tasks = tasks.into_iter().zip(OF_TASKS).filter_map(|(count, (_, what))| remark(count, what));
    missing.into_iter().chain(cut).chain(tasks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::{BLOCK, GOROUTINE};
    use crate::record::Leaf;
    use crate::since::Since;
    use crate::snapshot::Snapshot;

    fn snapshot(counts: [i64; 3]) -> Snapshot {
        let kind = ProfileKind::Contention { of: &BLOCK.description, ticks_per_second: 1, fraction: 1 };
        let stacks = [vec![1], vec![7, marker::frame(marker::stack_not_captured)], vec![2; MAX_STACK]];
        let record = |(stack, count)| Record::new(stack, Leaf::Hooks, [count, count]);
        Snapshot::new(kind, stacks.into_iter().zip(counts).map(record).collect(), vec!["general".to_owned()])
    }

    #[test]
    fn frames_in_place_of_a_tasks_stack_are_explained() {
        let kind = ProfileKind::Count { of: &GOROUTINE.description };
        let stacks = [vec![1], vec![marker::frame(marker::task_is_polled)], vec![2]];
        let records = stacks.map(|stack| Record::new(stack, Leaf::Hooks, [2, 0]));
        let told = remarks(&kind, &records);
        let [remark] = &*told else { panic!("{told:?}") };
        assert!(remark.starts_with("rtprof: 2 of 6 goroutine stand under task_is_polled: "), "{remark}");
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
