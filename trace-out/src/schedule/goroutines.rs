//! The goroutines of a trace, in the states that its readers track.

use rtprof_runtime::goroutine::state::State;
use rtprof_tracer::record::{StackId, StringId};

use crate::dense::DenseTable;

use super::event::Changed;
use super::id_set::IdSet;

pub(super) use crate::order::NONE;

/// First id for goroutines that were taken for dead, but are not: no id can be used twice. Viewers store ids as numbers
/// of 53 bits.
const FRESH: u64 = 1 << 40;

/// The state of a goroutine, as seen by a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Unknown,
    Runnable,
    Running,
    Waiting,
    Syscall,
}

/// The data of a goroutine at its creation.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    pub(super) goroutine: u64,
    pub(super) name: StringId,
    pub(super) created_by: StackId,
    pub(super) is_task: bool,
}

/// A call that is in progress at the end of a part of the trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenCall {
    pub(super) lane: u32,
    pub(super) index: u32,
    pub(super) state: State,
    pub(super) begin: u64,
}

/// A goroutine, while it lives.
#[derive(Debug, Default)]
pub(super) struct EncodedGoroutine {
    pub(super) id: u64,
    /// The sequence number of its next start or wake-up.
    pub(super) sequence: u64,
    pub(super) phase: Phase,
    /// The P of its last transition. While it runs, the P that it runs on.
    pub(super) proc: u32,
    /// The tick of that transition.
    pub(super) tick: u64,
    /// The tick of its creation.
    pub(super) created: u64,
    pub(super) name: StringId,
    /// The id of the stack that names it.
    pub(super) start: u64,
    /// Task and name of the open regions, the innermost last.
    pub(super) regions: Vec<(u64, StringId)>,
    pub(super) is_assisting: bool,
    /// Whether it waits only because its thread, or the task, polls another one.
    pub(super) is_suspended: bool,
    /// The lane of its thread, while it is shown in a call that had no record yet when a part ended.
    pub(super) open_call_on: Option<u32>,
    /// The tick at which its last recorded call ended, in the records' units.
    pub(super) call_end: u64,
    /// Whether its last start showed labels.
    pub(super) is_labelled: bool,
}

impl EncodedGoroutine {
    /// Returns the next start or wake-up, which happens on P `proc`.
    #[inline]
    pub(super) fn next_change(&mut self, index: u32, proc: u32) -> Changed {
        let sequence = self.sequence;
        self.sequence += 1;
        Changed { index, goroutine: self.id, sequence, is_local: self.proc == proc }
    }
}

/// The goroutines, at the indices that [`crate::order`] assigns.
pub(super) type Goroutines = DenseTable<EncodedGoroutine>;

/// The ids that the trace has used.
#[derive(Default)]
pub(super) struct UsedIds {
    used: IdSet,
    /// The number of goroutines with an id beyond [`FRESH`].
    fresh: u64,
}

impl UsedIds {
    /// Returns the id under which the trace shows a goroutine: its own, or a fresh one if that was used before.
    fn use_or_replace(&mut self, id: u64) -> u64 {
        if self.used.insert(id) {
            return id;
        }
        self.fresh += 1;
        self.used.insert(FRESH + self.fresh);
        FRESH + self.fresh
    }
}

impl Goroutines {
    /// Begins a goroutine at an index, which may have been used before.
    pub(super) fn begin(
        &mut self,
        index: u32,
        goroutine: u64,
        name: StringId,
        ids: &mut UsedIds,
    ) -> &mut EncodedGoroutine {
        let id = ids.use_or_replace(goroutine);
        let begun = self.entry(index);
        // The list of regions is reused to keep its memory.
        begun.regions.clear();
        let regions = std::mem::take(&mut begun.regions);
        *begun = EncodedGoroutine { id, name, regions, ..EncodedGoroutine::default() };
        begun
    }

    /// Returns its name, if the trace knows the goroutine.
    #[inline]
    pub(super) fn name(&self, index: u32) -> Option<StringId> {
        self.known(index).map(|goroutine| goroutine.name)
    }

    /// Returns the P on which it runs, if it does.
    #[inline]
    pub(super) fn running(&self, index: u32) -> Option<u32> {
        self.known(index)
            .filter(|goroutine| goroutine.phase == Phase::Running)
            .map(|goroutine| goroutine.proc)
    }

    /// Whether it waits, or is in a system call.
    #[inline]
    pub(super) fn waits(&self, index: u32) -> bool {
        let phase = self.known(index).map(|goroutine| goroutine.phase);
        matches!(phase, Some(Phase::Waiting | Phase::Syscall))
    }

    /// Returns a goroutine that the trace knows. After a loss a record may concern an unknown one.
    #[inline]
    fn known(&self, index: u32) -> Option<&EncodedGoroutine> {
        self.get(index).filter(|goroutine| index != NONE && goroutine.phase != Phase::Unknown)
    }
}
