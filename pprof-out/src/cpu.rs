//! The CPU profile: which code uses the processors.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use rtprof_profiler::cpu::{CpuCount, CpuSamples};
use rtprof_runtime::labels;
use rtprof_runtime::modules::CaptureSpan;
use rtprof_runtime::stack::Stack;

use crate::count_profile::{CountProfile, CountRecord, Leaf};
use crate::encode::{self, Encoder, Header, TASK_LABEL};
use crate::sink::Sink;
use crate::taken::Taken;
use rtprof_symbols::locations::Locations;
use rtprof_symbols::view::View;

/// The profile's name: that of its endpoint.
pub(crate) const NAME: &str = "profile";

/// The order is Go's; readers go by position.
pub(crate) const SAMPLE_TYPES: [(&str, &str); 2] = [("samples", "count"), ("cpu", "nanoseconds")];

/// All samples of a stretch of time.
#[derive(Clone)]
pub(crate) struct CpuRecords {
    /// The most samples first.
    pub(crate) records: Arc<[CpuRecord]>,
    /// The processor time that a sample stands for.
    pub(crate) period_nanos: u64,
    pub(crate) comments: Vec<String>,
    pub(crate) taken: Taken,
}

/// The samples of one stack, under one set of labels.
#[derive(Clone, Debug)]
pub(crate) struct CpuRecord {
    stack: Box<[usize]>,
    span: CaptureSpan,
    labels: &'static [(String, String)],
    /// The kernel's number of the thread, and its name; where threads are told apart.
    thread: Option<(u32, Arc<str>)>,
    /// The name of the task, if it was given one.
    task: Option<Arc<str>>,
    pub(crate) samples: i64,
}

impl CpuRecord {
    pub(crate) fn captured(&self) -> Stack<'_> {
        Stack { addresses: &self.stack, span: self.span }
    }
}

impl CpuRecords {
    /// What a sampling that began at `start` has brought.
    pub(crate) fn of(samples: CpuSamples, start: SystemTime) -> Self {
        let CpuSamples { counts, period_nanos, duration, names, remarks, .. } = samples;
        let names: Vec<(u32, Arc<str>)> = names.into_iter().map(|(id, name)| (id, name.into())).collect();
        let thread = |id: u32| {
            let name =
                names.binary_search_by_key(&id, |(id, _)| *id).map_or("".into(), |at| names[at].1.clone());
            (id != 0).then_some((id, name))
        };
        let record = |count: CpuCount| CpuRecord {
            labels: labels::resolve(count.labels),
            thread: thread(count.thread),
            task: count.task,
            samples: i64::try_from(count.samples).unwrap_or(i64::MAX),
            span: count.span,
            stack: count.stack,
        };
        let mut records: Vec<CpuRecord> = counts.into_iter().map(record).collect();
        records.sort_unstable_by(|a, b| {
            let by_stack = || a.stack.cmp(&b.stack).then_with(|| a.thread.cmp(&b.thread));
            let by_stack = || by_stack().then_with(|| a.task.cmp(&b.task));
            b.samples.cmp(&a.samples).then_with(by_stack).then_with(|| a.labels.cmp(b.labels))
        });
        Self { records: records.into(), period_nanos, comments: remarks, taken: Taken::over(start, duration) }
    }

    /// Samples and processor time of a record.
    pub(crate) fn values(&self, record: &CpuRecord) -> [i64; 2] {
        let period = i64::try_from(self.period_nanos).unwrap_or(i64::MAX);
        [record.samples, record.samples.saturating_mul(period)]
    }

    /// The stack of every record.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = Stack<'_>> + Clone {
        self.records.iter().map(CpuRecord::captured)
    }

    /// As a profile of the samples alone, for the text form.
    fn counts(&self) -> CountProfile<'_> {
        let record = |record: &CpuRecord| CountRecord {
            stack: record.stack.to_vec().into(),
            span: record.span,
            // Time in the profiler is time.
            leaf: Leaf::Skip(0),
            labels: record.labels.into(),
            count: record.samples,
        };
        CountProfile {
            name: "cpu".into(),
            records: self.records.iter().map(record).collect(),
            drop_frames: "",
            comments: self.comments.clone(),
            taken: self.taken,
        }
    }
}

/// Writes profile.proto. Go: `profileBuilder`.
pub(crate) fn write(cpu: &CpuRecords, view: View, sink: &mut Sink<'_>) -> io::Result<()> {
    let mut locations = Locations::new(view);
    locations.prepare(cpu.stacks());
    let comments = locations.comments(&cpu.comments);
    let mut encoder = Encoder::new(
        sink,
        &Header {
            sample_types: &SAMPLE_TYPES,
            period_type: SAMPLE_TYPES[1],
            period: i64::try_from(cpu.period_nanos).unwrap_or(i64::MAX),
            default_sample_type: "",
            drop_frames: "",
            comments: &comments,
            taken: cpu.taken,
        },
    );
    for record in &*cpu.records {
        let visible = locations.skipped(record.captured(), 0).visible;
        encoder.sample(&locations, visible, |sample, strings| {
            sample.value.extend(cpu.values(record));
            sample.label.extend(encode::text_labels(strings, record.labels));
            // The program's own label of that key goes before.
            let is_free = || record.labels.iter().all(|(key, _)| key != TASK_LABEL);
            if let Some(name) = record.task.as_ref().filter(|_| is_free()) {
                sample.label.push(encode::text_label(strings, TASK_LABEL, name));
            }
            if let Some((id, name)) = &record.thread {
                sample.label.push(encode::number_label(strings, "thread id", i64::from(*id), ""));
                sample.label.push(encode::text_label(strings, "thread name", name));
            }
        })?;
    }
    encoder.finish(&locations)
}

/// Writes a text for people, with the number of samples of each stack; `go tool pprof` reads it as well.
pub(crate) fn write_text(cpu: &CpuRecords, view: View, sink: &mut Sink<'_>) -> io::Result<()> {
    cpu.counts().write_text(view, sink)
}
