//! The Ps of a trace: what happens on each, in its order, batch by batch.

use std::collections::BTreeSet;

use crate::dense::DenseTable;

use super::event::{EventType, NO_PROC};
#[cfg(doc)]
use super::goroutines::NONE;
use super::wire::{put_batch, put_bytes, put_event};
#[cfg(any(test, feature = "self-check"))]
use crate::self_check::EventCheck;

/// A batch is closed before it grows beyond this, as Go's are: readers decode one at a time.
const BATCH: usize = 64 << 10;

/// The most bytes that one event takes, its message included.
const EVENT: usize = 2 << 10;

/// How many free Ps are looked at for one whose last owner was gone in time.
const LOOKED_AT: usize = 64;

/// The P that stands for "none".
pub(super) const OUTSIDE: u32 = 0;

/// One P, the slot that a running thread holds.
#[derive(Default)]
pub(super) struct Proc {
    /// The batch that is being written; empty if none is.
    batch: Vec<u8>,
    /// The tick of the last event.
    pub(super) tick: u64,
    pub(super) is_started: bool,
    /// The goroutine that runs on it; [`NONE`] while it is idle.
    pub(super) goroutine: u32,
    pub(super) is_sweeping: bool,
}

/// All Ps, numbered from 1: of P 0 the newest Go draws no wake-ups.
pub(super) struct Procs {
    all: DenseTable<Proc>,
    free: BTreeSet<u32>,
    /// Batches that are closed.
    closed: Vec<u8>,
    /// The batch of samples of the processor, which have one of their own.
    samples: Vec<u8>,
    /// Before the first tick of all events.
    start: u64,
    pub(super) events: u64,
    #[cfg(any(test, feature = "self-check"))]
    check: Option<EventCheck>,
}

impl Procs {
    /// Nothing happens until after the tick `start`.
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
        // "None" is always there.
        (procs[OUTSIDE].is_started, procs[OUTSIDE].tick) = (true, start);
        procs
    }

    fn add(&mut self) -> u32 {
        self.all.push(Proc { tick: self.start, ..Proc::default() })
    }

    /// The lowest P that nobody holds, and on which nothing happens after `until`.
    ///
    /// Lanes are written one after the other, not in the order of time: a P that was given back may have come further
    /// than its next owner has begun.
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

    /// To be given back stopped.
    pub(super) fn give_back(&mut self, proc: u32) {
        self_check!(!self[proc].is_started);
        self.free.insert(proc);
    }

    /// Writes an event, at `tick` or as soon after it as the P's order allows; says when.
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

    /// As [`put`](Self::put), with a message behind the event.
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
        // Go's readers push an event that is not younger than the one before it by a nanosecond; a burst would drift.
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

    /// Writes a sample of the processor, which has its time, P and goroutine with it.
    pub(super) fn put_sample(&mut self, tick: u64, proc: u32, goroutine: u64, stack: u64) {
        if self.samples.len() > BATCH - EVENT {
            self.closed.append(&mut self.samples);
        }
        if self.samples.is_empty() {
            // As Go has it. No P is made of that.
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

    /// Moves all that was written to the end of `out`. The next events begin new batches.
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

    /// All Ps but the one that stands for "none".
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
