//! The goroutines of a trace as its readers follow them.

use rtprof_runtime::wait_reason::WaitReason;
use rtprof_tracer::record::StringId;

use super::event::EventType;
use super::id_set::IdSet;

pub(super) use crate::order::NONE;

/// Ids of goroutines that were taken for dead, and are not: no id can be used twice. Viewers keep ids as numbers of
/// 53 bits.
const FRESH: u64 = 1 << 40;

/// What a reader takes a goroutine for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Unknown,
    Runnable,
    Running,
    Waiting,
    Syscall,
}

/// One of them, while it lives.
#[derive(Debug, Default)]
pub(super) struct EncodedGoroutine {
    pub(super) id: u64,
    /// The sequence number that its next start or wake-up has.
    pub(super) sequence: u64,
    pub(super) phase: Phase,
    /// The P of its last transition. While it runs, the P that it runs on.
    pub(super) proc: u32,
    /// When that was.
    pub(super) tick: u64,
    /// When it was created.
    pub(super) created: u64,
    pub(super) name: StringId,
    /// Task and name of the regions that it is in, the innermost last.
    pub(super) regions: Vec<(u64, u64)>,
    pub(super) is_assisting: bool,
    /// It waits only because its thread, or the task, polls another one.
    pub(super) is_suspended: bool,
    /// Whether its last start showed labels.
    pub(super) is_labelled: bool,
}

impl EncodedGoroutine {
    /// Takes the next sequence number.
    #[inline]
    pub(super) fn next_sequence(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        sequence
    }
}

/// The goroutines by their places, and the ids that were ever used.
pub(super) struct Goroutines {
    all: Vec<EncodedGoroutine>,
    used: IdSet,
    fresh: u64,
}

impl Goroutines {
    pub(super) fn new() -> Self {
        Self { all: vec![EncodedGoroutine::default()], used: IdSet::default(), fresh: FRESH }
    }

    /// A goroutine begins in a place that was never used, or given away.
    pub(super) fn begin(&mut self, place: u32, goroutine: u64, name: StringId) -> &mut EncodedGoroutine {
        let id = if self.used.insert(goroutine) {
            goroutine
        } else {
            self.fresh += 1;
            self.used.insert(self.fresh);
            self.fresh
        };
        let place = place as usize;
        if place >= self.all.len() {
            self.all.resize_with(place + 1, EncodedGoroutine::default);
        }
        let begun = &mut self.all[place];
        // The list of regions keeps its memory.
        begun.regions.clear();
        let regions = std::mem::take(&mut begun.regions);
        *begun = EncodedGoroutine { id, name, regions, ..EncodedGoroutine::default() };
        begun
    }

    /// What it is called, if the trace knows it.
    #[inline]
    pub(super) fn name(&self, place: u32) -> Option<StringId> {
        self.known(place).map(|goroutine| goroutine.name)
    }

    /// The P that it runs on, if it does.
    #[inline]
    pub(super) fn running(&self, place: u32) -> Option<u32> {
        self.known(place)
            .filter(|goroutine| goroutine.phase == Phase::Running)
            .map(|goroutine| goroutine.proc)
    }

    /// Whether it waits, or is in a system call.
    #[inline]
    pub(super) fn waits(&self, place: u32) -> bool {
        let phase = self.known(place).map(|goroutine| goroutine.phase);
        matches!(phase, Some(Phase::Waiting | Phase::Syscall))
    }

    /// One that the trace knows.
    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut EncodedGoroutine> {
        self.all.get_mut(place as usize).filter(|goroutine| goroutine.phase != Phase::Unknown)
    }

    /// After a loss a record may be about one that the trace has not heard of.
    #[inline]
    fn known(&self, place: u32) -> Option<&EncodedGoroutine> {
        self.all.get(place as usize).filter(|goroutine| place != NONE && goroutine.phase != Phase::Unknown)
    }

    pub(super) fn places(&self) -> impl Iterator<Item = u32> + use<> {
        1..self.all.len() as u32
    }
}

impl std::ops::Index<u32> for Goroutines {
    type Output = EncodedGoroutine;

    #[inline]
    fn index(&self, place: u32) -> &EncodedGoroutine {
        &self.all[place as usize]
    }
}

impl std::ops::IndexMut<u32> for Goroutines {
    #[inline]
    fn index_mut(&mut self, place: u32) -> &mut EncodedGoroutine {
        &mut self.all[place as usize]
    }
}

/// The event of a wait: it says which profile of `go tool trace` the wait enters. Go's runtime has its own events for
/// what it has itself; a thread's other waits are those for another thread.
pub(super) fn block_event(reason: WaitReason) -> EventType {
    match reason {
        WaitReason::CondWait => EventType::GoBlockCond,
        WaitReason::ChanSend => EventType::GoBlockSend,
        WaitReason::ChanReceive => EventType::GoBlockRecv,
        WaitReason::Select => EventType::GoBlockSelect,
        WaitReason::Net => EventType::GoBlockNet,
        WaitReason::Sleep => EventType::GoSleep,
        WaitReason::MutexLock
        | WaitReason::RwLockRead
        | WaitReason::RwLockWrite
        | WaitReason::Once
        | WaitReason::Barrier
        | WaitReason::Semaphore
        | WaitReason::Join
        | WaitReason::Park
        | WaitReason::Await
        | WaitReason::Sync => EventType::GoBlockSync,
    }
}
