//! The table of the profiles that every program has: all that tells one from the other, apart from what its values mean
//! (`kind`).
//!
//! A new profile is a row here, and a variant of `ProfileKind` if its values are computed in another way than those of the
//! others.

use rtprof_profiler::{comments, contention, mem};
use rtprof_runtime::counters::CountedProfile;
use rtprof_runtime::snapshot as of_goroutines;

use crate::kind::ProfileKind;
use crate::snapshot::Snapshot;
use crate::{contention as waits, counts, goroutines, heap};

/// A profile that every program has.
#[derive(Debug)]
pub struct BuiltIn {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// Name and unit of each value. The order is Go's; readers rely on the position.
    pub(crate) sample_types: &'static [(&'static str, &'static str)],
    /// The index of the sample type that readers are told to show first. Without it they show the last one.
    pub(crate) told_first: Option<usize>,
    /// Whether scrapers can ask for what was added since they last did, as `delta_NAME`.
    pub(crate) has_scraped_delta: bool,
    pub(crate) source: Source,
    /// Whose losses its comments name; `None` where they are not those of the hooks.
    pub(crate) counted: Option<CountedProfile>,
}

/// Where the records of a built-in profile come from. `count` tells how many there are, without taking them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Hooks keep them.
    Kept { take: fn() -> Snapshot, count: fn() -> usize },
    /// The goroutines are asked, and can be written one by one (`debug=2`).
    Asked { take: fn() -> Snapshot, count: fn() -> usize },
    /// They are sampled over a time ([`CpuCapture`](crate::CpuCapture)), so there is nothing to look up.
    Sampled,
}

/// The values of the block and mutex profiles.
const WAITS: &[(&str, &str)] = &[("contentions", "count"), ("delay", "nanoseconds")];

pub(crate) static ALLOCS: BuiltIn = BuiltIn {
    name: "allocs",
    description: "What was ever allocated, by the stack that did: heap, shown by alloc_space.",
    told_first: Some(heap::ALLOC_SPACE),
    has_scraped_delta: false,
    source: Source::Kept { take: || heap::take(&ALLOCS), count: || mem::snapshot().len() },
    ..HEAP
};

pub(crate) static BLOCK: BuiltIn = BuiltIn {
    name: "block",
    description: "Where threads waited for locks, channels and joins, and async tasks for anything that they await.",
    sample_types: WAITS,
    told_first: None,
    has_scraped_delta: true,
    source: Source::Kept { take: waits::take_block, count: || contention::block_counts().len() },
    counted: Some(CountedProfile::Block),
};

/// The CPU profile, whose endpoint is `profile`.
pub static CPU: BuiltIn = BuiltIn {
    name: "profile",
    description: "Which code uses the processors.",
    sample_types: &[("samples", "count"), ("cpu", "nanoseconds")],
    told_first: None,
    has_scraped_delta: false,
    source: Source::Sampled,
    counted: None,
};

pub(crate) static GOROUTINE: BuiltIn = BuiltIn {
    name: "goroutine",
    description: "Where every thread and async task is, and what it waits for.",
    sample_types: &[("goroutine", "count")],
    told_first: None,
    has_scraped_delta: false,
    source: Source::Asked { take: goroutines::take_all, count: of_goroutines::count },
    counted: Some(CountedProfile::Goroutine),
};

pub(crate) static GOROUTINE_LEAK: BuiltIn = BuiltIn {
    name: "goroutineleak",
    description: "Async tasks that wait for ever: an estimate, by wakers that are gone.",
    sample_types: &[("goroutineleak", "count")],
    told_first: None,
    has_scraped_delta: false,
    source: Source::Asked { take: goroutines::take_leaked, count: of_goroutines::count_leaked },
    counted: None,
};

pub(crate) static HEAP: BuiltIn = BuiltIn {
    name: "heap",
    description: "What is in use, by the stack that allocated it.",
    sample_types: &[
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ],
    told_first: Some(heap::INUSE_SPACE),
    has_scraped_delta: true,
    source: Source::Kept { take: || heap::take(&HEAP), count: || mem::snapshot().len() },
    counted: Some(CountedProfile::Heap),
};

pub(crate) static MUTEX: BuiltIn = BuiltIn {
    name: "mutex",
    description: "Who made others wait: the stacks that unlocked contended locks, with all the time waited for them.",
    sample_types: WAITS,
    told_first: None,
    has_scraped_delta: true,
    source: Source::Kept { take: waits::take_mutex, count: || contention::mutex_counts().len() },
    counted: Some(CountedProfile::Mutex),
};

pub(crate) static THREAD_CREATE: BuiltIn = BuiltIn {
    name: "threadcreate",
    description: "Who created threads.",
    sample_types: &[("threadcreate", "count")],
    told_first: None,
    has_scraped_delta: false,
    source: Source::Kept { take: counts::of_threads, count: counts::threads_created },
    counted: Some(CountedProfile::ThreadCreate),
};

/// All of them, by name.
pub(crate) static TABLE: [&BuiltIn; 8] =
    [&ALLOCS, &BLOCK, &CPU, &GOROUTINE, &GOROUTINE_LEAK, &HEAP, &MUTEX, &THREAD_CREATE];

/// The most values of a record of any kind.
pub(crate) const MOST_VALUES: usize = {
    let (mut most, mut at) = (1, 0);
    while at < TABLE.len() {
        let values = TABLE[at].sample_types.len();
        most = if values > most { values } else { most };
        at += 1;
    }
    most
};

impl BuiltIn {
    /// Returns the profile's name, as in its endpoint.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns what the profile shows, for people who see it for the first time.
    pub fn description(&self) -> &'static str {
        self.description
    }

    /// Returns name and unit of each value, in order.
    pub fn sample_types(&self) -> &'static [(&'static str, &'static str)] {
        self.sample_types
    }

    /// Takes a snapshot of the records up to now; empty if they are sampled over a time.
    pub(crate) fn take(&'static self) -> Snapshot {
        match self.source {
            Source::Kept { take, .. } | Source::Asked { take, .. } => take(),
            Source::Sampled => Snapshot::new(ProfileKind::Cpu { period_nanos: 1 }, Vec::new(), Vec::new()),
        }
    }

    /// Returns comments for the reader: why the profile may be empty, what was lost.
    pub(crate) fn comments(&self) -> Vec<String> {
        self.counted.map(comments::of).unwrap_or_default()
    }

    /// Returns how many records there are now.
    pub(crate) fn count(&self) -> usize {
        match self.source {
            Source::Kept { count, .. } | Source::Asked { count, .. } => count(),
            Source::Sampled => 0,
        }
    }

    /// Whether [`lookup`](crate::lookup) finds it.
    pub(crate) fn is_looked_up(&self) -> bool {
        !matches!(self.source, Source::Sampled)
    }

    /// Whether `debug=2` writes goroutines one by one.
    pub(crate) fn has_dump(&self) -> bool {
        matches!(self.source, Source::Asked { .. })
    }

    /// Returns the index in [`sample_types`](Self::sample_types) of the type that `go tool pprof` shows first.
    pub fn shown_first(&self) -> usize {
        self.told_first.unwrap_or(self.sample_types.len() - 1)
    }
}

impl PartialEq for BuiltIn {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Returns the profiles that [`lookup`](crate::lookup) finds, in the order of their names.
pub fn looked_up() -> impl Iterator<Item = &'static BuiltIn> {
    TABLE.into_iter().filter(|profile| profile.is_looked_up())
}

/// Returns the profiles of which scrapers can ask for what was added since they last did, as `delta_NAME`.
pub fn scraped_deltas() -> impl Iterator<Item = &'static BuiltIn> {
    TABLE.into_iter().filter(|profile| profile.has_scraped_delta)
}
