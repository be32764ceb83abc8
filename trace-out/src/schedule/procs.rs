//! The Ps of a trace, and the interface of the formats to which their events are written.

use std::collections::BTreeSet;

use crate::dense::DenseTable;

use super::event::Event;
#[cfg(doc)]
use super::goroutines::NONE;
use super::names::Definitions;

/// How many free Ps are examined for one whose last owner ended early enough.
const LOOKED_AT: usize = 64;

/// The P that stands for "none".
pub(crate) const OUTSIDE: u32 = 0;

/// A format of traces.
pub(crate) trait Wire {
    /// What the format keeps of a P.
    type Lane: Default;
    type Definitions: Definitions;

    /// How far a P that stands in for a moment may be ahead, in ticks of the file: a burst of events for each goroutine
    /// should not need a P each.
    const STAND_IN_AHEAD: u64;

    /// Whether reasons and messages are strings with ids.
    const HAS_TEXTS: bool;

    /// Whether the end of a stop of the world may be shown in a later part than its beginning, and after a wait of its
    /// goroutine.
    const HAS_LONG_STOPS: bool;

    /// Whether the end of a stop of the world may be shown while its goroutine does not run.
    const STOPS_END_ALONE: bool;

    /// Whether readers end the regions of a goroutine with the goroutine. Otherwise they are ended by events.
    const REGIONS_END_WITH_GOROUTINE: bool;

    /// Whether a wake-up without a known waker has a stack, of the name of the goroutine that is woken.
    const HAS_WAKER_ALWAYS: bool;

    /// Converts a tick of the records to the file's units.
    fn in_file(&self, tick: u64) -> u64;

    /// Whether a goroutine that the trace does not know may be shown in its state. Otherwise it must be created and
    /// brought there.
    fn may_state(&self) -> bool;

    /// Writes an event of a P, at `tick` or as soon after it as the order of the P allows; returns its tick, which is
    /// also noted in the P.
    fn put(&mut self, index: u32, proc: &mut Proc<Self::Lane>, tick: u64, event: Event<'_>) -> u64;

    /// Ends the use of a P, which is stopped, by its thread.
    fn give_back(&mut self, index: u32, proc: &mut Proc<Self::Lane>);

    /// Writes a CPU sample of a goroutine, 0 for none, on a P, by its tick and its thread.
    fn put_sample(&mut self, index: u32, taken: (u64, u64), goroutine: u64, stack: u64);

    /// Ends the trace.
    fn finish(&mut self);
}

/// One P, the slot that a running thread holds.
#[derive(Default)]
pub(crate) struct Proc<L> {
    /// The tick of the last event.
    pub(crate) tick: u64,
    pub(super) is_started: bool,
    /// The goroutine that runs on it; [`NONE`] while it is idle.
    pub(super) goroutine: u32,
    pub(super) is_sweeping: bool,
    /// What the format keeps.
    pub(crate) lane: L,
}

/// All Ps, numbered from 1, because the newest Go shows no wake-ups of P 0.
pub(crate) struct Procs<W: Wire> {
    all: DenseTable<Proc<W::Lane>>,
    free: BTreeSet<u32>,
    /// A tick before all events.
    start: u64,
    pub(crate) wire: W,
}

impl<W: Wire> Procs<W> {
    /// Ps without events. All ticks will be after `start`.
    pub(super) fn new(start: u64, wire: W) -> Self {
        let mut procs = Self { all: DenseTable::new(), free: BTreeSet::new(), start, wire };
        // The P for "none" is always started.
        (procs[OUTSIDE].is_started, procs[OUTSIDE].tick) = (true, start);
        procs
    }

    fn add(&mut self) -> u32 {
        self.all.push(Proc { tick: self.start, ..Proc::default() })
    }

    /// Takes the lowest free P without any event after `until`.
    ///
    /// Lanes are written one after the other, not in the order of time: a P that was given back may be further in time
    /// than the beginning of its next owner.
    pub(super) fn take(&mut self, until: u64) -> u32 {
        let found = self.free.iter().take(LOOKED_AT).copied().find(|&proc| self[proc].tick <= until);
        match found {
            Some(proc) => {
                self.free.remove(&proc);
                proc
            }
            None => self.add(),
        }
    }

    /// Gives back a P, which must be stopped.
    pub(super) fn give_back(&mut self, proc: u32) {
        self_check!(!self[proc].is_started);
        self.wire.give_back(proc, &mut self.all[proc]);
        self.free.insert(proc);
    }

    /// Writes an event; see [`Wire::put`].
    #[inline]
    pub(crate) fn put(&mut self, proc: u32, tick: u64, event: Event<'_>) -> u64 {
        self.wire.put(proc, &mut self.all[proc], tick, event)
    }

    /// Calls `f` with the format and a P.
    #[inline]
    pub(crate) fn on_wire<R>(&mut self, proc: u32, f: impl FnOnce(&mut W, &mut Proc<W::Lane>) -> R) -> R {
        f(&mut self.wire, &mut self.all[proc])
    }

    /// Returns all Ps except the one for "none".
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> + use<W> {
        self.all.indices()
    }

    /// Calls `f` with the format, and with what it keeps of each P and whether that P is free; first of the P for
    /// "none".
    pub(crate) fn each_lane(&mut self, mut f: impl FnMut(&mut W, u32, &mut Proc<W::Lane>, bool)) {
        for index in std::iter::once(OUTSIDE).chain(self.all.indices()) {
            f(&mut self.wire, index, &mut self.all[index], self.free.contains(&index));
        }
    }
}

impl<W: Wire> std::ops::Index<u32> for Procs<W> {
    type Output = Proc<W::Lane>;

    #[inline]
    fn index(&self, proc: u32) -> &Self::Output {
        &self.all[proc]
    }
}

impl<W: Wire> std::ops::IndexMut<u32> for Procs<W> {
    #[inline]
    fn index_mut(&mut self, proc: u32) -> &mut Self::Output {
        &mut self.all[proc]
    }
}
