//! The CPU profile: which code uses the processors.

use std::sync::Arc;
use std::time::SystemTime;

use rtprof_profiler::cpu::{CpuCount, CpuSamples};
use rtprof_runtime::labels;

use crate::built_in::CPU;
use crate::kind::ProfileKind;
use crate::profile_time::ProfileTime;
use crate::record::{Detail, Leaf, Record, Sampled};
use crate::snapshot::Snapshot;

/// Makes a snapshot of the stacks of a sampling that goes on, for their names.
pub(crate) fn unfinished(counts: Vec<CpuCount>) -> Snapshot {
    let records = counts.into_iter().map(of_stack).collect();
    Snapshot::new(ProfileKind::Cpu { of: &CPU.description, period_nanos: 1 }, records, Vec::new())
}

/// Returns the record of a stack, without labels.
fn of_stack(count: CpuCount) -> Record {
    let samples = i64::try_from(count.samples).unwrap_or(i64::MAX);
    // Time spent in the profiler counts too, and is shown. The kernel's is that of the call.
    Record { span: count.span, ..Record::new(count.stack.into_vec(), Leaf::Call, [samples, 0]) }
}

/// Makes a snapshot of the samples since `start`: the most samples first.
pub(crate) fn of(samples: CpuSamples, start: SystemTime) -> Snapshot {
    let CpuSamples { counts, period_nanos, duration, names, remarks, .. } = samples;
    let names: Vec<(u32, Arc<str>)> = names.into_iter().map(|(id, name)| (id, name.into())).collect();
    let thread = |id: u32| {
        let name = names.binary_search_by_key(&id, |(id, _)| *id).map_or("".into(), |at| names[at].1.clone());
        (id != 0).then_some((id, name))
    };
    let mut sampled: Vec<(Sampled, CpuCount)> = counts
        .into_iter()
        .map(|mut count| (Sampled { thread: thread(count.thread), task: count.task.take() }, count))
        .collect();
    sampled.sort_unstable_by(|(a_in, a), (b_in, b)| {
        let by_stack = || a.stack.cmp(&b.stack).then_with(|| a_in.cmp(b_in));
        let by_labels = || labels::resolve(a.labels).cmp(labels::resolve(b.labels));
        b.samples.cmp(&a.samples).then_with(by_stack).then_with(by_labels)
    });
    let record = |(sampled, count): (Sampled, CpuCount)| Record {
        labels: labels::resolve(count.labels).into(),
        detail: Detail::Samples(Box::new(sampled)),
        ..of_stack(count)
    };
    let records = sampled.into_iter().map(record).collect();
    Snapshot {
        time: ProfileTime::over(start, duration),
        ..Snapshot::new(ProfileKind::Cpu { of: &CPU.description, period_nanos }, records, remarks)
    }
}
