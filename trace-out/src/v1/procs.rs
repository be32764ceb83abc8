//! The Ps of a trace: the events of each, in order, batch by batch.

use std::collections::BTreeSet;

use crate::dense::DenseTable;

use super::event::{EventType, NO_PROC};
#[cfg(doc)]
use super::goroutines::NONE;
use super::wire::{put_batch, put_bytes, put_event};
#[cfg(any(test, feature = "self-check"))]
use crate::self_check::EventCheck;

/// A batch is closed before it grows beyond this size, as in Go: readers decode one batch at a time.
const BATCH: usize = 64 << 10;

/// The most bytes of one event, its message included.
const EVENT: usize = 2 << 10;

/// How many free Ps are examined for one whose last owner ended early enough.
const LOOKED_AT: usize = 64;

/// The P that stands for "none".
pub(super) const OUTSIDE: u32 = 0;

/// One P, the slot that a running thread holds.
#[derive(Default)]
pub(super) struct Proc {
    /// The current batch; empty if there is none.
    batch: Vec<u8>,
    /// The tick of the last event.
    pub(super) tick: u64,
    pub(super) is_started: bool,
    /// The goroutine that runs on it; [`NONE`] while it is idle.
    pub(super) goroutine: u32,
    pub(super) is_sweeping: bool,
}

/// All Ps, numbered from 1, because the newest Go shows no wake-ups of P 0.
pub(super) struct Procs {
    all: DenseTable<Proc>,
    free: BTreeSet<u32>,
    /// Closed batches.
    closed: Vec<u8>,
    /// The batch of CPU samples, which are kept in separate batches.
    samples: Vec<u8>,
    /// A tick before all events.
    start: u64,
    pub(super) events: u64,
    #[cfg(any(test, feature = "self-check"))]
    check: Option<EventCheck>,
}

impl Procs {
    /// Ps without events. All ticks will be after `start`.
    pub(super) fn new(start: u64) -> Self {
        let mut procs = Self {
            all: DenseTable::new(),
            free: BTreeSet::new(),
            closed: Vec::new(),
            samples: Vec::new(),
            start,
            events: 0,
            #[cfg(any(test, feature = "self-check"))]
            check: crate::self_check::start(),
        };
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
        self.free.insert(proc);
    }

    /// Writes an event, at `tick` or as soon after it as the P's order allows; returns its tick.
    #[inline]
    pub(super) fn put<const N: usize>(
        &mut self,
        proc: u32,
        tick: u64,
        event: EventType,
        args: [u64; N],
    ) -> u64 {
        self.put_with(proc, tick, event, args, None)
    }

    /// Like [`put`](Self::put), with a message after the event.
    #[inline]
    pub(super) fn put_with<const N: usize>(
        &mut self,
        proc: u32,
        tick: u64,
        event: EventType,
        args: [u64; N],
        message: Option<&[u8]>,
    ) -> u64 {
        let pid = if proc == OUTSIDE { NO_PROC } else { u64::from(proc) };
        let state = &mut self.all[proc];
        if state.batch.len() > BATCH - EVENT {
            self.closed.extend_from_slice(&state.batch);
            state.batch.clear();
        }
        // Go's readers delay an event that is not younger than the previous one by a nanosecond; a burst would drift.
        let tick = tick.max(state.tick + 1);
        if state.batch.is_empty() {
            put_batch(&mut state.batch, pid, tick);
            state.tick = tick;
        }
        put_event(&mut state.batch, event, tick - state.tick, args);
        if let Some(message) = message {
            put_bytes(&mut state.batch, message);
        }
        state.tick = tick;
        self.events += 1;
        #[cfg(any(test, feature = "self-check"))]
        if let Some(check) = &mut self.check {
            check(Some((pid, tick, event.number(), &args)));
        }
        tick
    }

    /// Writes a CPU sample, which carries its time, P and goroutine.
    pub(super) fn put_sample(&mut self, tick: u64, proc: u32, goroutine: u64, stack: u64) {
        if self.samples.len() > BATCH - EVENT {
            self.closed.append(&mut self.samples);
        }
        if self.samples.is_empty() {
            // P 0 as in Go's own traces. Readers make no P of it.
            put_batch(&mut self.samples, 0, tick);
        }
        let pid = if proc == OUTSIDE { NO_PROC } else { u64::from(proc) };
        let args = [tick, pid, goroutine, stack];
        put_event(&mut self.samples, EventType::CpuSample, 0, args);
        self.events += 1;
        #[cfg(any(test, feature = "self-check"))]
        if let Some(check) = &mut self.check {
            check(Some((0, tick, EventType::CpuSample.number(), &args)));
        }
    }

    /// Moves all written bytes to the end of `out`. The next events begin new batches.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.closed);
        out.append(&mut self.samples);
        self.closed.shrink_to(BATCH);
        for index in std::iter::once(OUTSIDE).chain(self.all.indices()) {
            let batch = &mut self.all[index].batch;
            out.append(batch);
            if self.free.contains(&index) {
                *batch = Vec::new();
            }
        }
    }

    /// Returns all Ps except the one for "none".
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> + use<> {
        self.all.indices()
    }

    /// Ends the trace.
    pub(super) fn finish(&mut self) {
        #[cfg(any(test, feature = "self-check"))]
        if let Some(check) = &mut self.check {
            check(None);
        }
    }
}

impl std::ops::Index<u32> for Procs {
    type Output = Proc;

    #[inline]
    fn index(&self, proc: u32) -> &Proc {
        &self.all[proc]
    }
}

impl std::ops::IndexMut<u32> for Procs {
    #[inline]
    fn index_mut(&mut self, proc: u32) -> &mut Proc {
        &mut self.all[proc]
    }
}
