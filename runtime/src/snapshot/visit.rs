//! The visit of a goroutine by the coordinator, which reads the stack of one that waits in our hooks; and what such a
//! goroutine does before it runs again.

use super::recording::{Recording, Seen};
use crate::goroutine::{Goroutine, ParkedAt, SNAPSHOTS, Visit};
use crate::hook::{Hook, own_process};
use crate::stack::marker::{self, Marker};
use crate::stack::{SavedFrame, with_room};

/// The memory of the present snapshot.
pub(super) static RECORDING: Recording = Recording::new();

impl Goroutine {
    /// Announces that the current thread, which owns this goroutine, is about to wait: its stack can be read from
    /// `frame` until [`Goroutine::unpark`]. The function of `frame` does not return before. Safe to call in a hook.
    #[inline]
    pub fn park(&self, frame: SavedFrame) {
        if self.parked().is_waiting() {
            // A wait within a wait that the program has announced. A frame must not change while it is read.
            self.unpark();
        }
        self.parked().begin(ParkedAt { frame, end: frame.end_of_stack() });
    }

    /// Announces that the current thread, which owns this goroutine, waits no more. Blocks for a microsecond if its
    /// stack is being read. Safe to call in a hook.
    #[inline]
    pub fn unpark(&self) {
        let ended = self.parked().end();
        // `None` if a wait within this one has cleared the frame, or one of a signal handler has replaced it. Or another
        // thread has: if this thread was mistaken for dead, its slot serves another thread, which has not waited for the
        // reader of this thread's stack.
        let record = || {
            let at = self.parked().ended(ended)?;
            Some(move || {
                // The guard restores `errno`.
                let _hook = Hook::enter();
                // SAFETY: the frame is one of this thread's callers.
                if with_room(|| unsafe { record_parked(self, self.id(), at) }).is_none() {
                    add_marker(self, self.id(), Seen::Waiting, marker::stack_not_captured);
                }
            })
        };
        SNAPSHOTS.before_running(self.progress(), own_process, record);
    }
}

/// # Safety
/// The goroutine waits at `at`, and does not continue before this returns.
unsafe fn record_parked(goroutine: &Goroutine, id: u64, at: ParkedAt) {
    // SAFETY: the caller keeps the goroutine waiting at `at` until this returns.
    RECORDING.add(goroutine, id, Seen::Waiting, |frames| unsafe { at.frame.capture(at.end, frames) });
}

/// Records a goroutine with a single frame that says why its stack is missing.
pub(super) fn add_marker(goroutine: &Goroutine, id: u64, seen: Seen, why: Marker) {
    RECORDING.add(goroutine, id, seen, |frames| {
        frames[0] = marker::frame(why);
        1
    });
}

/// Visits a goroutine for the coordinator, and records it if it waits in our hooks.
pub(super) fn visit(number: u64, goroutine: &'static Goroutine, id: u64) -> Visit {
    goroutine.progress().visit(number, goroutine.parked(), |at| {
        // SAFETY: the goroutine is claimed, and was still parked after the claim: it waits for the claim before it
        // continues.
        unsafe { record_parked(goroutine, id, at) };
    })
}
