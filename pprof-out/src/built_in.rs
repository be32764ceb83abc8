//! The table of the profiles that every program has.
//!
//! A new profile is a row here, and a variant of `ProfileKind` if its values are computed in another way than those of the
//! others.

use rtprof_profiler::{contention, mem};
use rtprof_runtime::counters::CountedProfile;
use rtprof_runtime::snapshot as of_goroutines;

use crate::description::{Description, MOST_VALUES};
use crate::heap_values::{ALLOC_SPACE, INUSE_SPACE};
use crate::kind::ProfileKind;
use crate::snapshot::Snapshot;
use crate::{contention as waits, counts, goroutines, heap};

/// A profile that every program has.
#[derive(Debug)]
pub struct BuiltIn {
    pub(crate) description: Description,
    pub(crate) source: Source,
}

/// Where the records of a built-in profile come from. `count` returns how many there are, without taking them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Hooks keep them.
    Recorded { take: Take, count: fn() -> usize },
    /// The goroutines are asked, and can be written one by one (`debug=2`).
    Goroutines { take: Take, count: fn() -> usize },
    /// They are sampled over a time ([`CpuCapture`](crate::CpuCapture)), so there is nothing to look up.
    Sampled,
}

/// Takes a snapshot of the records up to now, of the profile of this description.
type Take = fn(&'static Description) -> Snapshot;

/// The values of the block and mutex profiles.
const WAITS: &[(&str, &str)] = &[("contentions", "count"), ("delay", "nanoseconds")];

pub(crate) static ALLOCS: BuiltIn = BuiltIn {
    description: Description {
        name: "allocs",
        shows: "What was ever allocated, by the stack that did: heap, shown by alloc_space.",
        told_first: Some(ALLOC_SPACE),
        has_scraped_delta: false,
        ..HEAP.description
    },
    source: Source::Recorded { take: heap::take, count: || mem::snapshot().len() },
};

pub(crate) static BLOCK: BuiltIn = BuiltIn {
    description: Description {
        name: "block",
        shows: "Where threads waited for locks, channels and joins, and async tasks for anything that they await.",
        sample_types: WAITS,
        told_first: None,
        has_scraped_delta: true,
        counted: Some(CountedProfile::Block),
    },
    source: Source::Recorded { take: waits::take_block, count: || contention::block_counts().len() },
};

/// The CPU profile, whose endpoint is `profile`.
pub static CPU: BuiltIn = BuiltIn {
    description: Description {
        name: "profile",
        shows: "Which code uses the processors.",
        sample_types: &[("samples", "count"), ("cpu", "nanoseconds")],
        told_first: None,
        has_scraped_delta: false,
        counted: None,
    },
    source: Source::Sampled,
};

pub(crate) static GOROUTINE: BuiltIn = BuiltIn {
    description: Description {
        name: "goroutine",
        shows: "Where every thread and async task is, and what it waits for.",
        sample_types: &[("goroutine", "count")],
        told_first: None,
        has_scraped_delta: false,
        counted: Some(CountedProfile::Goroutine),
    },
    source: Source::Goroutines { take: goroutines::take_all, count: of_goroutines::count },
};

pub(crate) static GOROUTINE_LEAK: BuiltIn = BuiltIn {
    description: Description {
        name: "goroutineleak",
        shows: "Async tasks that wait for ever: an estimate, by wakers that are gone.",
        sample_types: &[("goroutineleak", "count")],
        told_first: None,
        has_scraped_delta: false,
        counted: None,
    },
    source: Source::Goroutines { take: goroutines::take_leaked, count: of_goroutines::count_leaked },
};

pub(crate) static HEAP: BuiltIn = BuiltIn {
    description: Description {
        name: "heap",
        shows: "What is in use, by the stack that allocated it.",
        sample_types: &[
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_objects", "count"),
            ("inuse_space", "bytes"),
        ],
        told_first: Some(INUSE_SPACE),
        has_scraped_delta: true,
        counted: Some(CountedProfile::Heap),
    },
    source: Source::Recorded { take: heap::take, count: || mem::snapshot().len() },
};

pub(crate) static MUTEX: BuiltIn = BuiltIn {
    description: Description {
        name: "mutex",
        shows: "Who made others wait: the stacks that unlocked contended locks, with all the time waited for them.",
        sample_types: WAITS,
        told_first: None,
        has_scraped_delta: true,
        counted: Some(CountedProfile::Mutex),
    },
    source: Source::Recorded { take: waits::take_mutex, count: || contention::mutex_counts().len() },
};

pub(crate) static THREAD_CREATE: BuiltIn = BuiltIn {
    description: Description {
        name: "threadcreate",
        shows: "Who created threads.",
        sample_types: &[("threadcreate", "count")],
        told_first: None,
        has_scraped_delta: false,
        counted: Some(CountedProfile::ThreadCreate),
    },
    source: Source::Recorded { take: counts::of_threads, count: counts::threads_created },
};

/// All of them, by name.
pub(crate) static TABLE: [&BuiltIn; 8] =
    [&ALLOCS, &BLOCK, &CPU, &GOROUTINE, &GOROUTINE_LEAK, &HEAP, &MUTEX, &THREAD_CREATE];

const _: () = {
    let (mut most, mut at) = (0, 0);
    while at < TABLE.len() {
        let values = TABLE[at].description.sample_types.len();
        most = if values > most { values } else { most };
        at += 1;
    }
    assert!(most == MOST_VALUES, "MOST_VALUES is the largest number of sample types in the table");
};

impl BuiltIn {
    /// Returns the profile's name, as in its endpoint.
    pub fn name(&self) -> &'static str {
        self.description.name
    }

    /// Returns what the profile shows, for people who see it for the first time.
    pub fn description(&self) -> &'static str {
        self.description.shows
    }

    /// Returns name and unit of each value, in order.
    pub fn sample_types(&self) -> &'static [(&'static str, &'static str)] {
        self.description.sample_types
    }

    /// Takes a snapshot of the records up to now; empty if they are sampled over a time.
    pub(crate) fn take(&'static self) -> Snapshot {
        match self.source {
            Source::Recorded { take, .. } | Source::Goroutines { take, .. } => take(&self.description),
            Source::Sampled => {
                let kind = ProfileKind::Cpu { of: &self.description, period_nanos: 1 };
                Snapshot::new(kind, Vec::new(), Vec::new())
            }
        }
    }

    /// Returns how many records there are now.
    pub(crate) fn count(&self) -> usize {
        match self.source {
            Source::Recorded { count, .. } | Source::Goroutines { count, .. } => count(),
            Source::Sampled => 0,
        }
    }

    /// Whether [`lookup`](crate::lookup) finds it.
    pub(crate) fn is_looked_up(&self) -> bool {
        !matches!(self.source, Source::Sampled)
    }

    /// Whether `debug=2` writes goroutines one by one.
    pub(crate) fn has_dump(&self) -> bool {
        matches!(self.source, Source::Goroutines { .. })
    }

    /// Returns the index in [`sample_types`](Self::sample_types) of the type that `go tool pprof` shows first.
    pub fn shown_first(&self) -> usize {
        self.description.shown_first()
    }
}

impl PartialEq for BuiltIn {
    fn eq(&self, other: &Self) -> bool {
        self.description == other.description
    }
}

/// Returns the profiles that [`lookup`](crate::lookup) finds, in the order of their names.
pub fn looked_up() -> impl Iterator<Item = &'static BuiltIn> {
    TABLE.into_iter().filter(|profile| profile.is_looked_up())
}

/// Returns the profiles of which scrapers can ask for what was added since they last did, as `delta_NAME`.
pub fn scraped_deltas() -> impl Iterator<Item = &'static BuiltIn> {
    TABLE.into_iter().filter(|profile| profile.description.has_scraped_delta)
}
