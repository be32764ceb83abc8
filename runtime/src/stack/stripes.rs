//! The caches of walks by unwind tables, in stripes: a walk takes one of them by a try-lock.
//!
//! ```text
//!   STRIPES  ──► [ lock | rules, framehop's cache ] [ lock | rules, framehop's cache ] …
//!                └ leaked, COUNT of them              └ the stripe of a thread is the one that it tries first
//! ```
//!
//! A walk tries the stripe of its thread first, then the others; when all are taken it gives up, and the sample has no
//! stack, and is counted. Threads that lose their cores in a walk keep their stripes until they run again, so that a program
//! with many more busy threads than cores may need more stripes: each reading of the modules adds some if walks have given
//! up. Nothing waits, so a stripe whose holder does not exist in a forked child is one stripe less there, not a hang, until
//! the child's first reading replaces it. The child does not reuse that stripe: its cache may be half written.
//!
//! framehop's own cache has 509 places, one for each remainder of an address, so two return addresses of one stack that share
//! a place evict each other at every walk, at 300 ns each; among 32 frames that is more likely than not. So framehop is asked
//! once about each address, and at each walk only for the few frames without a [`rule`](super::rule). On aarch64 no rule is
//! learnt yet: framehop is asked for each frame, which takes 15 to 28 ns on x86-64, and a stripe has more of its caches.

use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use framehop::{CacheNative, MustNotAllocateDuringUnwind};

use super::rule_cache::RuleCache;
use crate::hook::own_process;

pub(super) type Cache = CacheNative<MustNotAllocateDuringUnwind>;

/// The most stripes. A stripe's caches are 97 KiB, too much for every thread and impossible to make in a hook.
const MOST: usize = 64;
/// The number of walks without a stripe after which stripes are added.
const TOO_MANY: u32 = 10;
/// Per stripe. Where no rule is learnt each frame needs a place, and one in four stacks of 32 frames has two that
/// share a place; with a single cache most stacks would.
const FRAMEHOP_CACHES: usize = if cfg!(target_arch = "aarch64") { 4 } else { 1 };

/// The first `COUNT` are leaked stripes, and the others null. Not a `OnceLock`: a forked child would wait for the thread that
/// was filling it.
static STRIPES: [AtomicPtr<Stripe>; MOST] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicU32 = AtomicU32::new(0);
/// The number of walks without a stripe since stripes were added.
static GIVEN_UP: AtomicU32 = AtomicU32::new(0);
/// The process for which the stripes were made or renewed.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Whether a stripe of this process was replaced that one of its threads may still use.
static IS_REPLACED_IN_USE: AtomicBool = AtomicBool::new(false);

thread_local! {
    // The stripe that this thread tries first, plus one; 0 before its first walk.
    static PREFERRED: Cell<u32> = const { Cell::new(0) };
}

/// The caches that persist between walks.
pub(super) struct Caches {
    pub(super) rules: RuleCache,
    /// The generation of modules from which the rules were learnt. (framehop's cache counts its generations
    /// separately.)
    pub(super) generation: u64,
    /// By address.
    pub(super) framehop: Box<[Cache]>,
}

impl Caches {
    fn new(generation: u64) -> Self {
        let framehop = (0..FRAMEHOP_CACHES).map(|_| Cache::new_in()).collect();
        Self { rules: RuleCache::new(), generation, framehop }
    }
}

/// Aligned so that two neighbours share no cache line.
#[repr(align(128))]
struct Stripe {
    taken: AtomicU32,
    caches: UnsafeCell<Caches>,
}

// SAFETY: the caches are only accessed by the thread that changed `taken` from 0 to 1.
unsafe impl Sync for Stripe {}

impl Stripe {
    fn leaked() -> *mut Self {
        let taken = AtomicU32::new(0);
        Box::into_raw(Box::new(Self { taken, caches: UnsafeCell::new(Caches::new(0)) }))
    }

    fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn try_take(&'static self) -> Option<Taken> {
        let is_free = !self.is_taken()
            && self.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Not made if it is not free: its end would free what another thread has taken.
        is_free.then(|| Taken(self))
    }
}

/// The right to use the caches of a stripe, until this is dropped.
pub(super) struct Taken(&'static Stripe);

impl Taken {
    #[inline]
    pub(super) fn caches(&mut self) -> &mut Caches {
        // SAFETY: this thread has changed `taken` from 0 to 1, and changes it back when this is dropped.
        unsafe { &mut *self.0.caches.get() }
    }
}

impl Drop for Taken {
    #[inline]
    fn drop(&mut self) {
        self.0.taken.store(0, Ordering::Release);
    }
}

/// Makes the stripes. Called by [`crate::init::open`], by one thread at a time; must not be called in a hook.
pub(super) fn open() {
    if COUNT.load(Ordering::Acquire) == 0 {
        PROCESS.store(own_process(), Ordering::Relaxed);
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        have((2 * cores).clamp(4, MOST));
        // Of walks before this.
        GIVEN_UP.store(0, Ordering::Relaxed);
    }
}

/// Adds stripes until there are `count`.
fn have(count: usize) {
    for place in &STRIPES[COUNT.load(Ordering::Relaxed)..count] {
        place.store(Stripe::leaked(), Ordering::Release);
    }
    COUNT.store(count, Ordering::Release);
}

/// Returns the stripe with this number, which is less than `COUNT`.
#[inline]
fn stripe(number: usize) -> &'static Stripe {
    // SAFETY: stored before `COUNT`, and leaked, so it stays valid.
    unsafe { &*STRIPES[number].load(Ordering::Acquire) }
}

/// Takes a stripe for a walk of this thread. Returns `None` if all are taken. Safe to call in a hook.
#[inline]
pub(super) fn take() -> Option<Taken> {
    let preferred = PREFERRED.with(|cell| {
        if cell.get() == 0 {
            cell.set(NEXT.fetch_add(1, Ordering::Relaxed) % 1024 + 1);
        }
        cell.get() as usize
    });
    let count = COUNT.load(Ordering::Acquire);
    let taken = (0..count).find_map(|i| stripe((preferred + i) % count).try_take());
    if taken.is_none() {
        GIVEN_UP.fetch_add(1, Ordering::Relaxed);
    }
    taken
}

/// Replaces stripes whose holders do not exist in a forked child, and adds some if too many walks have given up. Called by
/// one thread at a time, which holds the lock of the modules; must not be called in a hook.
pub(super) fn renew() {
    let (process, count) = (own_process(), COUNT.load(Ordering::Acquire));
    if PROCESS.swap(process, Ordering::Relaxed) != process {
        // A thread of the child may have taken one too. It keeps that one until it has finished its walk.
        let mut is_replaced = false;
        for number in (0..count).filter(|&number| stripe(number).is_taken()) {
            STRIPES[number].store(Stripe::leaked(), Ordering::Release);
            is_replaced = true;
        }
        IS_REPLACED_IN_USE.store(is_replaced, Ordering::Relaxed);
    }
    if GIVEN_UP.load(Ordering::Relaxed) >= TOO_MANY {
        GIVEN_UP.store(0, Ordering::Relaxed);
        have((2 * count).min(MOST));
    }
}

/// Gives every stripe fresh caches, for the modules of this generation: framehop recognises stale cache entries by a 16-bit
/// generation, which wraps in a program that loads plugins for ever.
///
/// Returns whether no walk that began before this call is still running. A stripe that stays in use, for long by a thread that
/// lost its core, keeps its caches. Where a stripe was replaced in use, nothing tells when that use ends, so this returns false
/// from then on. Called as [`renew`] is.
pub(super) fn empty(generation: u64) -> bool {
    let mut are_all_over = !IS_REPLACED_IN_USE.load(Ordering::Relaxed);
    for number in 0..COUNT.load(Ordering::Acquire) {
        let fresh = Caches::new(generation);
        // A walk takes microseconds, unless its thread is preempted.
        let taken = (0..200).find_map(|_| {
            let taken = stripe(number).try_take();
            if taken.is_none() {
                std::thread::yield_now();
            }
            taken
        });
        are_all_over &= taken.is_some();
        if let Some(mut taken) = taken {
            let old = core::mem::replace(taken.caches(), fresh);
            drop(taken);
            drop(old);
        }
    }
    are_all_over
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn take_all() -> Vec<Taken> {
        core::iter::from_fn(take).collect()
    }

    /// Runs `body` in a forked child, in which no other test takes a stripe.
    fn forked(body: impl FnOnce()) {
        crate::init::open();
        // SAFETY: the child calls the allocator, whose locks survive a fork, and what is meant to work in a forked child.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_right = catch_unwind(AssertUnwindSafe(body)).is_ok();
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        // SAFETY: writes to a local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "as printed above");
    }

    #[test]
    fn more_are_made_if_walks_give_up() {
        forked(|| {
            renew();
            GIVEN_UP.store(0, Ordering::Relaxed);
            let before = COUNT.load(Ordering::Relaxed);
            let all = take_all();
            assert_eq!(all.len(), before);
            renew();
            assert!(take().is_none(), "a few are no reason");
            (0..TOO_MANY).for_each(|_| assert!(take().is_none()));
            renew();
            assert_eq!(take_all().len(), (2 * before).min(MOST) - before);
            drop(all);
            assert_eq!(take_all().len(), (2 * before).min(MOST));
        });
    }

    /// A child has all of them after its first reading, although they were in use when it was forked.
    #[test]
    fn a_forked_child_replaces_those_in_use() {
        forked(|| {
            renew();
            let held = take_all();
            GIVEN_UP.store(0, Ordering::Relaxed);
            forked(|| {
                assert!(take_all().is_empty());
                renew();
                assert_eq!(take_all().len(), held.len());
                // A thread of the child may be in a walk with the caches of a replaced one, and so with any modules since.
                assert!(!empty(7) && !empty(8));
                forked(|| {
                    renew();
                    assert!(empty(9), "no thread of the parent is here");
                });
            });
            renew();
            assert!(take_all().is_empty(), "in the parent they are in use");
        });
    }
}
