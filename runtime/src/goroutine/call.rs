//! A call that may take long or not, which a goroutine is in while its state says that it runs.
//!
//! Problem: whether a call blocks is known when it is over. A change of state at its beginning and at its end would cost more than
//! many calls take. Scheme: the goroutine notes here that it is in a call, and records the call when it is over if it was long. Only
//! who ends a trace in between reads the note. A signal handler may make calls while its thread is in one: it leaves the note as it
//! has found it.

use crate::primitive::{AtomicU64, Ordering};
use crate::state::State;

/// What a goroutine does in a call, and since when.
#[derive(Default)]
pub struct Call {
    /// The number of the state in the low 8 bits, above them the tick, without its highest 8 bits. 0 is none.
    word: AtomicU64,
}

const STATE_BITS: u32 = 8;

/// The call in which another one is made, if any.
#[derive(Clone, Copy, Debug)]
#[must_use = "the note stays until the call is left"]
pub struct Outer(u64);

impl Outer {
    /// Whether there is one.
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl Call {
    /// The goroutine is in a call, since this tick, and does what `state` says if the call is long. By itself; what is returned goes
    /// to [`Call::leave`]. For hooks.
    #[inline]
    pub fn enter(&self, state: State, since: u64) -> Outer {
        let outer = Outer(self.word.load(Ordering::Relaxed));
        self.word.store(since << STATE_BITS | u64::from(state.number()), Ordering::Relaxed);
        outer
    }

    /// The call is over. By itself. For hooks.
    #[inline]
    pub fn leave(&self, outer: Outer) {
        self.word.store(outer.0, Ordering::Relaxed);
    }

    /// Another goroutine begins in the slot.
    pub(super) fn reset(&self) {
        self.word.store(0, Ordering::Relaxed);
    }

    /// What the goroutine does in a call that it is in, and for how many ticks it has been at the tick `now`.
    pub fn get(&self, now: u64) -> Option<(State, u64)> {
        let word = self.word.load(Ordering::Relaxed);
        if word == 0 {
            return None;
        }
        let state = State::from_number(word as u8)?;
        // The bits that are lost are lost of both. One that began after `now` has not gone on at all.
        let ticks = (now << STATE_BITS).wrapping_sub(word >> STATE_BITS << STATE_BITS) as i64 >> STATE_BITS;
        Some((state, u64::try_from(ticks).unwrap_or(0)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wait_reason::WaitReason;

    #[test]
    fn a_call_has_its_time() {
        let call = Call::default();
        assert_eq!(call.get(7), None);
        let net = State::Waiting(WaitReason::Net);
        for since in [0, 7, 1 << 56, (1 << 56) - 1, u64::MAX - 5] {
            for state in [State::Syscall, net] {
                let outer = call.enter(state, since);
                assert_eq!(call.get(since), Some((state, 0)));
                assert_eq!(call.get(since.wrapping_add(1000)), Some((state, 1000)));
                assert_eq!(call.get(since.wrapping_sub(1)), Some((state, 0)), "it has just begun");
                let inner = call.enter(State::Syscall, 1);
                assert!(outer.is_none() && !inner.is_none());
                call.leave(inner);
                assert_eq!(call.get(since.wrapping_add(1)), Some((state, 1)));
                call.leave(outer);
                assert_eq!(call.get(7), None);
            }
        }
    }
}
