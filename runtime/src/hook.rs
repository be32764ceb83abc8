//! What the current thread does for the profiler: whether it is in a hook, and whether its allocations belong to the
//! program.
//!
//! | state | begins with | allocations of the thread |
//! |---|---|---|
//! | in a hook | [`Hook::enter`] | pass through, unsampled: the hook would enter itself |
//! | untracked | [`untracked`] | are not sampled: symbolization takes tens of megabytes that are not the program's |
//! | in the workspace | [`workspace`] | come from mappings that go back to the kernel when the work is done |
//!
//! The state has no destructor and no lazy initialisation, so that it can be read before `main` and in the last destructor
//! of a thread.
//!
//! # Locks
//!
//! None.

use core::cell::Cell;
use core::marker::PhantomData;

use crate::atomic_ref::AtomicRef;
use crate::errno;

/// The two words that the fast path of an allocation reads. They lie beside the rest of the state because the workspace
/// closes the gate: there no allocation passes, and the fast path need not know of it.
pub struct AllocationGate {
    /// Bytes up to the next sample, less one.
    countdown: Cell<i64>,
    /// The epoch of the sampling rate that the countdown was drawn in.
    epoch: Cell<u64>,
}

/// A countdown that no allocation passes.
const CLOSED: i64 = -1;
/// The epoch of no rate: the next allocation draws anew.
const NO_EPOCH: u64 = u64::MAX;

impl AllocationGate {
    /// Whether an allocation of `size` bytes passes unsampled, at a sampling rate of this epoch; then it is counted down.
    #[inline(always)]
    pub fn passes(&self, size: usize, epoch: u64) -> bool {
        let left = self.left_after(size);
        let passes = left >= 0 && self.epoch.get() == epoch;
        if passes {
            self.countdown.set(left);
        }
        passes
    }

    /// What is left of the countdown after an allocation of `size` bytes; negative if the allocation is sampled.
    #[inline(always)]
    pub fn left_after(&self, size: usize) -> i64 {
        // Layouts are at most isize::MAX, and the countdown at least -1, so this cannot wrap.
        self.countdown.get().wrapping_sub(size as i64)
    }

    /// Sets the countdown.
    pub fn set(&self, countdown: i64) {
        self.countdown.set(countdown);
    }

    /// The epoch that the countdown was drawn in.
    pub fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    /// Notes the epoch that the countdown is drawn in.
    pub fn set_epoch(&self, epoch: u64) {
        self.epoch.set(epoch);
    }

    /// Lets no allocation pass.
    pub fn close(&self) {
        self.countdown.set(CLOSED);
    }
}

struct ThreadState {
    gate: AllocationGate,
    is_in_hook: Cell<bool>,
    /// Live [`Untracked`] guards.
    untracked: Cell<u32>,
    /// Those of them that are of the workspace.
    workspace: Cell<u32>,
    /// In the workspace this process's number, and else 0.
    process: Cell<u32>,
}

thread_local! {
    static STATE: ThreadState = const {
        ThreadState {
            // Nothing is sampled in epoch 0.
            gate: AllocationGate { countdown: Cell::new(i64::MAX), epoch: Cell::new(0) },
            is_in_hook: Cell::new(false),
            untracked: Cell::new(0),
            workspace: Cell::new(0),
            process: Cell::new(0),
        }
    };
}

/// Runs `f` with the current thread's gate. For hooks.
#[inline(always)]
pub fn with_gate<R>(f: impl FnOnce(&AllocationGate) -> R) -> R {
    STATE.with(|state| f(&state.gate))
}

/// Marks this thread as inside a hook while it lives: allocations and frees of the thread pass through, and `errno` is as
/// it was when the hook began.
pub struct Hook {
    errno: i32,
    _of_this_thread: PhantomData<*const ()>,
}

impl Hook {
    /// Enters a hook; `None` when the thread is inside one already.
    #[inline]
    pub fn enter() -> Option<Self> {
        STATE.with(|state| {
            if state.is_in_hook.replace(true) {
                return None;
            }
            Some(Self { errno: errno::get(), _of_this_thread: PhantomData })
        })
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        errno::set(self.errno);
        STATE.with(|state| state.is_in_hook.set(false));
    }
}

/// Whether the current thread is inside a hook. For hooks.
#[inline]
pub fn is_in_hook() -> bool {
    STATE.with(|state| state.is_in_hook.get())
}

/// Whether the current thread does work of the profiler that is [`untracked`]. For hooks.
#[inline]
pub fn is_untracked() -> bool {
    STATE.with(|state| state.untracked.get() > 0)
}

/// Whether the current thread is in the [`workspace`]. For hooks.
#[inline]
pub fn is_in_workspace() -> bool {
    STATE.with(|state| state.workspace.get() > 0)
}

/// Whether the current thread is in a hook, or does work of the profiler that is [`untracked`]. For hooks.
#[inline]
pub fn is_own_work() -> bool {
    STATE.with(|state| state.is_in_hook.get() || state.untracked.get() > 0)
}

/// While it lives, allocations of this thread are not sampled. Frees are still counted.
pub struct Untracked {
    is_workspace: bool,
    _of_this_thread: PhantomData<*const ()>,
}

/// Begins a stretch of untracked allocations on this thread. Guards may be nested.
pub fn untracked() -> Untracked {
    STATE.with(|state| state.untracked.set(state.untracked.get() + 1));
    Untracked { is_workspace: false, _of_this_thread: PhantomData }
}

/// As [`untracked`], for work of the profiler after which nothing is to remain: allocations come from mappings of the
/// allocator's own, its *workspace*, and go back to the kernel. The program's allocator would keep what it was asked for
/// once: glibc keeps 10 to 40 MB in the arena of each thread that has written a profile.
///
/// What is made here may live longer, and may be freed on any thread. What is meant to is better made
/// [outside](outside_workspace).
pub fn workspace() -> Untracked {
    STATE.with(|state| {
        state.untracked.set(state.untracked.get() + 1);
        state.set_workspace(state.workspace.get() + 1);
    });
    Untracked { is_workspace: true, _of_this_thread: PhantomData }
}

/// Runs `f` with allocations from the program's allocator, and untracked as before: for what stays.
pub fn outside_workspace<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            STATE.with(|state| state.set_workspace(self.0));
        }
    }
    let depth = STATE.with(|state| state.workspace.get());
    if depth == 0 {
        return f();
    }
    let _restore = Restore(depth);
    STATE.with(|state| state.set_workspace(0));
    f()
}

/// The kernel's number of this process; never 0.
pub fn own_process() -> u32 {
    // In the workspace the number is at hand: the lock there needs it at each allocation, and the kernel takes longer to
    // tell it than the allocation takes.
    match STATE.with(|state| state.process.get()) {
        0 => asked_process(),
        known => known,
    }
}

fn asked_process() -> u32 {
    // Platforms without processes (wasm) panic at the question.
    if cfg!(rtprof_supported) { std::process::id() } else { 1 }
}

/// In a forked child, before anything else: a signal handler may have forked a thread that was in the workspace.
pub(crate) fn forked() {
    STATE.with(|state| {
        if state.process.get() != 0 {
            state.process.set(asked_process());
        }
    });
}

/// Called when a thread has left the workspace.
static LEFT_WORKSPACE: AtomicRef<fn()> = AtomicRef::none();

/// Has `f` called whenever a thread has left the workspace. For the allocator.
pub fn on_leaving_workspace(f: &'static fn()) {
    LEFT_WORKSPACE.set(Some(f));
}

impl ThreadState {
    fn set_workspace(&self, depth: u32) {
        self.workspace.set(depth);
        if depth > 0 {
            self.gate.close();
            if self.process.get() == 0 {
                self.process.set(asked_process());
            }
        } else {
            self.process.set(0);
            self.gate.set_epoch(NO_EPOCH);
        }
    }
}

impl Untracked {
    /// Runs `f` with allocations tracked again, and from the program's allocator: for calling into the program's code.
    pub fn lifted<T>(&self, f: impl FnOnce() -> T) -> T {
        struct Restore(u32);
        impl Drop for Restore {
            fn drop(&mut self) {
                STATE.with(|state| state.untracked.set(self.0));
            }
        }
        outside_workspace(|| {
            let _restore = Restore(STATE.with(|state| state.untracked.replace(0)));
            f()
        })
    }
}

impl Drop for Untracked {
    fn drop(&mut self) {
        let has_left = STATE.with(|state| {
            // Saturating: a guard may be dropped inside `lifted`, where the count is 0.
            state.untracked.set(state.untracked.get().saturating_sub(1));
            let depth = state.workspace.get();
            if !self.is_workspace || depth == 0 {
                return false;
            }
            state.set_workspace(depth - 1);
            depth == 1
        });
        if has_left && let Some(leave) = LEFT_WORKSPACE.get() {
            leave();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn lifting_restores_the_guard() {
        let guard = untracked();
        assert!(is_untracked());
        guard.lifted(|| assert!(!is_untracked()));
        assert!(is_untracked());
        drop(guard);
        assert!(!is_untracked());
    }

    #[test]
    fn a_thread_is_in_one_hook_at_a_time() {
        let hook = Hook::enter().unwrap();
        assert!(Hook::enter().is_none() && is_own_work());
        drop(hook);
        assert!(!is_own_work());
    }
}
