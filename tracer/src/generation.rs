//! A generation: all records between two cuts, as the encoders read them.

use rtprof_runtime::stack::Stack;

use crate::record::{Records, StackId, StringId};

/// The records between two cuts, thread by thread. An effect is never in an earlier generation than its cause.
#[derive(Clone, Debug, Default)]
pub struct Generation<'a> {
    /// The tick at which the generation began. No record is older, except for the skew of the cores' counters.
    pub begin: u64,
    /// The tick at which the generation ended.
    pub end: u64,
    /// The tick before which all its records were begun; [`u64::MAX`] if it is the last generation. A thread that was
    /// preempted between the beginning of a record and its look at the clock has a later tick.
    pub closed: u64,
    /// The buffers of every thread that recorded anything.
    pub lanes: Vec<LaneRecords<'a>>,
}

/// The records of one thread in a generation.
#[derive(Clone, Debug)]
pub struct LaneRecords<'a> {
    /// The goroutine of the thread, a number that is never reused; 0 for records from outside threads, which may be in
    /// several lanes.
    pub goroutine: u64,
    /// The kernel's number of the thread; for records from outside threads, the number of the lane.
    pub thread_id: u32,
    /// Whether the thread has ended: later generations have no records of it.
    pub is_over: bool,
    /// The buffers, in the order in which they were written.
    pub buffers: Vec<Buffered<'a>>,
}

/// The records of one buffer.
#[derive(Clone, Debug)]
pub struct Buffered<'a> {
    /// The goroutine that ran on the thread when the buffer was begun; 0 for none.
    pub goroutine: u64,
    /// Whether records of this thread before this buffer were lost.
    pub is_after_loss: bool,
    /// The records.
    pub records: Records<'a>,
}

/// Resolves the ids in records.
pub trait Tables {
    /// Returns a stack; empty if there is none.
    fn stack(&self, id: StackId) -> Stack<'_>;
    /// Returns the text of a string; empty if there is none. The text consists of whole characters, at most
    /// [`MAX_STRING`](crate::record::MAX_STRING) bytes.
    fn string(&self, id: StringId) -> &str;
}
