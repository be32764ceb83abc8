//! Finds goroutines by the names of their functions, and by their own names.

use std::collections::{HashMap, HashSet};

use rtprof::pprof::{Symbolization, function_names};
use rtprof::{GoroutineRecord, goroutine_profile};
use test_support::{threads, until};

/// Cache of the names of addresses.
#[derive(Default)]
pub(crate) struct Names(HashMap<usize, String>);

impl Names {
    /// Looks up all functions of these goroutines, which takes hardly longer than one function.
    pub(crate) fn learn<'g>(&mut self, goroutines: impl IntoIterator<Item = &'g GoroutineRecord>) {
        let frames = goroutines.into_iter().flat_map(|goroutine| goroutine.stack()).copied();
        let unknown: HashSet<usize> = frames.filter(|address| !self.0.contains_key(address)).collect();
        let calls: Vec<usize> = unknown.iter().map(|address| address - 1).collect();
        let names = function_names(&calls, Symbolization::Full);
        let named = unknown.into_iter().zip(names);
        self.0.extend(named.map(|(address, name)| (address, name.as_deref().unwrap_or("?").to_owned())));
    }

    /// Returns the functions of a stack, leaf first; `?` for a function without a name.
    pub(crate) fn of(&mut self, goroutine: &GoroutineRecord) -> Vec<&str> {
        self.learn([goroutine]);
        goroutine.frames.iter().map(|address| self.0[address].as_str()).collect()
    }
}

/// Returns the goroutine of this name.
pub(crate) fn find(name: &str) -> Option<GoroutineRecord> {
    goroutine_profile().into_iter().find(|goroutine| goroutine.name == name)
}

/// Waits until the thread that searches names, a goroutine like others, has ended, so that counts agree.
pub(crate) fn wait_for_end_of_search() {
    until("no names are looked up", || threads::nice_values("rtprof-symbols").is_empty());
}
