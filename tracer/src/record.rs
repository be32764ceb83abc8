//! The neutral records: what happened, in a form that knows no trace format.
//!
//! ```text
//!   record := kind (1 byte)  delta  argument*        the kind says how many arguments follow
//!   Log    := … , then the bytes of the message      its last argument is their number
//! ```
//!
//! Numbers are unsigned LEB128. `delta` is in ticks of [`rtprof_profiler::clock`] since the record before, or
//! since the buffer's base. Records of a buffer stand in the order in which its thread made them.
//!
//! # What a goroutine goes through
//!
//! Each change of a goroutine's state has a number, one more than the change before; it is taken with the state
//! itself, in one compare-and-swap, so the numbers are the true order whatever the clocks say. Changes that a
//! goroutine makes of itself stand in its own thread's buffer, in order, and do without; those that others may make,
//! or that follow such a one, carry it.
//!
//! | record | who writes it | the change, and its number |
//! |---|---|---|
//! | `Create` | the creator | to runnable; its number is 0 |
//! | `Start` | the goroutine | runnable → running, `number` |
//! | `Block` | the goroutine | running → waiting, the next |
//! | `Unblock` | who wakes it | waiting → runnable, `number` |
//! | `Wake` | the goroutine | waiting → running: nobody of the program woke it; the next |
//! | `Yield` | the goroutine | running → runnable, the next |
//! | `SyscallBegin`, `SyscallEnd` | the goroutine | running → in a system call, and back; the next |
//! | `End` | the goroutine | running → dead, the next |
//! | `Status` | anybody | none: its state as of the change `number` |
//!
//! Collections, and stops of the world, are numbered from 0 in the order in which they happen; there is one at a time.
//!
//! Every goroutine that lives has one `Status` in every generation, written before any other record of it in that
//! generation (unless it was created in it), by whoever comes first. It says what the state was when the generation began.
//!
//! If changes could not be recorded, because no buffer was free, the goroutine has one more `Status` before the next
//! record of it; that one has [`Status::is_after_loss`] set.

use core::fmt;

use rtprof_profiler::goroutine::{State, WaitReason};

/// A stack of the trace's own table; 0 is none.
pub type StackId = u32;
/// A string of the trace's own table; 0 is the empty one.
pub type StringId = u32;

/// The most bytes of a log's message that are kept, and of every other string: Go's limit since 1.22.
pub const MAX_STRING: usize = 1024;

/// The most bytes of a record without a message: a kind, a delta and eight arguments of at most ten bytes each.
pub const MAX_PLAIN: usize = 1 + 9 * 10;
/// The most bytes of a record.
pub const MAX_RECORD: usize = MAX_PLAIN + MAX_STRING;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $arguments:literal;)*) => {
        /// What kind of record it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $name = $number,)* }

        impl Kind {
            fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }

            /// How many arguments it has.
            pub const fn arguments(self) -> usize {
                match self { $(Self::$name => $arguments,)* }
            }
        }
    };
}

kinds! {
    /// goroutine, number, state, thread, the kernel's number of that, name, stack of its creator, whether changes were
    /// lost
    Status = 1, 8;
    /// goroutine, name, stack
    Create = 2, 3;
    /// goroutine: there is no thread for it after all
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
    /// nothing
    GcDone = 15, 0;
    /// number, reason, stack
    StwStart = 16, 3;
    /// nothing
    StwDone = 17, 0;
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
}

/// A goroutine's state as of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whose.
    pub goroutine: u64,
    /// The number of its last change.
    pub number: u64,
    /// What it was since then.
    pub state: State,
    /// The goroutine of the thread it belongs to: itself, for a thread; 0 when no thread runs it.
    pub thread: u64,
    /// The kernel's number of that thread; 0 when no thread runs it.
    pub thread_id: u32,
    /// Its name.
    pub name: StringId,
    /// The stack that created it, where known.
    pub created_by: StackId,
    /// Changes before this one are in no record.
    pub is_after_loss: bool,
}

/// A record, read. What it is about is told by the table of [`Kind`]; "the goroutine" is the one that runs on the
/// buffer's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the arguments of the kind of the same name")]
pub enum Record<'a> {
    Status(Status),
    Create { goroutine: u64, name: StringId, stack: StackId },
    CreateFailed { goroutine: u64 },
    Start { goroutine: u64, number: u64 },
    Block { reason: WaitReason, stack: StackId },
    Unblock { goroutine: u64, number: u64, stack: StackId },
    Wake,
    Yield { stack: StackId },
    SyscallBegin { stack: StackId },
    SyscallEnd,
    End,
    HeapAlloc { bytes: u64 },
    HeapGoal { bytes: u64 },
    GcStart { number: u64, stack: StackId },
    GcDone,
    StwStart { number: u64, reason: StwReason, stack: StackId },
    StwDone,
    SweepStart { stack: StackId },
    SweepDone { swept: u64, reclaimed: u64 },
    AssistStart { stack: StackId },
    AssistDone,
    TaskCreate { task: u64, parent: u64, name: StringId, stack: StackId },
    TaskEnd { task: u64, stack: StackId },
    RegionBegin { task: u64, name: StringId, stack: StackId },
    RegionEnd { task: u64, name: StringId },
    Log { task: u64, category: StringId, stack: StackId, message: &'a [u8] },
}

/// Why the world was stopped. Go: `stwReason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StwReason {
    /// At the end of a collection's mark phase.
    MarkTermination = 0,
    /// At the end of sweeping, before a collection begins.
    SweepTermination = 1,
}

/// Appends records to a buffer's bytes. Who calls it sees to it that [`MAX_RECORD`] bytes are free, or as many as the
/// record needs at most.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Writes from `at` on.
    #[inline]
    pub fn new(bytes: &'a mut [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Where the next byte goes.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Writes a record without a message, `delta` ticks after the one before.
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub fn put<const N: usize>(&mut self, kind: Kind, delta: u64, arguments: [u64; N]) {
        debug_assert_eq!(N, kind.arguments(), "{kind:?}");
        self.byte(kind as u8);
        self.number(delta);
        for argument in arguments {
            self.number(argument);
        }
    }

    /// Writes a [`Kind::Log`]. `message` has at most [`MAX_STRING`] bytes.
    ///
    /// # Panics
    /// If there is no room.
    pub fn put_log(&mut self, delta: u64, task: u64, category: StringId, stack: StackId, message: &[u8]) {
        let arguments = [task, u64::from(category), u64::from(stack), message.len() as u64];
        self.put(Kind::Log, delta, arguments);
        self.bytes[self.at..][..message.len()].copy_from_slice(message);
        self.at += message.len();
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.bytes[self.at] = byte;
        self.at += 1;
    }

    #[inline]
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }
}

/// The records of one buffer with their ticks.
#[derive(Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    tick: u64,
}

impl<'a> Records<'a> {
    /// Of a buffer whose clock begins at `base`.
    pub fn new(base: u64, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, tick: base }
    }

    /// Bytes that are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    fn number(&mut self) -> Option<u64> {
        // Most numbers are small.
        if let Some((&byte, rest)) = self.rest.split_first()
            && byte < 0x80
        {
            self.rest = rest;
            return Some(byte.into());
        }
        self.long_number()
    }

    #[inline]
    fn long_number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    fn read(&mut self) -> Option<(u64, Record<'a>)> {
        let (&kind, rest) = self.rest.split_first()?;
        self.rest = rest;
        let kind = Kind::from_number(kind)?;
        self.tick = self.tick.wrapping_add(self.number()?);
        let mut all = [0; 8];
        for argument in &mut all[..kind.arguments()] {
            *argument = self.number()?;
        }
        let [a, b, c, d, ..] = all;
        let stack_at = |place: usize| all[place] as StackId;
        let record = match kind {
            Kind::Status => Record::Status(Status {
                goroutine: a,
                number: b,
                state: State::from_number(c as u8)?,
                thread: d,
                thread_id: all[4] as u32,
                name: all[5] as StringId,
                created_by: stack_at(6),
                is_after_loss: all[7] != 0,
            }),
            Kind::Create => Record::Create { goroutine: a, name: b as StringId, stack: stack_at(2) },
            Kind::CreateFailed => Record::CreateFailed { goroutine: a },
            Kind::Start => Record::Start { goroutine: a, number: b },
            Kind::Block => Record::Block { reason: WaitReason::from_number(a as u8)?, stack: stack_at(1) },
            Kind::Unblock => Record::Unblock { goroutine: a, number: b, stack: stack_at(2) },
            Kind::Wake => Record::Wake,
            Kind::Yield => Record::Yield { stack: stack_at(0) },
            Kind::SyscallBegin => Record::SyscallBegin { stack: stack_at(0) },
            Kind::SyscallEnd => Record::SyscallEnd,
            Kind::End => Record::End,
            Kind::HeapAlloc => Record::HeapAlloc { bytes: a },
            Kind::HeapGoal => Record::HeapGoal { bytes: a },
            Kind::GcStart => Record::GcStart { number: a, stack: stack_at(1) },
            Kind::GcDone => Record::GcDone,
            Kind::StwStart => {
                let reason = if b == 0 { StwReason::MarkTermination } else { StwReason::SweepTermination };
                Record::StwStart { number: a, reason, stack: stack_at(2) }
            }
            Kind::StwDone => Record::StwDone,
            Kind::SweepStart => Record::SweepStart { stack: stack_at(0) },
            Kind::SweepDone => Record::SweepDone { swept: a, reclaimed: b },
            Kind::AssistStart => Record::AssistStart { stack: stack_at(0) },
            Kind::AssistDone => Record::AssistDone,
            Kind::TaskCreate => {
                Record::TaskCreate { task: a, parent: b, name: c as StringId, stack: stack_at(3) }
            }
            Kind::TaskEnd => Record::TaskEnd { task: a, stack: stack_at(1) },
            Kind::RegionBegin => Record::RegionBegin { task: a, name: b as StringId, stack: stack_at(2) },
            Kind::RegionEnd => Record::RegionEnd { task: a, name: b as StringId },
            Kind::Log => {
                let (message, rest) = self.rest.split_at_checked(d as usize)?;
                self.rest = rest;
                Record::Log { task: a, category: b as StringId, stack: stack_at(2), message }
            }
        };
        Some((self.tick, record))
    }
}

impl<'a> Iterator for Records<'a> {
    /// The tick, and what happened.
    type Item = (u64, Record<'a>);

    /// `None` at the end, and at bytes that are no record: [`Records::remaining`] tells the two apart.
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let before = self.rest;
        let record = self.read();
        if record.is_none() {
            self.rest = before;
        }
        record
    }
}

impl fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn records_read_as_they_were_written() {
        let mut bytes = [0; 4096];
        let mut writer = Writer::new(&mut bytes, 0);
        let huge = u64::MAX;
        writer.put(Kind::Status, 5, [7, huge, State::Runnable.number().into(), 0, 17, 300, 2, 1]);
        writer.put(Kind::Block, 0, [WaitReason::Sleep as u64, 129]);
        writer.put_log(127, 3, 4, 5, b"a\0b");
        writer.put(Kind::Wake, 128, []);
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
            // What is left is the beginning of a record, or nothing.
            assert!(records.remaining() < MAX_RECORD);
        }
    }

    #[test]
    fn what_is_no_record_ends_the_reading() {
        for bytes in [&[0u8][..], &[200], &[Kind::Wake as u8], &[Kind::Block as u8, 1, 99, 0], &[7, 0x80]] {
            let mut records = Records::new(0, bytes);
            assert_eq!((records.next(), records.remaining()), (None, bytes.len()));
        }
    }
}
