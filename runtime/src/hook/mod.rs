//! Per-thread state of the profiler: whether the thread is in a hook, and whether its allocations belong to the
//! program.
//!
//! | state | begins with | allocations of the thread |
//! |---|---|---|
//! | in a hook | [`Hook::enter`] | pass through, unsampled: sampling them would re-enter the hook |
//! | untracked | [`untracked`] | are not sampled: symbolization takes tens of megabytes that are not the program's |
//! | in the workspace | [`workspace`] | come from mappings that are unmapped when the work is done |
//! | one of rtprof's threads | [`own_thread`] | are sampled, with a label that tells whose they are |
//!
//! A program that has no memory left, as at a limit of its address space, may handle that, but the code of an export cannot: it
//! would end the program. So an allocation in the last three states that the program's allocator refuses comes from the
//! workspace, part of whose addresses is reserved from the start ([`may_use_workspace`]).
//!
//! The state has no destructor and no lazy initialisation, so that it can be read before `main` and in the last
//! destructor of a thread.
//!
//! # Locks
//!
//! None.

pub mod errno;
pub mod hidden;
pub mod listeners;
pub mod room;

use core::cell::Cell;
use core::marker::PhantomData;

use crate::memory::atomic_ref::AtomicRef;

/// The two words that the fast path of an allocation reads. They are stored beside the rest of the state because untracked work
/// closes the gate: then no allocation passes, so the fast path need not check for it.
pub struct AllocationGate {
    /// Bytes up to the next sample, less one.
    countdown: Cell<i64>,
    /// The epoch of the sampling rate from which the countdown was drawn.
    epoch: Cell<u64>,
}

/// A countdown that lets no allocation pass.
const CLOSED: i64 = -1;
/// An epoch that matches no rate, so that the next allocation draws a new countdown.
const NO_EPOCH: u64 = u64::MAX;

impl AllocationGate {
    /// Returns whether an allocation of `size` bytes passes unsampled at the sampling rate of `epoch`. If it does, the
    /// countdown is reduced by `size`.
    #[inline(always)]
    pub fn passes(&self, size: usize, epoch: u64) -> bool {
        let left = self.left_after(size);
        let passes = left >= 0 && self.epoch.get() == epoch;
        if passes {
            self.countdown.set(left);
        }
        passes
    }

    /// Returns the countdown after an allocation of `size` bytes; negative if the allocation is sampled.
    #[inline(always)]
    pub fn left_after(&self, size: usize) -> i64 {
        // Layouts are at most isize::MAX and the countdown is at least -1, so this cannot wrap.
        self.countdown.get().wrapping_sub(size as i64)
    }

    /// Sets the countdown.
    pub fn set(&self, countdown: i64) {
        self.countdown.set(countdown);
    }

    /// Returns the epoch in which the countdown was drawn.
    pub fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    /// Sets the epoch in which the countdown is drawn.
    pub fn set_epoch(&self, epoch: u64) {
        self.epoch.set(epoch);
    }

    /// Lets no allocation pass until the countdown is set again.
    pub fn close(&self) {
        self.countdown.set(CLOSED);
    }
}

struct ThreadState {
    gate: AllocationGate,
    is_in_hook: Cell<bool>,
    /// The number of live [`Untracked`] guards.
    untracked: Cell<u32>,
    /// The number of live guards that belong to the workspace.
    workspace: Cell<u32>,
    /// The number of live [`OwnThread`] guards.
    own_thread: Cell<u32>,
    /// The process id while in the workspace, else 0.
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
            own_thread: Cell::new(0),
            process: Cell::new(0),
        }
    };
}

/// Runs `f` with the current thread's gate. Safe to call in a hook.
#[inline(always)]
pub fn with_gate<R>(f: impl FnOnce(&AllocationGate) -> R) -> R {
    STATE.with(|state| f(&state.gate))
}

/// Guard that marks this thread as inside a hook. Until it is dropped, allocations and frees of the thread pass
/// through. Dropping it restores `errno` to its value at the beginning of the hook.
pub struct Hook {
    errno: i32,
    _of_this_thread: PhantomData<*const ()>,
}

impl Hook {
    /// Enters a hook. Returns `None` when the thread is already inside a hook.
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

/// Returns whether the current thread is inside a hook. Safe to call in a hook.
#[inline]
pub fn is_in_hook() -> bool {
    STATE.with(|state| state.is_in_hook.get())
}

/// Returns whether the current thread does work of the profiler that is [`untracked`]. Safe to call in a hook.
#[inline]
pub fn is_untracked() -> bool {
    STATE.with(|state| state.untracked.get() > 0)
}

/// Returns whether the current thread is in the [`workspace`]. Safe to call in a hook.
#[inline]
pub fn is_in_workspace() -> bool {
    STATE.with(|state| state.workspace.get() > 0)
}

/// Returns whether the current thread is in a hook or does [`untracked`] work of the profiler. Safe to call in a hook.
#[inline]
pub fn is_own_work() -> bool {
    STATE.with(|state| state.is_in_hook.get() || state.untracked.get() > 0)
}

/// Returns whether the current thread is one of rtprof's. Safe to call in a hook.
#[inline]
pub fn is_own_thread() -> bool {
    STATE.with(|state| state.own_thread.get() > 0)
}

/// Returns whether an allocation that the program's allocator refuses is to come from the workspace. Not in a hook, because a
/// signal handler may have interrupted the workspace.
pub fn may_use_workspace() -> bool {
    !is_in_hook() && (is_untracked() || is_own_thread())
}

/// Guard during whose life the current thread is one of rtprof's.
pub struct OwnThread {
    _of_this_thread: PhantomData<*const ()>,
}

/// Makes the current thread one of rtprof's, whose allocations are sampled, and none of which passes the gate. Guards may be
/// nested.
pub fn own_thread() -> OwnThread {
    STATE.with(|state| state.set_own_thread(state.own_thread.get() + 1));
    OwnThread { _of_this_thread: PhantomData }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        STATE.with(|state| state.set_own_thread(state.own_thread.get().saturating_sub(1)));
    }
}

/// Guard during whose life the allocations of this thread are not sampled, and none passes the gate. Frees are still counted.
pub struct Untracked {
    is_workspace: bool,
    _of_this_thread: PhantomData<*const ()>,
}

/// Begins a section of untracked allocations on this thread. Guards may be nested.
pub fn untracked() -> Untracked {
    STATE.with(|state| state.set_untracked(state.untracked.get() + 1));
    Untracked { is_workspace: false, _of_this_thread: PhantomData }
}

/// Begins a section of untracked allocations, as [`untracked`] does, that are all temporary: they come from the
/// allocator's own mappings, its *workspace*, which are unmapped after the work. The program's allocator would keep the
/// memory: glibc keeps 10 to 40 MB in the arena of each thread that has written a profile.
///
/// Memory allocated here may outlive the section, and may be freed on any thread. Memory that is meant to stay is
/// better allocated [outside](outside_workspace).
pub fn workspace() -> Untracked {
    STATE.with(|state| {
        state.set_untracked(state.untracked.get() + 1);
        state.set_workspace(state.workspace.get() + 1);
    });
    Untracked { is_workspace: true, _of_this_thread: PhantomData }
}

/// Runs `f` with untracked allocations from the program's allocator, for memory that stays.
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

/// Returns the id of this process; never 0.
pub fn own_process() -> u32 {
    // The workspace caches the process id: its lock needs the id at each allocation, and the system call takes longer
    // than the allocation.
    match STATE.with(|state| state.process.get()) {
        0 => asked_process(),
        known => known,
    }
}

fn asked_process() -> u32 {
    // `process::id` panics on platforms without processes (wasm).
    if cfg!(rtprof_supported) { std::process::id() } else { 1 }
}

/// Runs first in a forked child: a signal handler may have forked a thread that was in the workspace.
pub(crate) fn forked() {
    STATE.with(|state| {
        if state.process.get() != 0 {
            state.process.set(asked_process());
        }
    });
}

/// Callback for a thread that has left the workspace.
static LEFT_WORKSPACE: AtomicRef<fn()> = AtomicRef::none();

/// Sets the callback `f`, which runs whenever a thread has left the workspace. For the allocator.
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

    fn set_untracked(&self, depth: u32) {
        self.untracked.set(depth);
        self.gate.set_epoch(NO_EPOCH);
    }

    fn set_own_thread(&self, depth: u32) {
        self.own_thread.set(depth);
        self.gate.set_epoch(NO_EPOCH);
    }
}

impl Untracked {
    /// Runs `f` with allocations tracked again and taken from the program's allocator: for calls into the program's
    /// code.
    pub fn lifted<T>(&self, f: impl FnOnce() -> T) -> T {
        struct Restore(u32);
        impl Drop for Restore {
            fn drop(&mut self) {
                STATE.with(|state| state.set_untracked(self.0));
            }
        }
        outside_workspace(|| {
            let _restore = STATE.with(|state| {
                let restore = Restore(state.untracked.get());
                state.set_untracked(0);
                restore
            });
            f()
        })
    }
}

impl Drop for Untracked {
    fn drop(&mut self) {
        let has_left = STATE.with(|state| {
            // Saturating: a guard may be dropped inside `lifted`, where the count is 0.
            state.set_untracked(state.untracked.get().saturating_sub(1));
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
