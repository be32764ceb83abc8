//! Finds the module to which each address of an export belongs.

use std::collections::{BTreeMap, BTreeSet};

use rtprof_runtime::modules::{CaptureSpan, ClockTime, History, Module, Owner};

/// The modules of the process, and the addresses without a certain owner. Modules are numbered as in
/// [`modules`](Self::modules).
pub(crate) struct Owners {
    history: History,
    /// Return addresses whose module is ambiguous, by the candidate modules.
    contested: BTreeMap<Vec<usize>, BTreeSet<usize>>,
    /// Loaded modules whose range contains addresses of other modules.
    misleading: BTreeSet<usize>,
}

impl Owners {
    /// Reads the loader's list again, so that libraries loaded since the last export are included.
    pub(crate) fn read() -> Self {
        Self::new(History::read())
    }

    /// The modules of another process.
    pub(crate) fn new(history: History) -> Self {
        Self { history, contested: BTreeMap::new(), misleading: BTreeSet::new() }
    }

    pub(crate) fn modules(&self) -> &[&'static Module] {
        self.history.modules()
    }

    /// Returns the module of a return address that was captured in `span`.
    ///
    /// The call lies before the address to which it returns, which may already belong to another line or, after a call
    /// that never returns, to another function. So the preceding byte is looked up.
    pub(crate) fn of(&mut self, return_address: usize, span: CaptureSpan) -> Option<usize> {
        let address = return_address.wrapping_sub(1);
        let owner = match self.history.owner(address, span) {
            Owner::Module(module) => Some(module),
            Owner::Unknown => None,
            Owner::Contested(modules) => {
                self.contested.entry(modules).or_default().insert(return_address);
                None
            }
        };
        self.misleading.extend(self.history.all_at(address).filter(|module| Some(*module) != owner));
        owner
    }

    /// Returns the time from which on the module of a return address is certain, and that module.
    pub(crate) fn settled(&self, return_address: usize) -> (Option<usize>, ClockTime) {
        match self.history.settled(return_address.wrapping_sub(1)) {
            (Owner::Module(module), from) => (Some(module), from),
            (_, from) => (None, from),
        }
    }

    /// Returns the modules that contain only their own addresses. A form without the module of each address can name
    /// only these, because a reader looks up every address in their range there.
    pub(crate) fn unambiguous(&self) -> impl Iterator<Item = &'static Module> {
        let modules = self.history.modules().iter().copied().enumerate();
        modules
            .filter(|(at, module)| module.is_loaded() && !self.misleading.contains(at))
            .map(|(_, module)| module)
    }

    /// Returns remarks for the reader on addresses without names.
    pub(crate) fn comments(&self) -> impl Iterator<Item = String> {
        self.contested.iter().map(|(modules, addresses)| {
            let modules: Vec<&str> = modules.iter().map(|&module| &*self.modules()[module].path).collect();
            let more = addresses.len().saturating_sub(SHOWN);
            let shown = addresses.iter().take(SHOWN);
            let mut addresses: Vec<String> =
                shown.map(|address| format!("{:#x}", address.wrapping_sub(1))).collect();
            if more > 0 {
                addresses.push(format!("and {more} more"));
            }
            let candidates = match &*modules {
                [one] => format!("{one} or a library that was unloaded before it was seen"),
                several => several.join(" or "),
            };
            format!(
                "addresses without names, because their library was unloaded or replaced: {} of {candidates}",
                addresses.join(" "),
            )
        })
    }
}

/// The most addresses that a comment lists.
const SHOWN: usize = 20;
