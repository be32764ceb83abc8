//! The records of a garbage collector that the program embeds, which [`crate::collector`] writes.

use super::{RecordKind, StackId};

/// A record of the collector. The fields are the arguments of the [`RecordKind`] of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "see above")]
pub enum CollectorRecord {
    GcStart { number: u64, stack: StackId },
    GcDone { number: u64 },
    StwStart { number: u64, reason: StwReason, stack: StackId },
    StwDone { number: u64 },
    SweepStart { stack: StackId },
    SweepDone { swept: u64, reclaimed: u64 },
    AssistStart { stack: StackId },
    AssistDone,
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

impl CollectorRecord {
    /// Makes a record from its first arguments. Returns `None` for a kind that is not the collector's.
    #[inline]
    pub(super) fn from_arguments(kind: RecordKind, [a, b, c]: [u64; 3]) -> Option<Self> {
        Some(match kind {
            RecordKind::GcStart => Self::GcStart { number: a, stack: b as StackId },
            RecordKind::GcDone => Self::GcDone { number: a },
            RecordKind::StwStart => {
                let reason = if b == 0 { StwReason::MarkTermination } else { StwReason::SweepTermination };
                Self::StwStart { number: a, reason, stack: c as StackId }
            }
            RecordKind::StwDone => Self::StwDone { number: a },
            RecordKind::SweepStart => Self::SweepStart { stack: a as StackId },
            RecordKind::SweepDone => Self::SweepDone { swept: a, reclaimed: b },
            RecordKind::AssistStart => Self::AssistStart { stack: a as StackId },
            RecordKind::AssistDone => Self::AssistDone,
            _ => return None,
        })
    }
}
