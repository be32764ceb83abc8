//! The lanes of a trace, each one thread's life, and how far each was read.

use rtprof_tracer::generation::{Buffered, LaneRecords};
use rtprof_tracer::record::{Record, Records};

use crate::dense::DenseTable;

/// The lane of what was recorded outside threads.
pub(crate) const SHARED: u32 = 0;

/// What is known of a lane from one generation to the next.
#[derive(Clone, Default)]
pub(super) struct OrderedLane {
    /// The goroutine of the thread; 0 for none, or for a lane that is over.
    pub(super) thread: u64,
    /// The place of that goroutine; [`NONE`] for none, and when it has ended.
    pub(super) own: u32,
    /// The tasks that it polls, each inside the poll of the one before.
    pub(super) polled: Vec<u32>,
    /// The tick of the last record.
    pub(super) tick: u64,
    /// The thread's own goroutine has ended, though the thread may still record.
    pub(super) has_ended: bool,
    /// The generation that had records of it last.
    pub(super) seen: u32,
}

impl OrderedLane {
    /// What its records are about: the innermost task that it polls, or its own goroutine.
    #[inline]
    pub(super) fn top(&self) -> u32 {
        self.polled.last().copied().unwrap_or(self.own)
    }
}

/// All lanes. Index 0 is [`SHARED`].
pub(super) type Lanes = DenseTable<OrderedLane>;

impl Lanes {
    /// The lane of a thread, and whether it is a new one.
    pub(super) fn at(&mut self, thread: u64) -> (u32, bool) {
        self.find_or_insert(thread, || OrderedLane { thread, ..OrderedLane::default() })
    }

    /// All that are not over, without the shared one.
    pub(super) fn open(&self) -> impl Iterator<Item = u32> + '_ {
        self.indices().filter(|&lane| self[lane].thread != 0)
    }
}

/// A lane of one generation, while it is read.
pub(super) struct Reading<'a> {
    pub(super) lane: u32,
    /// Records were lost, and none about the thread's own goroutine was passed on since.
    pub(super) is_after_loss: bool,
    /// Nothing declares the goroutine that they are about: records that can do without it are passed on without it.
    pub(super) is_loose: bool,
    /// Its next record waits no longer: a declaration that a goroutine jumps to.
    pub(super) is_due: bool,
    /// The thread is over, once all is read.
    pub(super) is_over: bool,
    /// All is read.
    pub(super) is_done: bool,
    /// What it waits for, while it does.
    pub(super) awaits: Option<Awaits>,
    /// The record that could not be passed on yet.
    pub(super) pending: Option<(u64, Record<'a>)>,
    records: Records<'a>,
    buffers: std::vec::IntoIter<Buffered<'a>>,
}

/// What a lane waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
    /// The declaration of this goroutine, which its records are about, for one that could do without.
    Declaration(u32),
    /// A declaration of its own goroutine after a loss, if changes were lost with the rest.
    Loss(u32),
    /// That this goroutine comes to the change that a declaration after a loss tells of, or cannot.
    Jump(u32, u64),
    /// A change of this goroutine, or its declaration, with the number of the record's own change or 0.
    Change(u32, u64),
    Collection,
    Stop,
}

/// What comes when the records of a buffer are read.
pub(super) enum Next {
    Buffer {
        goroutine: u64,
        is_after_loss: bool,
    },
    /// The rest of the buffer is no record.
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

    /// The next record of the buffer at hand.
    #[inline]
    pub(super) fn record(&mut self) -> Option<(u64, Record<'a>)> {
        self.records.next()
    }

    /// After the last record of a buffer.
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

    /// Gives the rest up; says how many records that were.
    pub(super) fn drop_rest(&mut self) -> u64 {
        let mut dropped = u64::from(self.pending.take().is_some());
        loop {
            while self.record().is_some() {
                dropped += 1;
            }
            if matches!(self.next_buffer(), Next::End) {
                return dropped;
            }
        }
    }
}
