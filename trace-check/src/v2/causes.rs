//! Whether events that wait for others are later than these.
//!
//! Go's reader tries the oldest event; if that waits, it sorts the threads by the times of their events alone, and tries
//! all but the first. Of two events of one tick either may then be the first. If it is the one for which the other waits,
//! and nothing else can go on, Go refuses the trace.

use std::collections::HashMap;

use super::ordering::At;
use super::specs::Type as T;

/// What an event changes, and another one waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Changed {
    Goroutine(u64),
    Proc(u64),
    Collector,
}

/// The tick and the thread of the last change of each in a generation. Readers take one generation after the other.
#[derive(Default)]
pub(super) struct Causes(HashMap<Changed, (u64, u64)>);

impl Causes {
    /// Notes an event. Returns whether it has waited for one on another thread that is not earlier.
    pub(super) fn is_tied(&mut self, at: At, event: T, args: [u64; 4]) -> bool {
        let (changed, waits) = match event {
            T::GoStart | T::GoUnblock => (Some(Changed::Goroutine(args[0])), true),
            T::GoCreate | T::GoStatus | T::GoStatusStack => (Some(Changed::Goroutine(args[0])), false),
            T::GoStop | T::GoBlock | T::GoDestroy | T::GoSyscallEndBlocked => {
                (at.goroutine.map(Changed::Goroutine), false)
            }
            T::ProcStart => (Some(Changed::Proc(args[0])), true),
            T::ProcStatus => (Some(Changed::Proc(args[0])), false),
            T::ProcStop => (at.proc.map(Changed::Proc), false),
            T::GcActive | T::GcBegin | T::GcEnd => (Some(Changed::Collector), true),
            _ => return false,
        };
        let Some(changed) = changed else { return false };
        let cause = self.0.insert(changed, (at.tick, at.thread));
        waits && cause.is_some_and(|(tick, thread)| thread != at.thread && tick >= at.tick)
    }
}
