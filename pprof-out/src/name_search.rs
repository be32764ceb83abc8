//! Searches for the names of a snapshot's functions, for a caller that cannot wait until all are found.

use rtprof_runtime::hook;
use rtprof_symbols::symbolizer::{NameSearch, SearchPriority, Symbolization};

use crate::goroutine_dump;
use crate::snapshot::Snapshot;

impl Snapshot {
    /// Starts a search for the names of all functions on a low-priority thread, and calls `at_end` when the search has
    /// ended: at once, if all names are known. Afterwards the snapshot has the names when it is written as
    /// [`Known`](Symbolization::Known).
    ///
    /// This is for a caller that has no thread to wait with, or waits for a limited time, such as a server. `at_end`
    /// must be short, because the thread continues with the next search after it. If the search is dropped before its
    /// end, `at_end` may not be called. Where no thread can be started the names are found before this returns.
    pub fn find_names(&self, at_end: impl FnOnce() + Send + 'static) -> NameSearch {
        self.search(SearchPriority::Low, Box::new(at_end))
    }

    /// Starts a search as [`find_names`](Self::find_names) does, on a thread of the priority of the program's threads: for
    /// a caller that cannot wait until a busy program leaves a core unused.
    pub fn find_names_urgently(&self, at_end: impl FnOnce() + Send + 'static) -> NameSearch {
        self.search(SearchPriority::Program, Box::new(at_end))
    }

    fn search(&self, priority: SearchPriority, at_end: Box<dyn FnOnce() + Send>) -> NameSearch {
        let _workspace = hook::workspace();
        let view = self.view(Symbolization::Known);
        let locations = match &self.goroutines {
            Some(each) => goroutine_dump::locations(each, view),
            None => self.locations(view),
        };
        locations.search(priority, at_end)
    }
}
