//! Waiting for the names of functions, for as long as a client waits for its answer.
//!
//! A name that is not known yet is read from debug information by a thread that gives way to the program, so it may take
//! long where all cores are busy, or for ever where the file lies on a mount that does not answer. An answer goes out
//! without the names that are not there in time. The search goes on, and the next answer has them.

use std::time::Duration;

use rtprof_pprof_out::{NameSearch, Snapshot, Symbolization};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::engine::{GivenUp, Link};

/// Which names an answer is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Addresses only (`symbolize=none`).
    None,
    /// Those that are found in time.
    InTime,
    /// All that can be found, however long that takes (`symbolize=full`).
    All,
}

/// How long an answer waits for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Nothing,
    For(Duration),
    /// While the search makes progress: for a person, who has no use for addresses.
    UntilFound,
}

impl Names {
    pub(crate) fn symbolization(self) -> Symbolization {
        match self {
            Self::None => Symbolization::None,
            Self::InTime | Self::All => Symbolization::Known,
        }
    }

    /// That of a profile which is asked for by a program, with or without `seconds=`.
    pub(crate) fn patience(self, after_seconds: bool) -> Patience {
        match self {
            Self::None => Patience::Nothing,
            Self::InTime if after_seconds => Patience::For(AFTER_SECONDS),
            Self::InTime => Patience::For(SCRAPE),
            Self::All => Patience::UntilFound,
        }
    }
}

/// After the `seconds` that a scraper has sent: Parca and Datadog wait 3 s longer than that, `go tool pprof` half as long
/// again and 5 s.
const AFTER_SECONDS: Duration = Duration::from_secs(2);
/// For a scraper that has sent none: Alloy waits 10 s, Parca an interval, `go tool pprof` a minute.
const SCRAPE: Duration = Duration::from_secs(6);
/// How often a wait without a limit looks whether the search makes progress.
const LOOK: Duration = Duration::from_millis(250);

/// Something with addresses.
pub(crate) trait Unnamed: Send + 'static {
    /// Begins to look for the names of all of them, and calls `at_end` when they are found.
    fn find_names(&self, at_end: impl FnOnce() + Send + 'static) -> NameSearch;
}

impl Unnamed for Snapshot {
    fn find_names(&self, at_end: impl FnOnce() + Send + 'static) -> NameSearch {
        Self::find_names(self, at_end)
    }
}

/// A search that has begun.
pub(crate) struct Searching {
    search: NameSearch,
    found: oneshot::Receiver<()>,
}

impl Searching {
    async fn wait(mut self, patience: Patience) {
        let limit = match patience {
            Patience::Nothing => Duration::ZERO,
            Patience::For(limit) => limit,
            Patience::UntilFound => {
                while timeout(LOOK, &mut self.found).await.is_err() && self.search.makes_progress() {}
                return;
            }
        };
        // What was not found in time has no name.
        let _ = timeout(limit, self.found).await;
    }
}

/// Begins to look for the names of `unnamed`.
pub(crate) async fn search<T: Unnamed>(link: &Link, unnamed: T) -> Result<(T, Searching), GivenUp> {
    let (told, found) = oneshot::channel();
    let begun = link.computing(move || {
        // Fails if the client is gone.
        let search = unnamed.find_names(move || _ = told.send(()));
        (unnamed, search)
    });
    let (unnamed, search) = begun.await?;
    Ok((unnamed, Searching { search, found }))
}

/// Returns when the names of `unnamed` are known or waited for long enough.
pub(crate) async fn found<T: Unnamed>(link: &Link, unnamed: T, patience: Patience) -> Result<T, GivenUp> {
    if patience == Patience::Nothing {
        return Ok(unnamed);
    }
    let (unnamed, searching) = search(link, unnamed).await?;
    searching.wait(patience).await;
    Ok(unnamed)
}
