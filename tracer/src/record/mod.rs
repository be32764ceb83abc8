//! The neutral records: events, in a form that knows no trace format.
//!
//! ```text
//!   record := kind (1 byte)  delta  argument*        the kind says how many arguments follow
//!   Log    := … , then the bytes of the message      its last argument is their number
//! ```
//!
//! Numbers are unsigned LEB128. `delta` is in ticks of [`rtprof_runtime::clock`] since the previous record, or since
//! the buffer's base. Records of a buffer stand in the order in which its thread made them.
//!
//! # Changes of a goroutine
//!
//! Each change of a goroutine's state has a number, one more than the previous change. It is taken together with the
//! state, in one compare-and-swap, so the numbers are the true order whatever the clocks say. Changes that a goroutine
//! makes itself stand in order in its own thread's buffer, and carry no number. Changes that other threads may make,
//! and changes that follow these, carry it.
//!
//! | record | written by | the change, and its number |
//! |---|---|---|
//! | `Create` | the creator | to runnable; its number is 0 |
//! | `Start`, `StartLabelled` | the goroutine | runnable → running, `number` |
//! | `Block` | the goroutine | running → waiting, the next |
//! | `Unblock` | the waker | waiting → runnable, `number` |
//! | `Wake` | the goroutine | waiting → running, with no recorded waker; the next |
//! | `Yield` | the goroutine | running → runnable, the next |
//! | `SyscallBegin`, `SyscallEnd` | the goroutine | running → in a system call, and back; the next |
//! | `End` | the goroutine | running → dead, the next |
//! | `Status` | any thread | none: its state as of the change `number` |
//! | `Name` | the goroutine, which runs | none |
//! | `Call` | the goroutine, which runs | none: for this many ticks until now it was in this state, in a call |
//! | `InCall` | the thread that ends a generation | none: in this state since `begin`, unless more of its records follow |
//!
//! A `CpuSample` belongs to a running goroutine, wherever it is recorded; or to none, 0, in a thread that has none.
//!
//! # Async tasks
//!
//! A task is a goroutine without a thread. The thread that polls it records its polls. During a poll the thread's
//! events belong to the task. Only changes of the thread's state (`Block` and so on, and the `Unblock` by which another
//! thread ends its wait) belong to the thread's goroutine.
//!
//! | record | written by | the change of the task, and its number |
//! |---|---|---|
//! | `CreateAsync` | the creator | to runnable; its number is 0 |
//! | `Poll`, `PollLabelled` | the thread that polls it | runnable or waiting → running, `number` |
//! | `Await`, `AwaitSeveral` | that thread | running → waiting, `number` |
//! | `Reschedule` | that thread | running → runnable, `number`: it was woken during the poll |
//! | `Ready` | that thread | running → dead, `number` |
//! | `Unblock` | the waker | waiting → runnable, `number` |
//!
//! Polls on a thread are nested: a task may poll others. No `Status` of a task names a thread.
//!
//! Collections, and stops of the world, are numbered from 0 in the order in which they happen; one is recorded at a
//! time.
//!
//! Every live goroutine has one `Status` in every generation, written before any other record of it in that generation
//! (unless it was created in it), by the first thread that records it. The `Status` states the goroutine's state at the
//! beginning of the generation.
//!
//! If changes could not be recorded, because no buffer was free, the goroutine has one more `Status` before its next
//! record, with [`Status::is_after_loss`] set.

mod collector;
mod declared_reasons;
mod read;
mod write;

pub use collector::{CollectorRecord, StwReason};
pub use declared_reasons::DeclaredReasons;
pub use read::Records;
pub use write::Writer;

use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::labels::LabelSetId;
pub use rtprof_runtime::task::MAX_BRANCHES;

/// The id of a stack in the trace's own table; 0 is none.
pub type StackId = u32;
/// The id of a string in the trace's own table; 0 is the empty one.
pub type StringId = u32;

/// The stacks at which a poll has suspended, in the order in which it reached them, then 0.
pub type Branches = [StackId; MAX_BRANCHES];

/// Stands for a goroutine's name that is not known yet. A `Name` record gives it later, if at all.
pub const NAMED_LATER: StringId = StringId::MAX - 2;

/// The most bytes that are kept of a log's message, and of every other string: Go's limit since 1.22.
pub const MAX_STRING: usize = 1024;

/// The most bytes of a record without a message: a kind, a delta and eight arguments of at most ten bytes each.
pub const MAX_PLAIN: usize = 1 + 9 * 10;
/// The most bytes of a record.
pub const MAX_RECORD: usize = MAX_PLAIN + MAX_STRING;

/// Cuts a text to [`MAX_STRING`] bytes or fewer, at the end of a character.
pub fn cut(text: &str) -> &str {
    if text.len() <= MAX_STRING {
        return text;
    }
    let mut end = MAX_STRING;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $arguments:literal;)*) => {
        /// The kind of a record. Each variant's text lists the arguments.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum RecordKind { $($(#[$doc])* $name = $number,)* }

        impl RecordKind {
            pub(crate) fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }

            /// Returns the number of arguments.
            pub const fn arguments(self) -> usize {
                match self { $(Self::$name => $arguments,)* }
            }
        }
    };
}

kinds! {
    /// goroutine, number, state, the thread that runs it, the kernel's number of the goroutine's own thread, name,
    /// stack of its creator, and a sum: 1 if changes were lost, 2 for a task
    Status = 1, 8;
    /// a thread's goroutine, its name as in `Status`, stack
    Create = 2, 3;
    /// goroutine: its thread could not be started
    CreateFailed = 3, 1;
    /// goroutine, number
    Start = 4, 2;
    /// reason, stack
    Block = 5, 2;
    /// goroutine, number, stack
    Unblock = 6, 3;
    /// nothing
    Wake = 7, 0;
    /// stack
    Yield = 8, 1;
    /// stack
    SyscallBegin = 9, 1;
    /// nothing
    SyscallEnd = 10, 0;
    /// nothing
    End = 11, 0;
    /// bytes
    HeapAlloc = 12, 1;
    /// bytes
    HeapGoal = 13, 1;
    /// number, stack
    GcStart = 14, 2;
    /// number
    GcDone = 15, 1;
    /// number, reason, stack
    StwStart = 16, 3;
    /// number
    StwDone = 17, 1;
    /// stack
    SweepStart = 18, 1;
    /// bytes swept, bytes reclaimed
    SweepDone = 19, 2;
    /// stack
    AssistStart = 20, 1;
    /// nothing
    AssistDone = 21, 0;
    /// task, parent, name, stack
    TaskCreate = 22, 4;
    /// task, stack
    TaskEnd = 23, 2;
    /// task, name, stack
    RegionBegin = 24, 3;
    /// task, name
    RegionEnd = 25, 2;
    /// task, category, stack, length of the message
    Log = 26, 4;
    /// goroutine, number, the labels of its thread
    StartLabelled = 27, 3;
    /// goroutine of the thread or 0, the task that it polls or 0, stack, number of samples
    CpuSample = 28, 4;
    /// goroutine, its name
    Name = 29, 2;
    /// state, stack, ticks
    Call = 30, 3;
    /// goroutine, state, the tick at which the call began
    InCall = 31, 3;
    /// task, number
    Poll = 32, 2;
    /// task, number, its labels
    PollLabelled = 33, 3;
    /// task, number, reason and the announced reason of the stack ([`DeclaredReasons`]), stack
    Await = 34, 4;
    /// task, number, stack
    Reschedule = 35, 3;
    /// task, number
    Ready = 36, 2;
    /// task, number, reason and the announced reasons, stacks in the order in which the poll reached them, or 0
    AwaitSeveral = 37, 8;
    /// task, its name as in `Status`, stack
    CreateAsync = 38, 3;
}

/// A goroutine's state after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The goroutine.
    pub goroutine: u64,
    /// The number of its last change.
    pub number: u64,
    /// Its state since then.
    pub state: State,
    /// The goroutine of the thread that runs it: itself, for a thread; 0 when no thread runs it.
    pub thread: u64,
    /// The kernel's number of the thread whose goroutine it is; 0 for a task, and for a thread that has not begun.
    pub thread_id: u32,
    /// The goroutine's [`title`](rtprof_runtime::goroutine::start::title), or [`NAMED_LATER`].
    pub name: StringId,
    /// The stack that created it, where known.
    pub created_by: StackId,
    /// Whether changes before this record were lost.
    pub is_after_loss: bool,
    /// Whether it is a task.
    pub is_task: bool,
}

/// A decoded record. The table of [`RecordKind`] describes each kind; "the goroutine" is the one that runs on the
/// buffer's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the arguments of the kind of the same name")]
pub enum Record<'a> {
    Status(Status),
    Create { goroutine: u64, name: StringId, stack: StackId, is_task: bool },
    CreateFailed { goroutine: u64 },
    Start { goroutine: u64, number: u64, labels: LabelSetId },
    Block { reason: WaitReason, stack: StackId },
    Unblock { goroutine: u64, number: u64, stack: StackId },
    Wake,
    Yield { stack: StackId },
    SyscallBegin { stack: StackId },
    SyscallEnd,
    End,
    HeapAlloc { bytes: u64 },
    HeapGoal { bytes: u64 },
    Collector(CollectorRecord),
    TaskCreate { task: u64, parent: u64, name: StringId, stack: StackId },
    TaskEnd { task: u64, stack: StackId },
    RegionBegin { task: u64, name: StringId, stack: StackId },
    RegionEnd { task: u64, name: StringId },
    Log { task: u64, category: StringId, stack: StackId, message: &'a [u8] },
    CpuSample { goroutine: u64, task: u64, stack: StackId, count: u64 },
    Name { goroutine: u64, name: StringId },
    Call { state: State, stack: StackId, ticks: u64 },
    InCall { goroutine: u64, state: State, begin: u64 },
    Poll { goroutine: u64, number: u64, labels: LabelSetId },
    Await { goroutine: u64, number: u64, reason: WaitReason, declared: DeclaredReasons, stacks: Branches },
    Reschedule { goroutine: u64, number: u64, stack: StackId },
    Ready { goroutine: u64, number: u64 },
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn records_read_as_they_were_written() {
        let mut bytes = [0; 4096];
        let mut writer = Writer::new(&mut bytes, 0);
        let huge = u64::MAX;
        writer.put(RecordKind::Status, 5, [7, huge, State::Runnable.number().into(), 0, 17, 300, 2, 3]);
        writer.put(RecordKind::Block, 0, [WaitReason::Sleep as u64, 129]);
        writer.put_log(127, 3, 4, 5, b"a\0b");
        writer.put(RecordKind::Wake, 128, []);
        let len = writer.position();
        let records = Records::new(100, &bytes[..len]);
        let status = Status {
            goroutine: 7,
            number: huge,
            state: State::Runnable,
            thread: 0,
            thread_id: 17,
            name: 300,
            created_by: 2,
            is_after_loss: true,
            is_task: true,
        };
        let expected = [
            (105, Record::Status(status)),
            (105, Record::Block { reason: WaitReason::Sleep, stack: 129 }),
            (232, Record::Log { task: 3, category: 4, stack: 5, message: b"a\0b" }),
            (360, Record::Wake),
        ];
        assert_eq!(records.collect::<Vec<_>>(), expected);
        for cut in 0..len {
            let mut records = Records::new(100, &bytes[..cut]);
            let whole = records.by_ref().count();
            assert!(whole < expected.len() && expected.len() > whole);
            // The rest is empty, or the beginning of a record.
            assert!(records.remaining() < MAX_RECORD);
        }
    }

    #[test]
    fn what_is_no_record_ends_the_reading() {
        for bytes in
            [&[0u8][..], &[200], &[RecordKind::Wake as u8], &[RecordKind::Block as u8, 1, 99, 0], &[7, 0x80]]
        {
            let mut records = Records::new(0, bytes);
            assert_eq!((records.next(), records.remaining()), (None, bytes.len()));
        }
    }
}
