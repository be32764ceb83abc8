//! An initialisation that happens once: a byte and a queue.

use std::fmt;

use crate::frame;
use crate::inner::primitive::{AtomicU8, Ordering};
use crate::inner::queue;
use crate::inner::spin::{SHORT, spin_while};
use crate::inner::wait::{Wait, WaitReason};

/// The states, which exclude each other, and [`PARKED`] beside [`RUNNING`].
const NEW: u8 = 0;
const POISONED: u8 = 1;
const RUNNING: u8 = 2;
const DONE: u8 = 3;
/// Threads are in the queue, or about to be. Cleared only with the queue locked.
const PARKED: u8 = 4;

/// The progress of a [`Once`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnceState {
    /// No thread has called it yet.
    New,
    /// The last call panicked.
    Poisoned,
    /// A thread is inside its call.
    InProgress,
    /// A call has returned. The state stays so.
    Done,
}

impl OnceState {
    /// Whether the last call panicked.
    #[inline]
    pub fn poisoned(self) -> bool {
        self == Self::Poisoned
    }

    /// Whether a call has returned.
    #[inline]
    pub fn done(self) -> bool {
        self == Self::Done
    }
}

/// An initialisation that happens once, by the first caller. With parking_lot's interface; Go: `sync.Once`.
///
/// A caller waits while another thread runs its closure; the block profile counts a wait. Afterwards a call is one
/// load.
///
/// A closure that calls the same `Once` again waits for itself for ever, as in std and parking_lot.
pub struct Once {
    state: AtomicU8,
}

impl Once {
    /// A `Once` that was not called yet.
    #[inline]
    pub const fn new() -> Self {
        Self { state: AtomicU8::new(NEW) }
    }

    /// The current progress.
    #[inline]
    pub fn state(&self) -> OnceState {
        match self.state.load(Ordering::Acquire) & !PARKED {
            NEW => OnceState::New,
            POISONED => OnceState::Poisoned,
            RUNNING => OnceState::InProgress,
            _ => OnceState::Done,
        }
    }

    /// Whether a call has returned; its effects are visible then.
    #[inline]
    pub fn is_completed(&self) -> bool {
        // No thread waits any more, so `PARKED` is not set beside it.
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Calls `f` if no call has returned so far. Waits while another thread is inside its call. Go: `Once.Do`.
    ///
    /// # Panics
    /// If `f` does, and then in every later call too, because the initialisation is incomplete.
    /// [`call_once_force`](Once::call_once_force) tries again.
    #[inline]
    #[track_caller]
    pub fn call_once(&self, f: impl FnOnce()) {
        if !self.is_completed() {
            let mut f = Some(f);
            let is_done = self.call_slow(false, &mut |_| {
                if let Some(f) = f.take() {
                    f();
                }
            });
            frame::keep();
            assert!(is_done, "an earlier call of this Once panicked; call_once_force would try again");
        }
    }

    /// As [`call_once`](Once::call_once), but calls `f` also if an earlier call panicked. Its argument shows whether
    /// one did: it is [`New`](OnceState::New) or [`Poisoned`](OnceState::Poisoned).
    #[inline]
    pub fn call_once_force(&self, f: impl FnOnce(OnceState)) {
        if !self.is_completed() {
            let mut f = Some(f);
            self.call_slow(true, &mut |state| {
                if let Some(f) = f.take() {
                    f(state);
                }
            });
            frame::keep();
        }
    }

    /// Returns whether the state is done afterwards. If not, it is poisoned.
    #[cold]
    fn call_slow(&self, ignores_poison: bool, f: &mut dyn FnMut(OnceState)) -> bool {
        match self.wait_to_call(ignores_poison) {
            OnceState::Done => true,
            OnceState::Poisoned if !ignores_poison => false,
            before => {
                let mut run = Run { once: self, end: POISONED };
                f(before);
                run.end = DONE;
                true
            }
        }
    }

    /// Makes this thread the one that runs its closure, unless the state is done; waits while another thread runs.
    /// Returns the state before.
    fn wait_to_call(&self, ignores_poison: bool) -> OnceState {
        let mut wait = None;
        let before = loop {
            let state = self.state();
            match state {
                OnceState::Done => break state,
                OnceState::Poisoned if !ignores_poison => break state,
                OnceState::InProgress => self.sleep(wait.get_or_insert_with(|| self.prepare())),
                OnceState::New | OnceState::Poisoned => {
                    let before = if state.poisoned() { POISONED } else { NEW };
                    let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
                    if self.state.compare_exchange(before, RUNNING, success, failure).is_ok() {
                        break state;
                    }
                }
            }
        };
        // Before the closure runs or panics, which is not part of the wait.
        if let Some(wait) = wait {
            wait.end();
        }
        before
    }

    fn prepare(&self) -> Wait {
        spin_while(SHORT, || self.state.load(Ordering::Relaxed) == RUNNING);
        Wait::prepare(WaitReason::Once)
    }

    /// Sleeps until the closure has ended, if it still runs.
    fn sleep(&self, wait: &mut Wait) {
        let parked =
            self.state.compare_exchange(RUNNING, RUNNING | PARKED, Ordering::Relaxed, Ordering::Relaxed);
        if parked.is_err_and(|seen| seen != RUNNING | PARKED) {
            return;
        }
        let validate = |wait: &mut Wait| {
            let is_running = self.state.load(Ordering::Relaxed) == RUNNING | PARKED;
            if is_running {
                wait.run();
            }
            is_running
        };
        // SAFETY: the key is the address of this object, and the closures neither panic nor park nor wake.
        unsafe { queue::park(self.key(), 0, wait, validate, || {}, |_, _| {}, None) };
    }

    fn key(&self) -> usize {
        &raw const *self as usize
    }

    fn end(&self, state: u8) {
        if self.state.compare_exchange(RUNNING, state, Ordering::Release, Ordering::Relaxed).is_err() {
            self.end_slow(state);
        }
    }

    #[cold]
    fn end_slow(&self, state: u8) {
        // The state changes with the queue locked: after the change another thread may free the memory and use it for
        // another object, whose waiters must not be woken.
        let decide = |_: &queue::Woken| {
            self.state.store(state, Ordering::Release);
            false
        };
        // SAFETY: the key is the address of this object, and the closures neither panic nor park nor wake.
        unsafe { queue::wake(self.key(), queue::everybody, decide) };
    }
}

/// The run of the closure. Its drop ends the run, also after a panic.
struct Run<'a> {
    once: &'a Once,
    /// The state after the run.
    end: u8,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.once.end(self.end);
    }
}

impl Default for Once {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("state", &self.state()).finish()
    }
}
