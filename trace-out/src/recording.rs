//! The recording in progress, which a trace and a flight recorder share.
//!
//! Problem: the recorder has one reader, its [`Drain`], but a trace may be taken while a flight recorder is on, and
//! each of them encodes at its own pace: the one that waits for a slow writer must not hold up the other.
//!
//! Scheme: a generation is cut for all consumers at once, by the one that looks first, and put in a queue of each. Its
//! buffers are free again when the last of them has encoded it.
//!
//! ```text
//!             ┌─► queue of the trace ──► its encoder ──► writer
//!   Drain ──cut
//!             └─► queue of the flight recorder ──► its encoder ──► ring
//! ```
//!
//! A consumer that begins or ends while another one goes on does so at a cut: each generation declares the state of
//! every goroutine, so an encoder may begin with any. A consumer whose queue exceeds its memory loses generations,
//! a trace the newest and a flight recorder the oldest; encoders treat them like buffers that were lost.
//!
//! Locks: `RECORDING` guards the drain and the list of consumers, and is held during a cut. Under it, `queue` guards
//! the queue of a consumer, for a moment.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rtprof_profiler::mem;
use rtprof_runtime::hook::{self, own_process};
use rtprof_runtime::lock::fork_safe::{ForkMutex, ForkMutexGuard};
use rtprof_tracer::drain::{self, Counts, Drain};
use rtprof_tracer::generation::Generation;
use rtprof_tracer::{Collected, TableView};

use super::TraceError;

static RECORDING: ForkMutex<Option<Recording>> = ForkMutex::new(None);

/// What records are consumed for. There is at most one consumer of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Trace,
    Flight,
}

/// The memory that a consumer allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of records that are not encoded yet.
    pub(super) memory: usize,
    /// Bytes of records that end a generation.
    pub(super) full: usize,
    /// Bytes of the records of complete generations that are not encoded yet, of a flight recorder.
    pub(super) backlog: usize,
}

struct Recording {
    process: u32,
    drain: Drain,
    consumers: Vec<Arc<Shared>>,
    /// Whether the last active consumer has ended the recording.
    is_ending: bool,
}

/// What a consumer shares with the others.
struct Shared {
    kind: Kind,
    limits: Limits,
    /// The counts when it began.
    base: Counts,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    parts: VecDeque<QueuedGeneration>,
    /// The memory of the parts, and the bytes of records in it.
    memory: usize,
    bytes: usize,
    /// Whether generations were lost since the last part.
    is_after_loss: bool,
    lost_buffers: u64,
    lost_records: u64,
    /// Whether the consumer gets no more parts.
    has_ended: bool,
}

/// A generation for a consumer.
pub(super) struct QueuedGeneration {
    /// The records; `None` if they were lost, at the end of the consumer's recording.
    collected: Option<Arc<Collected>>,
    /// The bytes of the records.
    bytes: usize,
    is_after_loss: bool,
    /// The tick at which the generation ended.
    pub(super) end: u64,
    /// The counts since the consumer began.
    pub(super) counts: Counts,
    /// Whether it is the consumer's last one.
    pub(super) is_last: bool,
}

impl QueuedGeneration {
    /// Returns the records.
    pub(super) fn generation(&self) -> Option<Generation<'_>> {
        let mut generation = self.collected.as_ref()?.generation();
        if self.is_after_loss {
            for lane in &mut generation.lanes {
                if let Some(first) = lane.buffers.first_mut() {
                    first.is_after_loss = true;
                }
            }
        }
        Some(generation)
    }
}

/// Receives the generations from its start to its stop. Dropping it ends its part of the recording.
pub(super) struct Consumer {
    shared: Arc<Shared>,
    tables: Arc<TableView>,
    begin: u64,
}

impl Consumer {
    /// Begins to record for a new consumer.
    ///
    /// # Errors
    /// [`TraceError::WriterBusy`] if the last consumer of this kind is not done, or if a recording that has ended is
    /// still being read; others as of [`drain::start`].
    pub(super) fn start(kind: Kind, limits: Limits) -> Result<Self, TraceError> {
        let _untracked = hook::untracked();
        let mut current = RECORDING.lock().ok_or(TraceError::Forked)?;
        match &mut *current {
            Some(recording) if recording.process != own_process() => Err(TraceError::Forked),
            Some(recording) => {
                let is_taken = recording.consumers.iter().any(|consumer| consumer.kind == kind);
                if is_taken || recording.is_ending {
                    return Err(TraceError::WriterBusy);
                }
                recording.cut(None);
                Ok(recording.add(kind, limits))
            }
            none => {
                let drain = match drain::start(limits.memory, &(mem::live_heap_estimate as fn() -> u64)) {
                    // Another recording exists only if this module does not know of it.
                    Err(drain::StartError::AlreadyStarted) => return Err(TraceError::WriterBusy),
                    drain => drain?,
                };
                let recording =
                    Recording { process: own_process(), drain, consumers: Vec::new(), is_ending: false };
                Ok(none.insert(recording).add(kind, limits))
            }
        }
    }

    /// Returns the tick at which its recording began.
    pub(super) fn begin(&self) -> u64 {
        self.begin
    }

    /// Returns the tables of the parts.
    pub(super) fn tables(&self) -> &Arc<TableView> {
        &self.tables
    }

    /// Returns the next generation. `None` if none is complete, or if the last one was returned. Must be called every
    /// few milliseconds: it also cuts a generation that has lasted long enough.
    pub(super) fn next(&self) -> Option<QueuedGeneration> {
        self.shared.pop().or_else(|| {
            self.cut_if_due();
            self.shared.pop()
        })
    }

    /// Cuts a generation that has lasted long enough.
    pub(super) fn cut_if_due(&self) {
        if let Some(mut current) = here()
            && let Some(recording) = current.as_mut()
            // Only the others' part of the recording may go on.
            && (!self.shared.queue().has_ended || recording.is_ending)
            && recording.drain.wants_cut()
        {
            recording.cut(None);
        }
    }

    /// Returns the number of generations that [`next`](Self::next) has ready.
    pub(super) fn ready(&self) -> usize {
        self.shared.queue().parts.len()
    }

    /// Ends the present generation now.
    pub(super) fn cut(&self) {
        if let Some(mut current) = here()
            && let Some(recording) = current.as_mut()
            && !recording.is_ending
        {
            recording.cut(None);
        }
    }

    /// Ends recording for this consumer, at once. The rest of its parts remains to be taken.
    pub(super) fn stop(&self) {
        let Some(mut current) = here() else { return };
        let Some(recording) = current.as_mut() else { return };
        if self.shared.queue().has_ended || recording.is_ending {
            return;
        }
        if recording.has_others(&self.shared) {
            recording.cut(Some(&self.shared));
        } else {
            recording.end();
        }
    }

    /// Returns the counts at the end of a part, and what this consumer has lost.
    pub(super) fn counts(&self, part: &QueuedGeneration) -> Counts {
        let queue = self.shared.queue();
        let counts = part.counts;
        Counts {
            records: counts.records.saturating_sub(queue.lost_records),
            lost_events: counts.lost_events + queue.lost_records,
            lost_buffers: counts.lost_buffers + queue.lost_buffers,
            ..counts
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let Some(mut current) = RECORDING.lock() else { return };
        let Some(recording) = current.as_mut() else { return };
        let _untracked = hook::untracked();
        self.shared.queue().clear();
        let is_here = recording.process == own_process();
        recording.consumers.retain(|consumer| !Arc::ptr_eq(consumer, &self.shared));
        if recording.consumers.is_empty() {
            // The view must be gone before, so that the tables can be emptied.
            self.tables = Arc::default();
            *current = None;
        } else if is_here && !recording.is_ending {
            match recording.consumers.iter().any(|consumer| !consumer.queue().has_ended) {
                true => recording.limit(),
                false => recording.end(),
            }
        }
    }
}

impl Recording {
    fn add(&mut self, kind: Kind, limits: Limits) -> Consumer {
        let queue = Mutex::default();
        let shared = Arc::new(Shared { kind, limits, base: self.drain.counts(), queue });
        self.consumers.push(shared.clone());
        self.limit();
        Consumer { shared, tables: self.drain.tables().clone(), begin: self.drain.begin() }
    }

    /// Applies the limits of all consumers.
    fn limit(&mut self) {
        let active = self.consumers.iter().filter(|consumer| !consumer.queue().has_ended);
        let limits = active.map(|consumer| consumer.limits);
        let both = limits.reduce(|a, b| Limits {
            memory: a.memory.saturating_add(b.memory),
            full: a.full.min(b.full),
            ..a
        });
        if let Some(Limits { memory, full, .. }) = both {
            self.drain.limit(memory, full);
        }
    }

    fn has_others(&self, than: &Arc<Shared>) -> bool {
        self.consumers.iter().any(|other| !Arc::ptr_eq(other, than) && !other.queue().has_ended)
    }

    /// Ends the recording. One more cut has the rest of it.
    fn end(&mut self) {
        self.is_ending = true;
        drain::end_recording(self.drain.session());
    }

    /// Cuts the generation for all consumers. It is the last one of `ends`.
    fn cut(&mut self, ends: Option<&Arc<Shared>>) {
        let _untracked = hook::untracked();
        let before = self.drain.counts().bytes;
        let collected = Arc::new(self.drain.cut());
        let is_over = self.drain.is_over();
        let counts = self.drain.counts();
        for consumer in &self.consumers {
            let is_last = is_over || ends.is_some_and(|ends| Arc::ptr_eq(ends, consumer));
            consumer.push(&collected, (counts.bytes - before) as usize, &counts, is_last);
        }
        if ends.is_some() {
            self.limit();
        }
        if !is_over {
            self.drain.restate();
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pop(&self) -> Option<QueuedGeneration> {
        let mut queue = self.queue();
        let part = queue.parts.pop_front()?;
        queue.take(&part);
        Some(part)
    }

    fn push(&self, collected: &Arc<Collected>, bytes: usize, counts: &Counts, is_last: bool) {
        let mut queue = self.queue();
        if queue.has_ended {
            return;
        }
        queue.has_ended = is_last;
        let memory = collected.memory();
        if self.kind == Kind::Flight {
            // A window is about what happened last.
            let Limits { memory: most, backlog, .. } = self.limits;
            while (queue.memory + memory > most || queue.bytes + bytes > backlog) && queue.lose_oldest() {}
        }
        let fits = queue.parts.is_empty() || queue.memory + memory <= self.limits.memory;
        if fits {
            queue.memory += memory;
            queue.bytes += bytes;
        } else {
            queue.count_lost(collected);
        }
        if fits || is_last {
            let is_after_loss = queue.is_after_loss;
            queue.parts.push_back(QueuedGeneration {
                collected: fits.then(|| collected.clone()),
                bytes: if fits { bytes } else { 0 },
                is_after_loss,
                end: collected.end(),
                counts: counts.since(&self.base),
                is_last,
            });
        }
        queue.is_after_loss = !fits;
    }
}

impl Queue {
    /// Subtracts a part that has left the queue.
    fn take(&mut self, part: &QueuedGeneration) {
        self.memory -= part.collected.as_ref().map_or(0, |collected| collected.memory());
        self.bytes -= part.bytes;
    }

    /// Loses the oldest part. Returns whether there was one.
    fn lose_oldest(&mut self) -> bool {
        let Some(oldest) = self.parts.pop_front() else { return false };
        self.take(&oldest);
        if let Some(collected) = &oldest.collected {
            self.count_lost(collected);
        }
        match self.parts.front_mut() {
            Some(next) => next.is_after_loss = true,
            None => self.is_after_loss = true,
        }
        true
    }

    fn count_lost(&mut self, collected: &Collected) {
        let (buffers, records) = collected.counts();
        self.lost_buffers += buffers;
        self.lost_records += records;
    }

    fn clear(&mut self) {
        self.parts.clear();
        (self.memory, self.bytes) = (0, 0);
        self.has_ended = true;
    }
}

/// Returns the recording, if this process records it.
fn here() -> Option<ForkMutexGuard<'static, Option<Recording>>> {
    RECORDING.lock().filter(|current| current.as_ref().is_some_and(|it| it.process == own_process()))
}
