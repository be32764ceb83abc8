//! A generation whose names are looked up when it is written: most of those that a flight recorder keeps are never written.

use rtprof_symbols::view::View;
use rtprof_tracer::generation::Tables;

use crate::schedule::Names;

use super::{Version, definitions, put_names};

/// A complete generation without its names.
pub(crate) struct UnnamedGeneration {
    version: Version,
    number: u64,
    /// The tick of the file at which it begins.
    begin: u64,
    events: Box<[u8]>,
    names: Names<definitions::Tables>,
}

impl UnnamedGeneration {
    pub(super) fn new(
        (version, number, begin): (Version, u64, u64),
        events: Vec<u8>,
        names: Names<definitions::Tables>,
    ) -> Self {
        Self { version, number, begin, events: events.into(), names }
    }

    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        Self::new((Version::Go126, 1, 0), Vec::new(), Names::default())
    }

    /// Returns the memory that it takes, roughly.
    pub(crate) fn memory(&self) -> usize {
        self.events.len() + self.names.definitions.len() + self.names.memory()
    }

    /// Returns its clock and events, which come first in the file.
    pub(crate) fn events(&self) -> &[u8] {
        &self.events
    }

    /// Appends what comes after them: the strings and stacks. `tables` must be those of the records.
    pub(crate) fn put_names(&self, tables: &dyn Tables, view: View, out: &mut Vec<u8>) {
        let mut names = self.names.clone();
        put_names(out, (self.version, self.number, self.begin), &mut names, tables, view);
    }
}
