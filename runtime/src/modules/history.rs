//! The owner of an address at the time when a stack was captured.

use core::sync::atomic::AtomicBool;
use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use super::module::{Module, UnwindTables, identity};
use super::span::{CaptureSpan, ClockTime};

/// A period in which a module was loaded, as far as the readings of the loader's list reveal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    pub(super) module: &'static Module,
    /// The first reading that saw it.
    pub(super) first: u64,
    /// The last reading that saw it, if it was missing in the next one.
    pub(super) last: Option<u64>,
    /// Whether a module that is unknown, or forgotten, was unloaded shortly before `first`, and may have been at this
    /// address.
    pub(super) is_doubtful_before: bool,
    /// Whether the same is possible shortly after `last`.
    pub(super) is_doubtful_after: bool,
}

impl Lifetime {
    /// Returns the first and the last clock value at which its code may have run; `span` has the proof.
    fn bounds(&self) -> (u64, u64) {
        ((2 * self.first).saturating_sub(3), self.last.map_or(u64::MAX, |last| 2 * last + 1))
    }

    fn overlaps(&self, span: CaptureSpan) -> bool {
        let (begin, end) = self.bounds();
        begin <= span.last && span.first <= end
    }

    fn has(&self, time: u64) -> bool {
        let (begin, end) = self.bounds();
        (begin..=end).contains(&time)
    }

    /// Returns the clock value from which an earlier unseen module is excluded.
    fn sure_from(&self) -> u64 {
        let (begin, _) = self.bounds();
        if self.is_doubtful_before { 2 * self.first } else { begin }
    }

    /// Returns the clock value until which a later unseen module is excluded.
    fn sure_until(&self) -> u64 {
        let (_, end) = self.bounds();
        if self.is_doubtful_after { end.saturating_sub(3) } else { end }
    }
}

/// Returns each module once.
pub(super) fn distinct(lifetimes: &[Lifetime]) -> Vec<&'static Module> {
    let mut seen = HashSet::with_capacity(lifetimes.len());
    let modules = lifetimes.iter().map(|lifetime| lifetime.module);
    modules.filter(|module| seen.insert(identity(module))).collect()
}

/// What a profile says of a module of the process that it was taken of.
#[derive(Clone, Debug, Default)]
pub struct ForeignModule {
    /// See [`Module::path`].
    pub path: String,
    /// See [`Module::start`].
    pub start: usize,
    /// See [`Module::limit`].
    pub limit: usize,
    /// See [`Module::file_offset`].
    pub file_offset: u64,
    /// See [`Module::bias`].
    pub bias: usize,
    /// See [`Module::build_id`].
    pub build_id: Vec<u8>,
}

/// All modules that were seen, and when: the program itself first, unloaded modules last.
#[derive(Debug)]
pub struct History {
    modules: Vec<&'static Module>,
    /// Each with the index of its module, sorted by address.
    lifetimes: Vec<(usize, Lifetime)>,
}

/// The owner of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// No module that was seen contains the address.
    Unknown,
    /// The module with this index.
    Module(usize),
    /// The owner is uncertain: one of these modules, or one that was never seen.
    Contested(Vec<usize>),
}

impl History {
    /// Returns the modules of another process, whose program is the first of them. They are never freed.
    pub fn of_another_process(modules: Vec<ForeignModule>) -> Self {
        let lifetime = |(at, module): (usize, ForeignModule)| Lifetime {
            module: Box::leak(Box::new(Module {
                path: module.path,
                start: module.start,
                limit: module.limit,
                file_offset: module.file_offset,
                bias: module.bias,
                build_id: module.build_id,
                is_main_executable: at == 0,
                device: None,
                first_seen: SystemTime::now(),
                base: module.start,
                unwind: UnwindTables::default(),
                loader_name: String::new(),
                loaded: AtomicBool::new(true),
                is_foreign: true,
            })),
            first: 0,
            last: None,
            is_doubtful_before: false,
            is_doubtful_after: false,
        };
        let lifetimes: Vec<Lifetime> = modules.into_iter().enumerate().map(lifetime).collect();
        Self::new(&lifetimes)
    }

    pub(super) fn new(lifetimes: &[Lifetime]) -> Self {
        let mut modules = distinct(lifetimes);
        modules.sort_by_key(|module| (!module.is_main_executable, !module.is_loaded()));
        let places: HashMap<usize, usize> =
            modules.iter().enumerate().map(|(place, module)| (identity(module), place)).collect();
        let place = |lifetime: &Lifetime| places.get(&identity(lifetime.module)).copied().unwrap_or(0);
        let mut lifetimes: Vec<_> = lifetimes.iter().map(|lifetime| (place(lifetime), *lifetime)).collect();
        lifetimes.sort_by_key(|(_, lifetime)| lifetime.module.start);
        Self { modules, lifetimes }
    }

    /// Returns its modules. Other methods identify modules by their indices here.
    pub fn modules(&self) -> &[&'static Module] {
        &self.modules
    }

    /// Returns the modules that have contained an address; a module may appear more than once.
    pub fn all_at(&self, address: usize) -> impl Iterator<Item = usize> {
        self.at(address).map(|(module, _)| *module)
    }

    fn at(&self, address: usize) -> impl Iterator<Item = &(usize, Lifetime)> {
        let after = self.lifetimes.partition_point(|(_, lifetime)| lifetime.module.start <= address);
        self.lifetimes[..after].iter().filter(move |(_, lifetime)| address < lifetime.module.limit)
    }

    /// Returns the owner of an address during the whole span in which it was captured. The span must have ended before
    /// this history was read: modules loaded since are not known.
    pub fn owner(&self, address: usize, span: CaptureSpan) -> Owner {
        let candidates = || self.at(address).filter(|(_, lifetime)| lifetime.overlaps(span));
        let Some(&(module, _)) = candidates().next() else {
            return Owner::Unknown;
        };
        let is_known_time = span != CaptureSpan::UNKNOWN;
        // A module that came back counts as the same module.
        let is_sole = candidates().all(|(other, _)| *other == module);
        let has = |time| candidates().any(|(_, lifetime)| lifetime.has(time));
        let is_covered = !is_known_time || has(span.first) && has(span.last);
        let is_sure = candidates().all(|(_, lifetime)| {
            let (begin, end) = lifetime.bounds();
            let (from, until) = (lifetime.sure_from(), lifetime.sure_until());
            // The uncertain times at either end.
            let asks_before = begin < from && span.first < from;
            let asks_after = until < end && until < span.last;
            !asks_before && !asks_after
        });
        if is_sole && is_covered && is_sure {
            return Owner::Module(module);
        }
        let mut all: Vec<usize> = candidates().map(|(module, _)| *module).collect();
        all.sort_unstable();
        all.dedup();
        Owner::Contested(all)
    }

    /// Returns the owner of an address, and the time from which [`owner`](Self::owner) gives this answer whatever the
    /// span: most addresses have never had another owner, and need no second look-up.
    pub fn settled(&self, address: usize) -> (Owner, ClockTime) {
        let Some((module, latest)) = self.at(address).max_by_key(|(_, lifetime)| lifetime.first) else {
            return (Owner::Unknown, ClockTime::START);
        };
        if latest.last.is_some() {
            return (Owner::Unknown, ClockTime::NEVER);
        }
        let ends = self.at(address).filter_map(|(_, lifetime)| lifetime.last.map(|last| 2 * last + 2));
        let from = ends.max().unwrap_or(0).max(latest.sure_from());
        (Owner::Module(*module), ClockTime(from))
    }
}

#[cfg(all(test, not(loom)))]
#[path = "history_tests.rs"]
mod tests;
