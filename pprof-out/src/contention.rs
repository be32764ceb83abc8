//! The block and mutex profiles: where the program waits, and who makes it wait.

use std::cmp::Reverse;
use std::{io, iter};

use rtprof_profiler::comments;
use rtprof_profiler::contention::{self, BlockCount};
use rtprof_runtime::clock;
use rtprof_runtime::counters::Subject;
use rtprof_runtime::labels;
use rtprof_runtime::stack::Stack;

use crate::encode::{self, Encoder, Header};
use crate::sink::Sink;
use crate::taken::Taken;
use rtprof_symbols::hook_names;
use rtprof_symbols::locations::Locations;
use rtprof_symbols::view::View;

/// The order is Go's; readers go by position.
pub(crate) const SAMPLE_TYPES: [(&str, &str); 2] = [("contentions", "count"), ("delay", "nanoseconds")];

/// Two profiles of one form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contention {
    /// The stacks that waited.
    Block,
    /// The stacks that others waited for.
    Mutex,
}

/// Records of one cut, scaled to what the samples stand for.
#[derive(Clone)]
pub(crate) struct ContentionRecords<'a> {
    pub(crate) kind: Contention,
    /// The longest delay first.
    pub(crate) records: Vec<ContentionRecord<'a>>,
    pub(crate) ticks_per_second: u64,
    /// The current fraction of the mutex profile, 0 when it is off; records may have been made at others.
    pub(crate) fraction: i64,
    pub(crate) comments: Vec<String>,
    pub(crate) taken: Taken,
}

/// The waits of one stack under one set of labels.
#[derive(Clone, Debug)]
pub(crate) struct ContentionRecord<'a> {
    pub(crate) stack: Stack<'a>,
    pub(crate) labels: &'a [(String, String)],
    /// Whether this was a wake that may have been no unlock.
    pub(crate) is_wake: bool,
    /// Where the first has waited that such a wake has ended, if that is known: the innermost frames.
    pub(crate) waited_at: Option<Stack<'a>>,
    /// How many waits.
    pub(crate) count: i64,
    /// How many ticks of the clock they took.
    pub(crate) cycles: u64,
}

impl Contention {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Mutex => "mutex",
        }
    }

    fn counts(self) -> Vec<BlockCount> {
        match self {
            Self::Block => contention::block_counts(),
            Self::Mutex => contention::mutex_counts(),
        }
    }

    fn subject(self) -> Subject {
        match self {
            Self::Block => Subject::Block,
            Self::Mutex => Subject::Mutex,
        }
    }

    /// How many records there are now.
    pub(crate) fn count(self) -> usize {
        self.counts().len()
    }
}

impl ContentionRecords<'static> {
    /// What the profiler has recorded up to now.
    pub(crate) fn take(kind: Contention) -> Self {
        let records = kind.counts().into_iter().map(|count| ContentionRecord {
            stack: count.stack,
            labels: labels::resolve(count.labels),
            is_wake: count.is_wake,
            waited_at: count.waited_at,
            count: count.whole_waits(),
            cycles: count.cycles,
        });
        Self {
            kind,
            records: sorted(records.collect()),
            ticks_per_second: clock::ticks_per_second(),
            fraction: contention::set_mutex_profile_fraction(-1),
            comments: comments::of(kind.subject()),
            taken: Taken::now(),
        }
    }
}

/// The longest delay first; of equal ones the newest stack, as the profiler has them.
fn sorted(mut records: Vec<ContentionRecord<'_>>) -> Vec<ContentionRecord<'_>> {
    records.sort_by_key(|record| Reverse(record.cycles));
    records
}

impl<'a> ContentionRecords<'a> {
    /// All that needs names: the stack of every record, and those that tell what the record is.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = Stack<'a>> + Clone {
        self.records.iter().flat_map(|record| iter::once(record.stack).chain(record.waited_at))
    }

    /// Those of its records that belong in the profile, as far as names tell.
    pub(crate) fn shown(&self, locations: &mut Locations) -> Vec<&ContentionRecord<'a>> {
        let mut is_shown = |record: &&ContentionRecord<'_>| {
            !record.is_wake || locations.may_be_unlock(record.stack, record.waited_at)
        };
        self.records.iter().filter(|record| is_shown(record)).collect()
    }

    /// Ticks in a nanosecond.
    pub(crate) fn gigahertz(&self) -> f64 {
        self.ticks_per_second as f64 / clock::NANOS as f64
    }

    /// The delay of a record.
    pub(crate) fn nanos(&self, cycles: u64) -> i64 {
        // The cast saturates: a slow clock's ticks are many nanoseconds each.
        (cycles as f64 / self.gigahertz()) as i64
    }
}

/// Writes profile.proto. Go: `printCountCycleProfile`.
pub(crate) fn write(contention: &ContentionRecords<'_>, view: View, sink: &mut Sink<'_>) -> io::Result<()> {
    let mut locations = Locations::new(view);
    locations.prepare(contention.stacks());
    let comments = locations.comments(&contention.comments);
    let mut encoder = Encoder::new(
        sink,
        &Header {
            sample_types: &SAMPLE_TYPES,
            period_type: SAMPLE_TYPES[0],
            period: 1,
            default_sample_type: "",
            drop_frames: hook_names::DROP_FRAMES,
            comments: &comments,
            taken: contention.taken,
        },
    );
    for record in contention.shown(&mut locations) {
        let visible = locations.event(record.stack).visible;
        encoder.sample(&locations, visible, |sample, strings| {
            sample.value.extend([record.count, contention.nanos(record.cycles)]);
            sample.label.extend(encode::text_labels(strings, record.labels));
        })?;
    }
    encoder.finish(&locations)
}

#[cfg(test)]
#[path = "contention_tests.rs"]
mod tests;
