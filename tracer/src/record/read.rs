//! Decodes records.

use core::fmt;

use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::labels::LabelSetId;

use super::{CollectorRecord, DeclaredReasons, Record, RecordKind, StackId, Status, StringId};

/// The records of one buffer with their ticks.
#[derive(Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    tick: u64,
}

impl<'a> Records<'a> {
    /// Reads the records of a buffer whose ticks begin at `base`.
    pub fn new(base: u64, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, tick: base }
    }

    /// Returns the number of bytes that are left.
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
        let kind = RecordKind::from_number(kind)?;
        self.tick = self.tick.wrapping_add(self.number()?);
        let mut all = [0; 8];
        for argument in &mut all[..kind.arguments()] {
            *argument = self.number()?;
        }
        let [a, b, c, d, ..] = all;
        let stack_at = |place: usize| all[place] as StackId;
        let record = match kind {
            RecordKind::Status => Record::Status(Status {
                goroutine: a,
                number: b,
                state: State::from_number(c as u8)?,
                thread: d,
                thread_id: all[4] as u32,
                name: all[5] as StringId,
                created_by: stack_at(6),
                is_after_loss: all[7] & 1 != 0,
                is_task: all[7] & 2 != 0,
            }),
            RecordKind::Create | RecordKind::CreateAsync => {
                let is_task = kind == RecordKind::CreateAsync;
                Record::Create { goroutine: a, name: b as StringId, stack: stack_at(2), is_task }
            }
            RecordKind::CreateFailed => Record::CreateFailed { goroutine: a },
            RecordKind::Start => Record::Start { goroutine: a, number: b, labels: LabelSetId::NONE },
            RecordKind::StartLabelled => {
                Record::Start { goroutine: a, number: b, labels: LabelSetId::from_bits(c as u32) }
            }
            RecordKind::Call => {
                Record::Call { state: State::from_number(a as u8)?, stack: stack_at(1), ticks: c }
            }
            RecordKind::InCall => {
                Record::InCall { goroutine: a, state: State::from_number(b as u8)?, begin: c }
            }
            RecordKind::Name => Record::Name { goroutine: a, name: b as StringId },
            RecordKind::CpuSample => {
                Record::CpuSample { goroutine: a, task: b, stack: stack_at(2), count: d }
            }
            RecordKind::Poll => Record::Poll { goroutine: a, number: b, labels: LabelSetId::NONE },
            RecordKind::PollLabelled => {
                Record::Poll { goroutine: a, number: b, labels: LabelSetId::from_bits(c as u32) }
            }
            RecordKind::Await => {
                let reason = WaitReason::from_number(c as u8)?;
                let (declared, stacks) = (DeclaredReasons::from_argument(c), [stack_at(3), 0, 0, 0, 0]);
                Record::Await { goroutine: a, number: b, reason, declared, stacks }
            }
            RecordKind::AwaitSeveral => {
                let reason = WaitReason::from_number(c as u8)?;
                let (declared, stacks) = (DeclaredReasons::from_argument(c), [3, 4, 5, 6, 7].map(stack_at));
                Record::Await { goroutine: a, number: b, reason, declared, stacks }
            }
            RecordKind::Reschedule => Record::Reschedule { goroutine: a, number: b, stack: stack_at(2) },
            RecordKind::Ready => Record::Ready { goroutine: a, number: b },
            RecordKind::Block => {
                Record::Block { reason: WaitReason::from_number(a as u8)?, stack: stack_at(1) }
            }
            RecordKind::Unblock => Record::Unblock { goroutine: a, number: b, stack: stack_at(2) },
            RecordKind::Wake => Record::Wake,
            RecordKind::Yield => Record::Yield { stack: stack_at(0) },
            RecordKind::SyscallBegin => Record::SyscallBegin { stack: stack_at(0) },
            RecordKind::SyscallEnd => Record::SyscallEnd,
            RecordKind::End => Record::End,
            RecordKind::HeapAlloc => Record::HeapAlloc { bytes: a },
            RecordKind::HeapGoal => Record::HeapGoal { bytes: a },
            RecordKind::GcStart
            | RecordKind::GcDone
            | RecordKind::StwStart
            | RecordKind::StwDone
            | RecordKind::SweepStart
            | RecordKind::SweepDone
            | RecordKind::AssistStart
            | RecordKind::AssistDone => Record::Collector(CollectorRecord::from_arguments(kind, [a, b, c])?),
            RecordKind::TaskCreate => {
                Record::TaskCreate { task: a, parent: b, name: c as StringId, stack: stack_at(3) }
            }
            RecordKind::TaskEnd => Record::TaskEnd { task: a, stack: stack_at(1) },
            RecordKind::RegionBegin => {
                Record::RegionBegin { task: a, name: b as StringId, stack: stack_at(2) }
            }
            RecordKind::RegionEnd => Record::RegionEnd { task: a, name: b as StringId },
            RecordKind::Log => {
                let (message, rest) = self.rest.split_at_checked(d as usize)?;
                self.rest = rest;
                Record::Log { task: a, category: b as StringId, stack: stack_at(2), message }
            }
        };
        Some((self.tick, record))
    }
}

impl<'a> Iterator for Records<'a> {
    /// The tick, and the record.
    type Item = (u64, Record<'a>);

    /// Returns `None` at the end, and at bytes that are not a record: [`Records::remaining`] tells the two apart.
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
