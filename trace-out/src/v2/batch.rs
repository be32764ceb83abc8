//! Batches: the parts of a generation, each of one thread, or of stacks, strings or samples.

use std::time::SystemTime;

use crate::numbers::put_number;

use super::clock::{Snapshot, TICKS_PER_SECOND};
use super::event::{BATCH, EventType, NO_THREAD};

/// The most bytes of one event.
const EVENT: usize = 128;

/// Appends a batch.
pub(super) fn put_batch(out: &mut Vec<u8>, generation: u64, thread: u64, time: u64, bytes: &[u8]) {
    self_check!(bytes.len() <= BATCH);
    out.push(EventType::EventBatch as u8);
    for number in [generation, thread, time, bytes.len() as u64] {
        put_number(out, number);
    }
    out.extend_from_slice(bytes);
}

/// Appends the batch of a generation's clock. With a snapshot it has the form that Go 1.25 introduced.
pub(super) fn put_clock(out: &mut Vec<u8>, generation: u64, begin: u64, snapshot: Option<Snapshot>) {
    let mut bytes = Vec::new();
    if snapshot.is_some() {
        bytes.push(EventType::Sync as u8);
    }
    bytes.push(EventType::Frequency as u8);
    put_number(&mut bytes, TICKS_PER_SECOND);
    if let Some(Snapshot { tick, monotonic, wall }) = snapshot {
        let since_1970 = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        bytes.push(EventType::ClockSnapshot as u8);
        let (seconds, nanos) = (since_1970.as_secs(), since_1970.subsec_nanos().into());
        for number in [tick.saturating_sub(begin), monotonic, seconds, nanos] {
            put_number(&mut bytes, number);
        }
    }
    put_batch(out, generation, NO_THREAD, begin, &bytes);
}

/// The current batch of events of one thread.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// The time of the first event.
    begin: u64,
    /// The time of the last event.
    last: u64,
}

impl Batch {
    /// Whether another event fits.
    pub(super) fn has_room(&self) -> bool {
        self.bytes.len() + EVENT <= BATCH
    }

    /// Returns the time of the last event.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Appends an event, not before the last one.
    #[inline]
    pub(super) fn put<const N: usize>(&mut self, tick: u64, event: EventType, args: [u64; N]) {
        if self.bytes.is_empty() {
            (self.begin, self.last) = (tick, tick);
        }
        let tick = tick.max(self.last);
        self.bytes.push(event as u8);
        put_number(&mut self.bytes, tick - self.last);
        self.last = tick;
        for arg in args {
            put_number(&mut self.bytes, arg);
        }
    }

    /// Like [`put`](Self::put), for an event whose number and arguments are encoded already.
    pub(super) fn put_encoded(&mut self, tick: u64, event: u8, args: &[u8]) {
        if self.bytes.is_empty() {
            (self.begin, self.last) = (tick, tick);
        }
        let tick = tick.max(self.last);
        self.bytes.push(event);
        put_number(&mut self.bytes, tick - self.last);
        self.last = tick;
        self.bytes.extend_from_slice(args);
    }

    /// Moves the batch to the end of `out`, if it has events.
    pub(super) fn close(&mut self, out: &mut Vec<u8>, generation: u64, thread: u64) {
        if !self.bytes.is_empty() {
            put_batch(out, generation, thread, self.begin, &self.bytes);
            self.bytes.clear();
        }
    }
}

/// Items of one kind, in batches that belong to no thread and begin with the byte of the kind.
#[derive(Clone)]
pub(super) struct Items {
    kind: EventType,
    /// The current batch, without its head; empty if there is none.
    bytes: Vec<u8>,
    full: Vec<Vec<u8>>,
}

impl Items {
    pub(super) fn new(kind: EventType) -> Self {
        Self { kind, bytes: Vec::new(), full: Vec::new() }
    }

    /// Returns the bytes of all items so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.full.iter().map(Vec::len).sum::<usize>()
    }

    /// Appends an item of at most `len` bytes, which `put` writes.
    pub(super) fn put(&mut self, len: usize, put: impl FnOnce(&mut Vec<u8>)) {
        if self.bytes.len() + len > BATCH {
            self.full.push(std::mem::take(&mut self.bytes));
        }
        if self.bytes.is_empty() {
            self.bytes.push(self.kind as u8);
        }
        put(&mut self.bytes);
    }

    /// Moves all batches to the end of `out`.
    pub(super) fn close(&mut self, out: &mut Vec<u8>, generation: u64, time: u64) {
        let last = std::mem::take(&mut self.bytes);
        for bytes in self.full.drain(..).chain([last]).filter(|bytes| !bytes.is_empty()) {
            put_batch(out, generation, NO_THREAD, time, &bytes);
        }
    }
}
