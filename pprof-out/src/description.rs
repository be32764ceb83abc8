//! What tells one profile that every program has from the other, apart from how it is taken (`built_in`) and what its
//! values mean (`kind`).

use rtprof_profiler::comments;
use rtprof_runtime::counters::CountedProfile;

/// The description of a profile that every program has.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) name: &'static str,
    /// What the profile shows, for people who see it for the first time.
    pub(crate) shows: &'static str,
    /// Name and unit of each value. Go's come first, in Go's order; readers rely on the position.
    pub(crate) sample_types: &'static [(&'static str, &'static str)],
    /// The index of the sample type that readers are told to show first. Without it they show the last one.
    pub(crate) told_first: Option<usize>,
    /// Whether scrapers can ask for what was added since they last did, as `delta_NAME`.
    pub(crate) has_scraped_delta: bool,
    /// Whose losses its comments name; `None` where they are not those of the hooks.
    pub(crate) counted: Option<CountedProfile>,
}

/// The most values of a record of any kind. The table checks it (`built_in`).
pub(crate) const MOST_VALUES: usize = 4;

impl Description {
    /// Returns comments for the reader: why the profile may be empty, what was lost.
    pub(crate) fn comments(&self) -> Vec<String> {
        self.counted.map(comments::of).unwrap_or_default()
    }

    /// Returns the index in `sample_types` of the type that `go tool pprof` shows first.
    pub(crate) fn shown_first(&self) -> usize {
        self.told_first.unwrap_or(self.sample_types.len() - 1)
    }
}

impl PartialEq for Description {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
