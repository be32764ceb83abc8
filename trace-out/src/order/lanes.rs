//! The lanes of a trace, one for each thread's life, and how far each was read.

use rtprof_runtime::goroutine::state::State;
use rtprof_tracer::generation::{Buffered, LaneRecords};
use rtprof_tracer::record::{Record, Records};

use crate::dense::DenseTable;

use super::collector::Numbered;

/// The lane of records from outside threads.
pub(crate) const SHARED: u32 = 0;

/// A call that a thread was in when another thread looked, at `tick`.
#[derive(Clone, Copy)]
pub(super) struct OpenCall {
    pub(super) tick: u64,
    pub(super) goroutine: u64,
    pub(super) state: State,
    pub(super) begin: u64,
}

/// The state of a lane that persists between generations.
#[derive(Clone, Default)]
pub(super) struct OrderedLane {
    /// The goroutine of the thread; 0 for none, or for a lane that is over.
    pub(super) goroutine: u64,
    /// The index of that goroutine; [`NONE`](super::goroutines::NONE) for none, and when it has ended.
    pub(super) own: u32,
    /// The tasks that it polls, each inside the poll of the previous one.
    pub(super) polled: Vec<u32>,
    /// The tick of the last record.
    pub(super) tick: u64,
    /// Whether the thread's own goroutine has ended, though the thread may still record.
    pub(super) has_ended: bool,
    /// The last generation with records of it.
    pub(super) seen: u32,
}

impl OrderedLane {
    /// Returns the goroutine to which its records belong: the innermost task that it polls, or its own goroutine.
    #[inline]
    pub(super) fn top(&self) -> u32 {
        self.polled.last().copied().unwrap_or(self.own)
    }
}

/// All lanes. Index 0 is [`SHARED`].
pub(super) type Lanes = DenseTable<OrderedLane>;

impl Lanes {
    /// Returns the lane of a thread, and whether it is new.
    pub(super) fn at(&mut self, goroutine: u64) -> (u32, bool) {
        self.find_or_insert(goroutine, || OrderedLane { goroutine, ..OrderedLane::default() })
    }

    /// Returns all lanes that are not over, except the shared one.
    pub(super) fn open(&self) -> impl Iterator<Item = u32> + '_ {
        self.indices().filter(|&lane| self[lane].goroutine != 0)
    }
}

/// The reading of one lane in one generation.
pub(super) struct Reading<'a> {
    pub(super) lane: u32,
    /// Whether records were lost, and none about the thread's own goroutine was passed on since.
    pub(super) is_after_loss: bool,
    /// Whether the goroutine to which the records belong is not declared: records that can do without it are passed on
    /// without it.
    pub(super) is_loose: bool,
    /// Whether its next record waits no longer: a declaration to which a goroutine jumps.
    pub(super) is_due: bool,
    /// Whether the thread is over once all is read.
    pub(super) is_over: bool,
    /// Whether all is read.
    pub(super) is_done: bool,
    /// The event for which it waits, if any.
    pub(super) awaits: Option<Awaits>,
    /// The record that could not be passed on yet.
    pub(super) pending: Option<(u64, Record<'a>)>,
    records: Records<'a>,
    buffers: std::vec::IntoIter<Buffered<'a>>,
}

/// `Err` has the event for which a record waits, if it cannot be passed on.
pub(super) type Passed = Result<(), Awaits>;

/// The event for which a lane waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
    /// The declaration of this goroutine, to which the records belong, where the record could do without it.
    Declaration(u32),
    /// A declaration of the lane's own goroutine after a loss, in case changes were lost too.
    Loss(u32),
    /// The change of this goroutine with the number in a declaration after a loss, or certainty that it cannot come.
    Jump(u32, u64),
    /// A change of this goroutine, or its declaration, with the number of the record's own change or 0.
    Change(u32, u64),
    /// The turn of a collection, or of a stop of the world.
    Collector(Numbered),
}

/// What follows the last record of a buffer.
pub(super) enum Next {
    Buffer {
        goroutine: u64,
        is_after_loss: bool,
    },
    /// The rest of the buffer is not a valid record.
    Torn,
    End,
}

impl<'a> Reading<'a> {
    pub(super) fn new(lane: u32, records: &LaneRecords<'a>) -> Self {
        Self {
            lane,
            is_after_loss: false,
            is_loose: false,
            is_due: false,
            is_over: records.is_over,
            is_done: false,
            awaits: None,
            pending: None,
            records: Records::new(0, &[]),
            buffers: records.buffers.clone().into_iter(),
        }
    }

    /// Returns the next record of the current buffer.
    #[inline]
    pub(super) fn record(&mut self) -> Option<(u64, Record<'a>)> {
        self.records.next()
    }

    /// Moves to the next buffer after the last record of one.
    pub(super) fn next_buffer(&mut self) -> Next {
        if self.records.remaining() > 0 {
            self.records = Records::new(0, &[]);
            return Next::Torn;
        }
        match self.buffers.next() {
            Some(buffer) => {
                self.records = buffer.records;
                Next::Buffer { goroutine: buffer.goroutine, is_after_loss: buffer.is_after_loss }
            }
            None => Next::End,
        }
    }

    /// Drops the remaining records, except the calls in progress, which depend on no other record. Returns their number.
    pub(super) fn drop_rest(&mut self, open_calls: &mut Vec<OpenCall>) -> u64 {
        let mut dropped = u64::from(self.pending.take().is_some());
        loop {
            while let Some((tick, record)) = self.record() {
                match record {
                    Record::InCall { goroutine, state, begin } => {
                        open_calls.push(OpenCall { tick, goroutine, state, begin });
                    }
                    _ => dropped += 1,
                }
            }
            if matches!(self.next_buffer(), Next::End) {
                return dropped;
            }
        }
    }
}
