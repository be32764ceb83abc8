//! The caches of walks by unwind tables. A walk takes what it needs by a try-lock.
//!
//! ```text
//!   RULES    ──► [ lock | rules ] [ lock | rules ] …            MOST of them: a walk takes one, and keeps it to its end
//!                └ few: the first one that a thread tries
//!   FRAMEHOP ──► [ lock | framehop's caches ] …                 few: for walks that have to ask framehop
//! ```
//!
//! Problem: threads that lose their cores in a walk keep their rules until they run again. A service with many more busy
//! threads than cores, on two of them, found four caches taken for one stack in fifty, and a stack whose walk found none is
//! lost. Scheme: there are many caches of rules. One that no walk has needed takes no memory: threads begin with the same few,
//! and go on to the others only if those are taken. framehop's caches take memory from the beginning, and cannot be made in a
//! hook. But they are taken only while a rule is learnt, and where a frame has none, so a few of them suffice.
//!
//! A walk that finds none gives up, and the sample has no stack, and is counted. Nothing waits, so a cache whose holder does not
//! exist in a forked child is one less there, not a hang, until the child's first reading of the modules replaces it. The child
//! does not reuse that cache: it may be half written.
//!
//! framehop's own cache has 509 places, one for each remainder of an address, so two return addresses of one stack that share
//! a place evict each other at every walk, at 300 ns each; among 32 frames that is more likely than not. So framehop is asked
//! once about each address, and at each walk only for the few frames without a [`rule`](super::rule). On aarch64 no rule is
//! learnt yet: framehop is asked for each frame, which takes 15 to 28 ns on x86-64, and there are more of its caches.

use core::cell::{Cell, UnsafeCell};
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use framehop::{CacheNative, MustNotAllocateDuringUnwind};

use super::rule_cache::RuleCache;
use crate::hook::own_process;

pub(super) type Cache = CacheNative<MustNotAllocateDuringUnwind>;

/// The most caches of one kind.
const MOST: usize = 64;
/// In one element of `FRAMEHOP`. Where no rule is learnt each frame needs a place, and one in four stacks of 32 frames has two
/// that share a place; with a single cache most stacks would.
const FRAMEHOP_CACHES: usize = if cfg!(target_arch = "aarch64") { 4 } else { 1 };

static RULES: Pool<Rules> = Pool::new();
static FRAMEHOP: Pool<Box<[Cache]>> = Pool::new();
/// The process for which the caches were made or renewed.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Whether rules of this process were replaced that one of its threads may still use.
static IS_REPLACED_IN_USE: AtomicBool = AtomicBool::new(false);

/// The rules that walks have learnt.
pub(super) struct Rules {
    cache: RuleCache,
    /// The generation of modules from which they were learnt; 0 before the first. (framehop counts its generations
    /// separately.)
    generation: u64,
}

impl Rules {
    fn new(cache: RuleCache) -> Self {
        Self { cache, generation: 0 }
    }

    /// Returns the rules for the modules of this generation. Those of other modules are forgotten.
    #[inline]
    pub(super) fn of(&mut self, generation: u64) -> &mut RuleCache {
        if self.generation != generation {
            // Unused memory stays untouched.
            if self.generation != 0 {
                self.cache.forget();
            }
            self.generation = generation;
        }
        &mut self.cache
    }
}

fn framehop_caches() -> Box<[Cache]> {
    (0..FRAMEHOP_CACHES).map(|_| Cache::new_in()).collect()
}

/// Values that are taken one by one. The first `count` slots are leaked, and the others null. Not a `OnceLock`: a forked child
/// would wait for the thread that was filling it.
struct Pool<T: 'static> {
    slots: [AtomicPtr<Slot<T>>; MOST],
    count: AtomicUsize,
    /// The number of slots with which threads begin.
    few: AtomicUsize,
}

/// Aligned so that two neighbours share no cache line.
#[repr(align(128))]
struct Slot<T> {
    taken: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only accessed by the thread that changed `taken` from 0 to 1, or by threads to which that one lends it.
unsafe impl<T: Send + Sync> Sync for Slot<T> {}

impl<T> Slot<T> {
    fn leaked(value: T) -> *mut Self {
        Box::into_raw(Box::new(Self { taken: AtomicU32::new(0), value: UnsafeCell::new(value) }))
    }

    fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn try_take(&'static self) -> Option<SlotGuard<T>> {
        let is_free = !self.is_taken()
            && self.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Not made if it is not free: its end would free what another thread has taken.
        is_free.then(|| SlotGuard(self))
    }
}

/// Exclusive access to a value of a pool, until this is dropped.
pub(super) struct SlotGuard<T: 'static>(&'static Slot<T>);

impl<T> Deref for SlotGuard<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread has changed `taken` from 0 to 1, and changes it back when this is dropped.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for SlotGuard<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; and this is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for SlotGuard<T> {
    #[inline]
    fn drop(&mut self) {
        self.0.taken.store(0, Ordering::Release);
    }
}

impl<T: Send + Sync> Pool<T> {
    const fn new() -> Self {
        let slots = [const { AtomicPtr::new(core::ptr::null_mut()) }; MOST];
        Self { slots, count: AtomicUsize::new(0), few: AtomicUsize::new(0) }
    }

    /// Fills the pool, once.
    fn fill(&self, values: impl Iterator<Item = T>, few: usize) {
        let mut count = 0;
        for (slot, value) in self.slots.iter().zip(values) {
            slot.store(Slot::leaked(value), Ordering::Release);
            count += 1;
        }
        self.few.store(few.min(count), Ordering::Relaxed);
        self.count.store(count, Ordering::Release);
    }

    /// Returns the slot with this number, which is less than `count`.
    #[inline]
    fn slot(&self, number: usize) -> &'static Slot<T> {
        // SAFETY: stored before `count`, and leaked, so it stays valid.
        unsafe { &*self.slots[number].load(Ordering::Acquire) }
    }

    /// Takes a value; `None` if all are taken.
    #[inline]
    fn take(&self) -> Option<SlotGuard<T>> {
        thread_local! {
            // The slot that this thread tries first, plus one; 0 before its first walk.
            static PREFERRED: Cell<u32> = const { Cell::new(0) };
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let preferred = PREFERRED.with(|cell| {
            if cell.get() == 0 {
                cell.set(NEXT.fetch_add(1, Ordering::Relaxed) % 1024 + 1);
            }
            cell.get() as usize
        });
        let count = self.count.load(Ordering::Acquire);
        let few = self.few.load(Ordering::Relaxed);
        let number = |at: usize| if at < few { (preferred + at) % few } else { at };
        (0..count).find_map(|at| self.slot(number(at)).try_take())
    }

    /// Replaces the values that are taken by ones that `fresh` makes, as far as it can. Returns whether there were any.
    fn replace_taken(&self, fresh: impl Fn() -> Option<T>) -> bool {
        let mut is_replaced = false;
        for number in 0..self.count.load(Ordering::Acquire) {
            if self.slot(number).is_taken()
                && let Some(value) = fresh()
            {
                self.slots[number].store(Slot::leaked(value), Ordering::Release);
                is_replaced = true;
            }
        }
        is_replaced
    }

    /// Takes each value in turn, and exchanges it for one that `fresh` returns, if any. A value that stays in use, for long by a
    /// thread that lost its core, is left as it is. Returns whether none did.
    fn exchange_each(&self, fresh: impl Fn() -> Option<T>) -> bool {
        let mut are_all_free = true;
        for number in 0..self.count.load(Ordering::Acquire) {
            // Made before and freed after the value is taken: the allocator may be the program's.
            let mut fresh = fresh();
            // A walk takes microseconds, unless its thread is preempted.
            let taken = (0..200).find_map(|_| {
                let taken = self.slot(number).try_take();
                if taken.is_none() {
                    std::thread::yield_now();
                }
                taken
            });
            are_all_free &= taken.is_some();
            if let (Some(mut taken), Some(fresh)) = (taken, &mut fresh) {
                core::mem::swap(&mut *taken, fresh);
            }
        }
        are_all_free
    }
}

/// Makes the caches. Called by [`crate::init::open`], by one thread at a time; must not be called in a hook.
pub(super) fn open() {
    if RULES.count.load(Ordering::Acquire) == 0 {
        PROCESS.store(own_process(), Ordering::Relaxed);
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        let few = (2 * cores).clamp(4, MOST);
        // Where no rule is learnt every walk needs them.
        let asking = if cfg!(target_arch = "aarch64") { (2 * few).min(MOST) } else { few };
        // Before the rules, without which no walk begins.
        FRAMEHOP.fill((0..asking).map(|_| framehop_caches()), few);
        RULES.fill(RuleCache::several(MOST).map(Rules::new), few);
    }
}

/// Takes rules for a walk of this thread. Returns `None` if all are taken. Safe to call in a hook.
#[inline]
pub(super) fn take() -> Option<SlotGuard<Rules>> {
    RULES.take()
}

/// Takes caches of framehop for a walk of this thread, which has taken rules. Returns `None` if all are taken. Safe to call in
/// a hook.
#[cold]
pub(super) fn take_framehop() -> Option<SlotGuard<Box<[Cache]>>> {
    FRAMEHOP.take()
}

/// Replaces caches whose holders do not exist in a forked child. Called by one thread at a time, which holds the lock of the
/// modules; must not be called in a hook.
pub(super) fn renew() {
    let process = own_process();
    if PROCESS.swap(process, Ordering::Relaxed) != process {
        // A thread of the child may have taken one too. It keeps that one until it has finished its walk.
        let is_replaced = RULES.replace_taken(|| RuleCache::several(1).next().map(Rules::new));
        FRAMEHOP.replace_taken(|| Some(framehop_caches()));
        IS_REPLACED_IN_USE.store(is_replaced, Ordering::Relaxed);
    }
}

/// Gives framehop fresh caches, for other modules: it recognises stale entries by a 16-bit generation, which wraps in a program
/// that loads plugins for ever. Rules are forgotten by the next walk ([`Rules::of`]).
///
/// Returns whether no walk that began before this call is still running. Where rules were replaced in use, nothing tells when
/// that use ends, so this returns false from then on. Called as [`renew`] is.
pub(super) fn empty() -> bool {
    FRAMEHOP.exchange_each(|| Some(framehop_caches()));
    // A walk keeps its rules to its end.
    let are_all_over = RULES.exchange_each(|| None);
    are_all_over && !IS_REPLACED_IN_USE.load(Ordering::Relaxed)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{MAX_STACK, NO_END, bounds, registers, unwound};
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn take_all() -> Vec<SlotGuard<Rules>> {
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

    /// Threads that lose their cores in a walk keep what they have taken.
    #[test]
    fn a_walk_beside_many_others_finds_caches() {
        forked(|| {
            renew();
            let depth = || {
                let registers = registers();
                unwound(registers, bounds::of_stack_at(registers.sp), NO_END, &mut [0; MAX_STACK])
            };
            let _others: Vec<_> = (1..MOST).filter_map(|_| take()).collect();
            // A cache in which nothing is known yet, and then one that knows the rules.
            assert!(depth() > 0 && depth() > 0);
            let _last = take();
            assert_eq!(depth(), 0, "this is about the number of caches");
        });
    }

    #[test]
    fn threads_begin_with_a_few() {
        forked(|| {
            renew();
            let few = RULES.few.load(Ordering::Relaxed);
            let number =
                |taken: &SlotGuard<Rules>| (0..MOST).find(|&at| core::ptr::eq(RULES.slot(at), taken.0));
            let all = take_all();
            assert_eq!(all.len(), MOST);
            let first: Vec<_> = all[..few].iter().filter_map(number).collect();
            assert!(first.iter().all(|&at| at < few), "{first:?} of {few}");
            assert!(take().is_none());
            drop(all);
            assert!(take().is_some_and(|taken| number(&taken).is_some_and(|at| at < few)));
        });
    }

    /// A child has all of them after its first reading, although they were in use when it was forked.
    #[test]
    fn a_forked_child_replaces_those_in_use() {
        forked(|| {
            renew();
            let held = take_all();
            forked(|| {
                assert!(take_all().is_empty());
                renew();
                assert_eq!(take_all().len(), held.len());
                // A thread of the child may be in a walk with the caches of a replaced one, and so with any modules since.
                assert!(!empty() && !empty());
                forked(|| {
                    renew();
                    assert!(empty(), "no thread of the parent is here");
                });
            });
            renew();
            assert!(take_all().is_empty(), "in the parent they are in use");
        });
    }
}
