//! Why goroutines stop, in words.
//!
//! The profiles of `go tool trace` select waits by them: see [`WaitReason::in_trace`].

use std::borrow::Cow;

use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_tracer::record::StwReason;

use crate::awaited::Library;

/// Why a goroutine stops, or stops the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Wait(WaitReason),
    /// A task awaits.
    Await(WaitReason, Library),
    /// It waited already when the trace began.
    BeforeTheTrace,
    /// Its thread, or the task itself, polls another task.
    Polling,
    Yield,
    Stop(StwReason),
}

/// The number of waits, and one more, because these count from 1.
const WAITS: usize = WaitReason::ALL.len() + 1;

/// The number of reasons, and one more.
pub(super) const REASONS: usize = WAITS * (1 + Library::ALL.len()) + 5;

impl Reason {
    /// Returns a number below [`REASONS`].
    pub(super) fn number(self) -> usize {
        let others = WAITS * (1 + Library::ALL.len());
        match self {
            Self::Wait(reason) => reason as usize,
            Self::Await(reason, library) => WAITS * (1 + library as usize) + reason as usize,
            Self::BeforeTheTrace => others,
            Self::Polling => others + 1,
            Self::Yield => others + 2,
            Self::Stop(StwReason::MarkTermination) => others + 3,
            Self::Stop(StwReason::SweepTermination) => others + 4,
        }
    }

    pub(crate) fn text(self) -> Cow<'static, str> {
        let text = match self {
            // For the profile of the network, which wants this word alone.
            Self::Await(WaitReason::Net, _) => "network",
            Self::Await(reason, Library::Unknown) => return Self::Wait(reason).text(),
            Self::Await(reason, library) => {
                let wait = match reason {
                    WaitReason::CondWait => "sync, condition",
                    WaitReason::Await => "sync, await",
                    reason => return format!("{}: {}", library.name(), Self::Wait(reason).text()).into(),
                };
                return format!("{}: {wait}", library.name()).into();
            }
            Self::Wait(reason) => reason.in_trace(),
            Self::BeforeTheTrace => "waits since before the trace",
            Self::Polling => "polls a task",
            Self::Yield => "yield",
            // Go's words.
            Self::Stop(StwReason::MarkTermination) => "GC mark termination",
            Self::Stop(StwReason::SweepTermination) => "GC sweep termination",
        };
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_number_and_its_words() {
        let stops = [StwReason::MarkTermination, StwReason::SweepTermination].map(Reason::Stop);
        let others = [Reason::BeforeTheTrace, Reason::Polling, Reason::Yield];
        let waits = WaitReason::ALL.map(Reason::Wait).into_iter().chain(others).chain(stops);
        let known = Library::ALL.into_iter().skip(1);
        // The network's is the same for all.
        let of = |library| WaitReason::ALL.map(move |reason| Reason::Await(reason, library));
        let awaits = known.flat_map(of).filter(|it| !matches!(it, Reason::Await(WaitReason::Net, _)));
        let all = waits.chain(awaits);
        let mut numbers: Vec<_> = all.clone().map(Reason::number).collect();
        let mut texts: Vec<_> = all.map(Reason::text).collect();
        numbers.sort_unstable();
        assert!(numbers.is_sorted_by(|a, b| a < b) && *numbers.last().unwrap() < REASONS, "{numbers:?}");
        texts.sort_unstable();
        assert!(texts.is_sorted_by(|a, b| a < b), "{texts:?}");
    }
}
