//! Which allocations are sampled: the decision, per thread, without a lock.
//!
//! Think of every byte allocated as a coin that comes up heads with probability 1/rate, and of an
//! object as sampled when any of its bytes does. Then an object of `size` bytes is sampled with
//! probability 1 - (1 - 1/rate)^size, about 1 - e^(-size/rate): 0.003 % of 16-byte objects at
//! 512 KiB, 0.8 % of 4 KiB, 86 % of 1 MiB, all of 1 GiB. Multiplying by the inverse of that
//! probability (see [`crate::rate::weight`]) makes the totals right on average for every size.
//!
//! Tossing a coin a byte is slow. The number of bytes up to the next heads is exponentially
//! distributed with mean `rate`, so a thread draws that distance once and counts it down:
//!
//! ```text
//!   countdown   = floor(X), X exponential with mean rate
//!   allocation  : countdown -= size;  below zero? then this object is sampled, and X is drawn anew
//! ```
//!
//! floor(X) < size exactly when X < size, so an object is sampled with exactly 1 - e^(-size/rate);
//! and as the exponential distribution has no memory, what is left of X after an object that was not
//! sampled is as good as a fresh draw. Drawing anew is therefore always allowed: after a change of
//! the rate, or when a thread begins. Source: tcmalloc's `sampler.h` describes the same process.
//!
//! The fast path is one load, a subtraction, a compare, the compare of the epoch, and a store.

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::counters::COUNTERS;
use crate::fork_lock::own_process;
use crate::random;
use crate::rate::{self, EPOCH, RateIndex};
use crate::stack::spare;

/// What a thread keeps for sampling. No destructor, no lazy initialisation: it works before `main`
/// and in the last destructor of a thread.
struct ThreadSampler {
    /// Bytes up to the next sample, less one; see the module's head.
    countdown: Cell<i64>,
    /// The epoch that `countdown` was drawn in.
    epoch: Cell<u64>,
    /// Whether this thread is inside a hook.
    busy: Cell<bool>,
    /// Live [`Untracked`] guards.
    untracked: Cell<u32>,
    /// Those of them that are of the workspace.
    workspace: Cell<u32>,
    /// In the workspace this process's number, and else 0.
    process: Cell<u32>,
}

thread_local! {
    static SAMPLER: ThreadSampler = const {
        ThreadSampler {
            // Nothing is sampled in epoch 0.
            countdown: Cell::new(i64::MAX),
            epoch: Cell::new(0),
            busy: Cell::new(false),
            untracked: Cell::new(0),
            workspace: Cell::new(0),
            process: Cell::new(0),
        }
    };
}

/// Whether an allocation of `size` bytes passes unsampled, on the fast path. `false` means: ask
/// [`decide`].
#[inline(always)]
pub fn passes(size: usize) -> bool {
    SAMPLER.with(|s| {
        // Layouts are at most isize::MAX, and the countdown at least -1, so this cannot wrap.
        let left = s.countdown.get().wrapping_sub(size as i64);
        if left >= 0 && s.epoch.get() == EPOCH.load(Ordering::Relaxed) {
            s.countdown.set(left);
            true
        } else {
            false
        }
    })
}

/// What is to become of an allocation.
pub enum Decision {
    /// The inner allocator has it, and no profile.
    Unsampled,
    /// It is sampled. The guard keeps this thread from sampling inside the hook.
    Sampled(RateIndex, Hook),
    /// It is the profiler's own work and goes into the workspace; see [`workspace`].
    Workspace,
}

/// Decides about an allocation that [`passes`] did not let through.
#[cold]
pub fn decide(size: usize) -> Decision {
    SAMPLER.with(|s| {
        if s.workspace.get() > 0 {
            s.countdown.set(NONE_PASSES);
            return if s.busy.get() { Decision::Unsampled } else { Decision::Workspace };
        }
        if s.busy.get() {
            // Hooks allocate nothing, so this is a signal handler that has interrupted one. It goes unsampled,
            // but its coins were tossed: without a new draw the next allocation would be sampled for it.
            let rate = rate::of_epoch(s.epoch.get());
            if rate.is_some() && s.untracked.get() == 0 && s.countdown.get().wrapping_sub(size as i64) < 0 {
                COUNTERS.samples_in_interrupted_hooks.add();
            }
            s.draw(rate);
            return Decision::Unsampled;
        }
        let epoch = EPOCH.load(Ordering::Acquire);
        let rate = rate::of_epoch(epoch);
        if s.epoch.get() != epoch {
            s.epoch.set(epoch);
            s.draw(rate);
        }
        let left = s.countdown.get().wrapping_sub(size as i64);
        if left >= 0 {
            s.countdown.set(left);
            return Decision::Unsampled;
        }
        s.draw(rate);
        match rate {
            Some(rate) if s.untracked.get() == 0 => {
                let mut hook = Hook::enter_idle(s);
                hook.has_room = spare::has_room();
                if hook.has_room || spare::may_begin() {
                    return Decision::Sampled(rate, hook);
                }
                COUNTERS.samples_without_room.add();
                Decision::Unsampled
            }
            _ => Decision::Unsampled,
        }
    })
}

/// A countdown that no allocation passes.
const NONE_PASSES: i64 = -1;

impl ThreadSampler {
    /// Draws the distance to the next sample.
    fn draw(&self, rate: Option<RateIndex>) {
        let distance = match rate.map_or(0, RateIndex::rate) {
            0 => i64::MAX,
            1 => 0,
            mean => exponential(mean),
        };
        self.countdown.set(distance);
    }
}

fn exponential(mean: usize) -> i64 {
    // Never negative; `as` saturates, and a quarter of the range keeps sums from wrapping.
    ((-random::uniform().ln() * mean as f64) as i64).min(i64::MAX / 4)
}

/// Marks this thread as inside a hook while it lives: allocations and frees of the thread pass
/// through, and `errno` is as it was when the hook began (a program may allocate between a failed
/// system call and reading its error).
pub struct Hook {
    errno: i32,
    /// Whether the stack is known to have room for it.
    has_room: bool,
    _of_this_thread: PhantomData<*const ()>,
}

impl Hook {
    /// Enters a hook; `None` when the thread is inside one already.
    #[inline]
    pub fn enter() -> Option<Self> {
        SAMPLER.with(|s| (!s.busy.get()).then(|| Self::enter_idle(s)))
    }

    fn enter_idle(s: &ThreadSampler) -> Self {
        s.busy.set(true);
        Self { errno: errno::get(), has_room: false, _of_this_thread: PhantomData }
    }

    /// Whether the thread's stack had room enough when the sample was decided on.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.has_room
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        errno::set(self.errno);
        SAMPLER.with(|s| s.busy.set(false));
    }
}

/// Whether the current thread is in a hook, or does work of the profiler that is [`untracked`].
#[inline]
pub(crate) fn is_own_work() -> bool {
    SAMPLER.with(|s| s.busy.get() || s.untracked.get() > 0)
}

/// While it lives, allocations of this thread are not sampled: the profiler's own work outside the
/// hooks (symbolization takes tens of megabytes) stays out of the profile. Frees are still counted.
pub struct Untracked {
    is_workspace: bool,
    _of_this_thread: PhantomData<*const ()>,
}

/// Begins a stretch of untracked allocations on this thread. Guards may be nested.
pub fn untracked() -> Untracked {
    SAMPLER.with(|s| s.untracked.set(s.untracked.get() + 1));
    Untracked { is_workspace: false, _of_this_thread: PhantomData }
}

/// As [`untracked`], for work of the profiler after which nothing is to remain: allocations come from mappings of the
/// allocator's own, its *workspace*, and go back to the kernel. The program's allocator would keep what it was asked for
/// once: glibc keeps 10 to 40 MB in the arena of each thread that has written a profile.
///
/// What is made here may live longer, and may be freed on any thread. What is meant to is better made
/// [outside](outside_workspace).
pub fn workspace() -> Untracked {
    SAMPLER.with(|s| {
        s.untracked.set(s.untracked.get() + 1);
        s.set_workspace(s.workspace.get() + 1);
    });
    Untracked { is_workspace: true, _of_this_thread: PhantomData }
}

/// Runs `f` with allocations from the program's allocator, and untracked as before: for what stays.
pub fn outside_workspace<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            SAMPLER.with(|s| s.set_workspace(self.0));
        }
    }
    let depth = SAMPLER.with(|s| s.workspace.get());
    if depth == 0 {
        return f();
    }
    let _restore = Restore(depth);
    SAMPLER.with(|s| s.set_workspace(0));
    f()
}

/// This process's number in a thread that is in the workspace, and else 0: the lock there asks for it at each allocation,
/// and the kernel takes longer to tell it than the allocation takes.
#[inline]
pub(crate) fn process_of_workspace() -> u32 {
    SAMPLER.with(|s| s.process.get())
}

/// In a forked child, before anything else: a signal handler may have forked a thread that was in the workspace.
pub(crate) fn forked() {
    SAMPLER.with(|s| {
        if s.process.replace(0) != 0 {
            s.process.set(own_process());
        }
    });
}

/// Has `f` called whenever a thread has left the workspace. For the allocator.
pub fn on_leaving_workspace(f: fn()) {
    LEAVING.store(f as *mut (), Ordering::Release);
}

static LEAVING: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

impl ThreadSampler {
    /// In the workspace no allocation passes, so that the fast path need not know of it.
    fn set_workspace(&self, depth: u32) {
        self.workspace.set(depth);
        if depth > 0 {
            self.countdown.set(NONE_PASSES);
            if self.process.get() == 0 {
                self.process.set(own_process());
            }
        } else {
            self.process.set(0);
            let epoch = EPOCH.load(Ordering::Acquire);
            self.epoch.set(epoch);
            self.draw(rate::of_epoch(epoch));
        }
    }
}

impl Untracked {
    /// Runs `f` with allocations tracked again, and from the program's allocator: for calling into the program's code.
    pub fn lifted<T>(&self, f: impl FnOnce() -> T) -> T {
        struct Restore(u32);
        impl Drop for Restore {
            fn drop(&mut self) {
                SAMPLER.with(|s| s.untracked.set(self.0));
            }
        }
        outside_workspace(|| {
            let _restore = Restore(SAMPLER.with(|s| s.untracked.replace(0)));
            f()
        })
    }
}

impl Drop for Untracked {
    fn drop(&mut self) {
        let has_left = SAMPLER.with(|s| {
            // Saturating: a guard may be dropped inside `lifted`, where the count is 0.
            s.untracked.set(s.untracked.get().saturating_sub(1));
            let depth = s.workspace.get();
            if !self.is_workspace || depth == 0 {
                return false;
            }
            s.set_workspace(depth - 1);
            depth == 1
        });
        let leaving = LEAVING.load(Ordering::Acquire);
        if has_left && !leaving.is_null() {
            // SAFETY: `on_leaving_workspace` stored a function of this type.
            unsafe { core::mem::transmute::<*mut (), fn()>(leaving)() };
        }
    }
}

#[cfg(rtprof_supported)]
pub(crate) mod errno {
    pub(crate) fn get() -> i32 {
        // SAFETY: the location is this thread's own and always valid.
        unsafe { *libc::__errno_location() }
    }

    pub(super) fn set(value: i32) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = value };
    }

    /// What `f` returns; it leaves `errno` as it was.
    pub(crate) fn kept<R>(f: impl FnOnce() -> R) -> R {
        let before = get();
        let result = f();
        set(before);
        result
    }
}

#[cfg(not(rtprof_supported))]
mod errno {
    pub(super) fn get() -> i32 {
        0
    }

    pub(super) fn set(_value: i32) {}
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn distances_are_exponential() {
        random::reseed(7);
        const N: usize = 200_000;
        const MEAN: usize = 4096;
        let draws: Vec<i64> = (0..N).map(|_| exponential(MEAN)).collect();
        assert!(draws.iter().all(|&d| d >= 0));
        // P(X < size) = 1 - e^(-size/mean); binomial, 6 sigma: one run in 5e8 fails by chance, and the
        // seed is fixed besides.
        for size in [16i64, 1024, 4096, 100_000] {
            let p = 1.0 - (-(size as f64) / MEAN as f64).exp();
            let hits = draws.iter().filter(|&&d| d < size).count() as f64;
            let sigma = (N as f64 * p * (1.0 - p)).sqrt().max(1.0);
            assert!((hits - N as f64 * p).abs() < 6.0 * sigma, "{size}: {hits} of {}", N as f64 * p);
        }
        assert!(exponential(usize::MAX) > 0);
    }

    #[test]
    fn lifting_restores_the_guard() {
        let guard = untracked();
        let depth = || SAMPLER.with(|s| s.untracked.get());
        guard.lifted(|| assert_eq!(depth(), 0));
        assert_eq!(depth(), 1);
        drop(guard);
        assert_eq!(depth(), 0);
    }
}
