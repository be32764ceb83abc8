//! The goroutine profile: where every thread is.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use rtprof_profiler::counters::{self, Subject};
use rtprof_profiler::goroutine::{self, Recorded};
use rtprof_profiler::labels::{self, LabelSetId};
use rtprof_profiler::modules::CaptureSpan;

use crate::count_profile::{CountProfile, CountRecord, Leaf};
use crate::goroutine_dump::kernel_state;
use crate::hook_names;
use crate::taken::Taken;

/// The profile's name.
pub(crate) const NAME: &str = "goroutine";

/// All goroutines of one cut.
#[derive(Clone)]
pub(crate) struct Goroutines {
    /// Those with the same stack and labels together.
    pub(crate) counts: CountProfile<'static>,
    /// Each by itself.
    pub(crate) each: Arc<[Recorded]>,
}

impl Goroutines {
    /// As they are now. Go: `runtime_goroutineProfileWithLabels`.
    pub(crate) fn take() -> Self {
        let each: Vec<Recorded> = goroutine::stacks();
        let counts = CountProfile {
            name: NAME.into(),
            records: counted(&each),
            drop_frames: hook_names::DROP_FRAMES,
            comments: comments(&each),
            taken: Taken::now(),
        };
        Self { counts, each: each.into() }
    }
}

/// Threads of which a comment tells by themselves.
const TOLD: usize = 20;

/// Those of the profile, and what the kernel says of threads without a stack.
fn comments(each: &[Recorded]) -> Vec<String> {
    let mut comments = counters::comments(Subject::Goroutine);
    let silent = || each.iter().filter_map(|goroutine| Some((goroutine, goroutine.kernel.as_ref()?)));
    for (goroutine, kernel) in silent().take(TOLD) {
        let (id, name) = (goroutine.thread_id, goroutine.title());
        comments.push(format!("rtprof: no stack of thread {id} {name:?}, state {}", kernel_state(kernel)));
    }
    let rest = silent().count().saturating_sub(TOLD);
    if rest > 0 {
        comments.push(format!("rtprof: no stack of {rest} more threads"));
    }
    comments
}

/// Goroutines by stack and labels, the most frequent first, then by address.
fn counted(each: &[Recorded]) -> Vec<CountRecord<'static>> {
    let mut counts: HashMap<(&[usize], LabelSetId), (CaptureSpan, i64)> = HashMap::new();
    for goroutine in each {
        let (span, count) = counts.entry((&goroutine.stack, goroutine.labels)).or_insert((goroutine.span, 0));
        *span = span.and(goroutine.span);
        *count += 1;
    }
    let record = |((stack, labels), (span, count)): ((&[usize], _), _)| CountRecord {
        stack: Cow::Owned(stack.to_vec()),
        span,
        leaf: Leaf::Hooks,
        labels: labels::resolve(labels),
        count,
    };
    let mut records: Vec<_> = counts.into_iter().map(record).collect();
    records.sort_unstable_by(|a, b| {
        b.count.cmp(&a.count).then_with(|| a.stack.cmp(&b.stack)).then_with(|| a.labels.cmp(b.labels))
    });
    records
}
