//! A generation: all that was recorded between two cuts, as the encoders read it.

use rtprof_runtime::stack::Stack;

use crate::record::{Records, StackId, StringId};

/// What happened between two cuts, thread by thread. An effect is never in an earlier generation than its cause.
#[derive(Clone, Debug, Default)]
pub struct Generation<'a> {
    /// The tick at which it began: no record is older, but for the skew of the cores' counters.
    pub begin: u64,
    /// The tick at which it ended.
    pub end: u64,
    /// The buffers of every thread that recorded anything.
    pub lanes: Vec<LaneRecords<'a>>,
}

/// What a thread has recorded in a generation.
#[derive(Clone, Debug)]
pub struct LaneRecords<'a> {
    /// The goroutine of the thread, which never names another one; 0 for what was recorded outside threads, which may be in
    /// several lanes.
    pub thread: u64,
    /// The kernel's number of the thread; outside threads, of the lane.
    pub thread_id: u32,
    /// The thread has ended: nothing of it follows in later generations.
    pub is_over: bool,
    /// In the order in which they were written.
    pub buffers: Vec<Buffered<'a>>,
}

/// The records of one buffer.
#[derive(Clone, Debug)]
pub struct Buffered<'a> {
    /// The goroutine that ran on the thread when the buffer was begun; 0 for none.
    pub goroutine: u64,
    /// Records of this thread before this buffer were lost.
    pub is_after_loss: bool,
    /// What happened.
    pub records: Records<'a>,
}

/// What the ids in records stand for.
pub trait Tables {
    /// A stack; empty if there is none.
    fn stack(&self, id: StackId) -> Stack<'_>;
    /// The text of a string; empty if there is none. Always characters as a whole, at most
    /// [`MAX_STRING`](crate::record::MAX_STRING) bytes.
    fn string(&self, id: StringId) -> &str;
}
