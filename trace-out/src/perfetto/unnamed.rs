//! A generation whose names are looked up when it is written, and the files that are made of such.

use rtprof_runtime::process::own_files;
use rtprof_symbols::view::View;
use rtprof_tracer::generation::Tables as RecordTables;

use crate::schedule::{Names, define};

use super::definitions::Tables;
use super::openings::Openings;
use super::put_clocks;
use super::sequence::Closed;
use super::tracks::{Descriptions, Listed};

/// A complete generation without its names.
pub(crate) struct UnnamedGeneration {
    /// What is to be added to times, to make them times since boot.
    pub(super) boot: u64,
    /// The time at which its open slices begin.
    pub(super) begin: u64,
    pub(super) openings: Openings,
    pub(super) tracks: Listed,
    /// In the order of the file.
    pub(super) packets: Box<[Closed]>,
    pub(super) names: Names<Tables>,
}

impl UnnamedGeneration {
    /// Returns the memory that it takes, roughly.
    pub(crate) fn memory(&self) -> usize {
        let packets: usize = self.packets.iter().map(Closed::memory).sum();
        let names = self.names.memory() + self.names.definitions.memory();
        self.openings.memory() + self.tracks.memory() + packets + names
    }
}

/// What a file of parts has so far.
pub(crate) struct GenerationFile {
    descriptions: Descriptions,
    program: String,
    /// Of the first part, for all of them: times must not jump between two parts.
    boot: Option<u64>,
}

impl GenerationFile {
    /// Begins a file.
    pub(crate) fn begin(out: &mut Vec<u8>) -> Self {
        let (descriptions, program) = (Descriptions::default(), own_files::program());
        put_clocks(out);
        descriptions.begin(&program, out);
        Self { descriptions, program, boot: None }
    }

    /// Appends a part. It must be the one after the last one, or the first in the file. `tables` must be those of the
    /// records.
    pub(crate) fn put(
        &mut self,
        part: &UnnamedGeneration,
        tables: &dyn RecordTables,
        view: View,
        out: &mut Vec<u8>,
    ) {
        let mut names = part.names.clone();
        define(&mut names, tables, view);
        let definitions = &names.definitions;
        let is_first = self.boot.is_none();
        let boot = *self.boot.get_or_insert(part.boot);
        if is_first {
            // Tasks that begin in this part may be children of these.
            self.descriptions.put_open_tasks(&part.openings.user_tasks, out);
        }
        self.descriptions.put(&part.tracks, definitions, out);
        if is_first {
            part.openings.put(boot.wrapping_add(part.begin), out);
        }
        for packets in &*part.packets {
            packets.put(boot, definitions, &self.program, out);
        }
    }
}
