//! The goroutine profile, which shows where every thread and task is, and the profile of tasks that wait for ever.

use std::collections::HashMap;

use rtprof_runtime::labels::{self, LabelSetId};
use rtprof_runtime::modules::CaptureSpan;
use rtprof_runtime::snapshot::{self, GoroutineKind, Recorded};
use rtprof_runtime::task;

use crate::description::Description;
use crate::encode::TASK_LABEL;
use crate::goroutine_state::kernel_state;
use crate::kind::ProfileKind;
use crate::record::{Labels, Leaf, Record};
use crate::snapshot::Snapshot;

/// Takes a snapshot of all goroutines: those with the same stack and labels together, and each by itself. Go:
/// `runtime_goroutineProfileWithLabels`.
pub(crate) fn take_all(of: &'static Description) -> Snapshot {
    task::ask_for_executor_tasks();
    let each = snapshot::take();
    let (records, comments) = (counted(&each, |_| None), comments(of, &each));
    snapshot_of(of, each, records, comments)
}

/// Takes a snapshot of the tasks that appear to wait for ever, by stack, labels and name.
pub(crate) fn take_leaked(of: &'static Description) -> Snapshot {
    let each = snapshot::leaked_tasks();
    let records = counted(&each, |task| Some(task.title()));
    snapshot_of(of, each, records, vec![of_leaks()])
}

/// Returns the snapshot of goroutines that also stand there one by one.
fn snapshot_of(
    of: &'static Description,
    each: Vec<Recorded>,
    records: Vec<Record>,
    comments: Vec<String>,
) -> Snapshot {
    Snapshot { goroutines: Some(each.into()), ..Snapshot::new(ProfileKind::Count { of }, records, comments) }
}

/// The most threads that have a comment each.
const TOLD: usize = 20;

/// Returns the comments of the profile, and what the kernel says of threads without a stack.
fn comments(of: &Description, each: &[Recorded]) -> Vec<String> {
    let mut comments = of.comments();
    let silent = || each.iter().filter_map(|goroutine| Some((goroutine, goroutine.kernel.as_ref()?)));
    for (goroutine, kernel) in silent().take(TOLD) {
        let (id, name) = (goroutine.thread_id, goroutine.title());
        comments.push(format!("rtprof: no stack of thread {id} {name:?}, state {}", kernel_state(kernel)));
    }
    let followed = each.iter().filter(|goroutine| goroutine.kind == GoroutineKind::Task).count();
    if let Some(live) = task::executor_tasks().filter(|live| *live > followed) {
        comments.push(format!(
            "rtprof: tokio has {live} live tasks, and rtprof follows {followed} tasks and futures: those of task::spawn and \
             instrument"
        ));
    }
    let rest = silent().count().saturating_sub(TOLD);
    if rest > 0 {
        comments.push(format!("rtprof: no stack of {rest} more threads"));
    }
    comments
}

/// Returns the remark of a profile of tasks that wait for ever.
fn of_leaks() -> String {
    let limit = snapshot::leak_limit().as_secs_f64();
    format!(
        "rtprof: an estimate: async tasks that have waited for {limit} s or more, and no waker is left to wake them"
    )
}

/// Counts goroutines by stack, labels and their `task` name, if any: the most frequent first, then by address.
fn counted<'a>(each: &'a [Recorded], task: impl Fn(&'a Recorded) -> Option<&'a str>) -> Vec<Record> {
    type Key<'a> = (&'a [usize], LabelSetId, Option<&'a str>);
    let mut counts: HashMap<Key<'a>, (CaptureSpan, i64)> = HashMap::new();
    for goroutine in each {
        let key = (&*goroutine.stack, goroutine.labels, task(goroutine));
        let (span, count) = counts.entry(key).or_insert((goroutine.span, 0));
        *span = span.and(goroutine.span);
        *count += 1;
    }
    let record = |((stack, labels, task), (span, count)): (Key<'a>, _)| Record {
        span,
        labels: with_task(labels::resolve(labels), task),
        ..Record::new(stack.to_vec(), Leaf::Hooks, [count, 0])
    };
    let mut records: Vec<_> = counts.into_iter().map(record).collect();
    records.sort_unstable_by(|a, b| {
        b.counts.cmp(&a.counts).then_with(|| a.stack.cmp(&b.stack)).then_with(|| a.labels.cmp(&b.labels))
    });
    records
}

/// Adds the name of the task to the labels. A label of the program with the same key takes precedence.
fn with_task(labels: &'static [(String, String)], task: Option<&str>) -> Labels {
    match task {
        Some(name) if labels.iter().all(|(key, _)| key != TASK_LABEL) => {
            labels.iter().cloned().chain([(TASK_LABEL.to_owned(), name.to_owned())]).collect()
        }
        _ => labels.into(),
    }
}
