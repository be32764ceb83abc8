//! Which module each address of an export belongs to.

use std::collections::{BTreeMap, BTreeSet};

use rtprof_runtime::modules::{CaptureSpan, ClockTime, History, Module, Owner};

use crate::locations::file_name;

/// The modules of the process, and what could not be told of addresses. Modules are numbered as in
/// [`modules`](Self::modules).
pub(crate) struct Owners {
    history: History,
    /// Return addresses whose module cannot be told, by those that it may be.
    contested: BTreeMap<Vec<usize>, BTreeSet<usize>>,
    /// Loaded modules in whose range there are addresses of others.
    misleading: BTreeSet<usize>,
}

impl Owners {
    /// Reads the loader's list again, so that libraries loaded since the last export are known.
    pub(crate) fn read() -> Self {
        Self { history: History::read(), contested: BTreeMap::new(), misleading: BTreeSet::new() }
    }

    pub(crate) fn modules(&self) -> &[&'static Module] {
        self.history.modules()
    }

    /// The module of a return address that was captured in `span`.
    ///
    /// The call lies before the address that it returns to, which may already belong to another line or,
    /// after a call that never returns, to another function. So the byte before it is looked up.
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

    /// The module of a return address whenever it was captured since a time, and that time.
    pub(crate) fn settled(&self, return_address: usize) -> (Option<usize>, ClockTime) {
        match self.history.settled(return_address.wrapping_sub(1)) {
            (Owner::Module(module), from) => (Some(module), from),
            (_, from) => (None, from),
        }
    }

    /// The modules in whose place a reader may look for every address that lies there. A form without the module of
    /// each address can only name these.
    pub(crate) fn unambiguous(&self) -> impl Iterator<Item = &'static Module> {
        let modules = self.history.modules().iter().copied().enumerate();
        modules
            .filter(|(at, module)| module.is_loaded() && !self.misleading.contains(at))
            .map(|(_, module)| module)
    }

    /// What a reader must know of addresses without names.
    pub(crate) fn comments(&self) -> impl Iterator<Item = String> {
        self.contested.iter().map(|(modules, addresses)| {
            let modules: Vec<&str> =
                modules.iter().map(|&module| file_name(&self.modules()[module].path)).collect();
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
