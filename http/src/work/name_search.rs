//! Waits for the names of functions, no longer than a client waits for its answer.
//!
//! A name that is not known yet is read from debug information by a thread that gives way to the program. So it may
//! take long where all cores are busy, or for ever where the file lies on a mount that does not answer. After half of the
//! time that a client waits, a thread of the program's priority reads too. An answer is sent without the names that are not
//! found in time. The search goes on, and the next answer has these names.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use rtprof_pprof_out::{CpuCapture, NameSearch, Snapshot};
use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::request::names::Names;
use crate::request::profile::Form;
use crate::work::response_writer::ResponseWriter;

/// How long an answer waits for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Nothing,
    For(Duration),
    /// As long as the search makes progress: for a human reader, who cannot use addresses.
    UntilFound,
}

impl Names {
    /// Returns how long a profile waits that a program requests, with or without `seconds=`.
    pub(crate) fn patience(self, after_seconds: bool) -> Patience {
        match self {
            Self::None => Patience::Nothing,
            Self::InTime if after_seconds => Patience::For(AFTER_SECONDS),
            Self::InTime => Patience::For(SCRAPE),
            Self::All => Patience::UntilFound,
        }
    }
}

impl Form {
    /// Returns how long an answer in this form waits for names, after `seconds=` or without.
    pub(crate) fn patience(self, after_seconds: bool) -> Patience {
        match self {
            Self::Proto(names) => names.patience(after_seconds),
            Self::Text(Names::None) | Self::Dump(Names::None) | Self::Groups(Names::None) => {
                Patience::Nothing
            }
            Self::Text(_)
            | Self::Dump(_)
            | Self::Groups(_)
            | Self::Collapsed(_)
            | Self::Top(_)
            | Self::FlameGraph(_) => Patience::UntilFound,
        }
    }
}

/// The limit after the `seconds` that a scraper has sent: Parca and Datadog wait 3 s longer than `seconds`, `go tool
/// pprof` half as long again and 5 s.
const AFTER_SECONDS: Duration = Duration::from_secs(2);
/// The limit for a scraper that has sent no `seconds`: Alloy waits 10 s, Parca an interval, `go tool pprof` a minute.
const SCRAPE: Duration = Duration::from_secs(6);
/// How often a wait without a limit checks whether the search makes progress.
const LOOK: Duration = Duration::from_millis(250);

/// A collection of addresses without names.
pub(crate) trait Unnamed {
    /// Begins the search for the names of all addresses, and calls `at_end` when they are found.
    fn find_names(&self, at_end: impl FnOnce() + Send + 'static) -> NameSearch;

    /// Begins it on a thread that does not give way to the program, if there is one.
    fn find_names_urgently(&self, at_end: impl FnOnce() + Send + 'static) -> NameSearch {
        self.find_names(at_end)
    }
}

impl Unnamed for Snapshot {
    fn find_names(&self, at_end: impl FnOnce() + Send + 'static) -> NameSearch {
        Self::find_names(self, at_end)
    }

    fn find_names_urgently(&self, at_end: impl FnOnce() + Send + 'static) -> NameSearch {
        Self::find_names_urgently(self, at_end)
    }
}

impl Unnamed for CpuCapture {
    fn find_names(&self, at_end: impl FnOnce() + Send + 'static) -> NameSearch {
        Self::find_names(self, at_end)
    }
}

/// A search that is under way.
pub(crate) struct Searching {
    search: NameSearch,
    found: oneshot::Receiver<()>,
}

impl Searching {
    /// Begins the search for the names of `unnamed`.
    pub(crate) fn begin(unnamed: &impl Unnamed) -> Self {
        let (sender, found) = oneshot::channel();
        // Fails if the client is gone.
        let search = unnamed.find_names(move || _ = sender.send(()));
        Self { search, found }
    }

    fn begin_urgently(unnamed: &impl Unnamed) -> Self {
        let (sender, found) = oneshot::channel();
        let search = unnamed.find_names_urgently(move || _ = sender.send(()));
        Self { search, found }
    }

    fn wait(
        mut self,
        response: &mut ResponseWriter,
        unnamed: &impl Unnamed,
        patience: Patience,
    ) -> io::Result<()> {
        // A name that is not found in time is left out.
        match patience {
            Patience::Nothing => {}
            Patience::For(limit) => {
                let at_first = limit / 2;
                if response.wait_for(at_first, &mut self.found)?.is_none() {
                    // The cores are busy. The first profile of a busy service, without names, would be of no use.
                    let mut urgent = Self::begin_urgently(unnamed);
                    let mut has_ended = || {
                        [&mut self.found, &mut urgent.found]
                            .into_iter()
                            .any(|found| found.try_recv() != Err(TryRecvError::Empty))
                    };
                    let found = poll_fn(|_| if has_ended() { Poll::Ready(()) } else { Poll::Pending });
                    response.wait_for(limit - at_first, found)?;
                }
            }
            Patience::UntilFound => {
                while response.wait_for(LOOK, &mut self.found)?.is_none() && self.search.makes_progress() {}
            }
        }
        Ok(())
    }
}

/// Waits until the names of `unnamed` are known, or for as long as `patience` says. Fails when the client is gone.
pub(crate) fn find(
    response: &mut ResponseWriter,
    unnamed: &impl Unnamed,
    patience: Patience,
) -> io::Result<()> {
    if patience == Patience::Nothing {
        return Ok(());
    }
    response.charge()?;
    Searching::begin(unnamed).wait(response, unnamed, patience)
}
