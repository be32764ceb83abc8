//! The note of a goroutine's current call that may block; the goroutine's state stays running during the call.
//!
//! Problem: whether a call blocks is known only when it returns. Changing the state at the beginning and the end would
//! cost more than many calls take. Scheme: the goroutine notes here that it is in a call, and records the call after
//! its return if it was long. Only the thread that ends a generation of a trace in between reads the note. A signal
//! handler may make calls while its thread is in a call: the handler restores the note that it found.

use crate::goroutine::state::State;
use crate::primitive::{AtomicU64, Ordering};

/// The call that a goroutine is in, and when the call began.
#[derive(Default)]
pub struct Call {
    /// The number of the state in the low 8 bits; above them the tick, without its highest 8 bits. 0 means no call.
    word: AtomicU64,
}

const STATE_BITS: u32 = 8;

/// The enclosing call, if a call is made within another one.
#[derive(Clone, Copy, Debug)]
#[must_use = "the note stays until the call is left"]
pub struct Outer(u64);

impl Call {
    /// Notes that the goroutine is in a call since tick `since`; `state` is its state if the call is long. Called by
    /// the goroutine itself, which passes the result to [`Call::leave`]. Safe to call in a hook.
    #[inline]
    pub fn enter(&self, state: State, since: u64) -> Outer {
        let outer = Outer(self.word.load(Ordering::Relaxed));
        self.word.store(since << STATE_BITS | u64::from(state.number()), Ordering::Relaxed);
        outer
    }

    /// Notes that the call has returned. Called by the goroutine itself. Safe to call in a hook.
    #[inline]
    pub fn leave(&self, outer: Outer) {
        self.word.store(outer.0, Ordering::Relaxed);
    }

    /// Clears the note: the goroutine has left all calls, or the slot gets a new one.
    pub fn end(&self) {
        self.word.store(0, Ordering::Relaxed);
    }

    /// Returns the state of the goroutine in its current call, and the ticks from the call's beginning to `now`.
    /// Returns `None` outside a call.
    pub fn get(&self, now: u64) -> Option<(State, u64)> {
        let word = self.word.load(Ordering::Relaxed);
        if word == 0 {
            return None;
        }
        let state = State::from_number(word as u8)?;
        // The highest 8 bits are missing in both ticks, so the difference is right. A call that began after `now`
        // counts 0.
        let ticks = (now << STATE_BITS).wrapping_sub(word >> STATE_BITS << STATE_BITS) as i64 >> STATE_BITS;
        Some((state, u64::try_from(ticks).unwrap_or(0)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::goroutine::wait_reason::WaitReason;

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
                assert!(outer.0 == 0 && inner.0 != 0);
                call.leave(inner);
                assert_eq!(call.get(since.wrapping_add(1)), Some((state, 1)));
                call.leave(outer);
                assert_eq!(call.get(7), None);
            }
        }
    }
}
