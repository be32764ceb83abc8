//! Slots of one kind, by number: as many as were ever in use at one time. Goroutines live in such, and what a
//! trace has of threads, and its buffers.
//!
//! ```text
//!   blocks ─► ┌ 32 ┐ ┌ 64 ┐ ┌ 128 ┐ …   each a mapping of its own, twice the one before
//!             └────┘ └────┘ └─────┘
//!              0…31   32…95  96…223     used: numbers below it were handed out at least once
//! ```
//!
//! No lock: free slots are in a `FreeList`, and when that is empty the next number is taken by a
//! compare-and-swap, after its block was made by one. (The arena of the tables would do but for two
//! things: slots are aligned to more than its places, and who loses the race for a block can unmap it here.)

use core::ptr::NonNull;

mod free_list;

use crate::primitive::{AtomicPtr, AtomicU32, Ordering, map_zeroed, unmap_zeroed};
use free_list::{FreeList, Link};

#[cfg(not(loom))]
const FIRST: u32 = 32;
#[cfg(loom)]
const FIRST: u32 = 1;

#[cfg(not(loom))]
const BLOCKS: usize = 17;
#[cfg(loom)]
const BLOCKS: usize = 3;

/// The most slots of a kind: 4,194,272.
pub const LIMIT: u32 = FIRST * ((1 << BLOCKS) - 1);

/// What lives in slots.
///
/// # Safety
/// Zeroed memory is a valid value, the default: one that is not in use. It is aligned to no more than [`crate::mapping::PAGE`], and
/// is not dropped.
pub unsafe trait Slot: Sync + Default {
    /// Its place among the others.
    fn index(&self) -> &SlotIndex;
}

/// Where a slot is, and how the free ones are linked.
#[derive(Default)]
pub struct SlotIndex {
    number: AtomicU32,
    link: Link,
}

impl SlotIndex {
    const_fn! {
        /// Of a slot that is none of a kind's yet.
        #[allow(clippy::new_without_default)]
        pub const fn new() -> Self {
            Self { number: AtomicU32::new(0), link: Link::new() }
        }
    }

    /// The number of the slot among those of its kind, from 0.
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }
}

/// All slots of a kind.
pub struct SlotTable<T> {
    blocks: [AtomicPtr<T>; BLOCKS],
    used: AtomicU32,
    limit: AtomicU32,
    free: FreeList,
}

// SAFETY: slots are shared by reference between all threads, and are `Sync`.
unsafe impl<T: Slot> Sync for SlotTable<T> {}
// SAFETY: nothing in it is bound to a thread.
unsafe impl<T: Slot> Send for SlotTable<T> {}

/// The block that a number lies in, and its place there.
fn index(number: u32) -> (usize, usize) {
    let block = (number / FIRST + 1).ilog2();
    (block as usize, (number - FIRST * ((1 << block) - 1)) as usize)
}

impl<T: Slot> SlotTable<T> {
    const_fn! {
        /// None yet.
        #[allow(clippy::new_without_default)]
        pub const fn new() -> Self {
            Self {
                blocks: array_of![AtomicPtr::new(core::ptr::null_mut()); BLOCKS],
                used: AtomicU32::new(0),
                limit: AtomicU32::new(LIMIT),
                free: FreeList::new(),
            }
        }
    }

    /// Sets the most slots that are made; those beyond it that exist stay in use. At most [`LIMIT`].
    pub fn set_limit(&self, limit: u32) {
        self.limit.store(limit.min(LIMIT), Ordering::Relaxed);
    }

    /// A slot for the caller alone. `None` when the kernel gives no more memory, or at the limit. For hooks.
    pub fn take(&self) -> Option<&T> {
        match self.free.pop(|number| &self.slot(number).index().link) {
            Some(number) => Some(self.slot(number)),
            None => self.take_new(),
        }
    }

    /// Gives back what [`SlotTable::take`] gave. For hooks.
    pub fn give_back(&self, slot: &T) {
        self.give_back_at(slot.index());
    }

    /// Gives back the slot with this place. For hooks.
    pub fn give_back_at(&self, index: &SlotIndex) {
        // The caller has taken the slot, or has seen what is in it, which began after that.
        self.free.push(index.number(), &index.link);
    }

    /// Forgets all slots and gives their memory back to the kernel. Their blocks stay mapped.
    ///
    /// # Safety
    /// All slots are free, and nobody takes one meanwhile.
    pub unsafe fn clear(&self) {
        self.free.clear();
        self.used.store(0, Ordering::Release);
        for (block, start) in self.blocks.iter().enumerate() {
            if let Some(start) = NonNull::new(start.load(Ordering::Acquire)) {
                // SAFETY: the whole of a mapping that `map` has made, and all in it is free, by the caller's promise. What
                // is zeroed is a slot that is not in use.
                let _ = unsafe {
                    crate::mapping::discard(start.cast(), ((FIRST as usize) << block) * size_of::<T>())
                };
            }
        }
    }

    /// How many were ever needed at one time.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed) as usize
    }

    /// All slots, in use or not.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        // Acquire: the blocks of these are seen.
        (0..self.used.load(Ordering::Acquire)).map(|number| self.slot(number))
    }

    /// `number` is below `used`, as seen by the caller.
    fn slot(&self, number: u32) -> &T {
        let (block, at) = index(number);
        let start = self.blocks[block].load(Ordering::Acquire);
        // SAFETY: the block was made before `used` went beyond the number, it holds the place, and it is
        // never unmapped.
        unsafe { &*start.add(at) }
    }

    #[cold]
    fn take_new(&self) -> Option<&T> {
        let mut number = self.used.load(Ordering::Acquire);
        loop {
            if number >= self.limit.load(Ordering::Relaxed) || !self.make_block(index(number).0) {
                return None;
            }
            match self.used.compare_exchange_weak(number, number + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let slot = self.slot(number);
                    slot.index().number.store(number, Ordering::Relaxed);
                    return Some(slot);
                }
                Err(seen) => number = seen,
            }
        }
    }

    /// Makes a block unless it is there. `false` when there is no memory for it.
    fn make_block(&self, block: usize) -> bool {
        let index = &self.blocks[block];
        if !index.load(Ordering::Acquire).is_null() {
            return true;
        }
        let len = (FIRST as usize) << block;
        // SAFETY: by the promise of `Slot`.
        let Some(made) = (unsafe { map_zeroed(len) }) else { return false };
        let null = core::ptr::null_mut();
        // AcqRel: who finds the block finds it zeroed; who has lost finds the other's so.
        if index.compare_exchange(null, made.as_ptr(), Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: ours alone: it was not installed.
            unsafe { unmap_zeroed(made, len) };
        }
        true
    }
}

#[cfg(test)]
mod numbered {
    use super::SlotIndex;
    use crate::primitive::AtomicU64;

    /// A slot that bears its user's number.
    #[derive(Default)]
    pub(super) struct Numbered {
        pub(super) index: SlotIndex,
        pub(super) user: AtomicU64,
    }

    // SAFETY: of atomics, for which zero is valid.
    unsafe impl super::Slot for Numbered {
        fn index(&self) -> &SlotIndex {
            &self.index
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::numbered::Numbered;
    use super::*;

    #[test]
    fn numbers_have_places_of_their_own() {
        assert_eq!([0, 31, 32, 95, 96].map(index), [(0, 0), (0, 31), (1, 0), (1, 63), (2, 0)]);
        let (block, at) = index(LIMIT - 1);
        assert_eq!((block, at), (BLOCKS - 1, ((FIRST as usize) << (BLOCKS - 1)) - 1));
    }

    #[test]
    #[cfg(rtprof_supported)]
    fn slots_are_used_again_and_as_many_as_are_live_at_once() {
        const AT_ONCE: usize = 25;
        const THREADS: usize = 4;
        let slots: SlotTable<Numbered> = SlotTable::new();
        std::thread::scope(|s| {
            for thread in 0..THREADS {
                let slots = &slots;
                s.spawn(move || {
                    for round in 0..2_000 {
                        let id = (round * THREADS + thread + 1) as u64;
                        let taken: Vec<_> = (0..AT_ONCE).map(|_| slots.take().unwrap()).collect();
                        for slot in &taken {
                            let before = slot.user.swap(id, Ordering::Relaxed);
                            assert_eq!(before, 0, "somebody else is in this slot");
                        }
                        for slot in taken {
                            let after = slot.user.swap(0, Ordering::Relaxed);
                            assert_eq!(after, id, "somebody else was in this slot");
                            slots.give_back(slot);
                        }
                    }
                });
            }
        });
        let used = slots.used();
        assert!((AT_ONCE..=THREADS * AT_ONCE).contains(&used), "{used} slots for {AT_ONCE} a thread");
        assert!(slots.iter().all(|slot| slot.user.load(Ordering::Relaxed) == 0));
        let all: std::collections::HashSet<_> =
            core::iter::from_fn(|| (slots.used() == used).then(|| slots.take()).flatten())
                .map(|slot| slot.index().number())
                .collect();
        assert_eq!(all.len(), used + 1, "all were free, and then a new one was made");
    }

    #[test]
    #[cfg(rtprof_supported)]
    fn a_limit_holds() {
        let slots: SlotTable<Numbered> = SlotTable::new();
        slots.set_limit(3);
        let taken: Vec<_> = core::iter::from_fn(|| slots.take()).collect();
        assert_eq!(taken.len(), 3);
        slots.give_back(taken[1]);
        assert_eq!(slots.take().unwrap().index().number(), 1);
        assert!(slots.take().is_none());
        slots.set_limit(u32::MAX);
        assert!(slots.take().is_some());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::numbered::Numbered;
    use super::*;
    use loom::sync::Arc;

    /// Two threads need slots at once, of blocks that are not made yet.
    #[test]
    fn loom_new_slots_have_one_owner() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let slots: Arc<SlotTable<Numbered>> = Arc::new(SlotTable::new());
            let other = {
                let slots = slots.clone();
                loom::thread::spawn(move || {
                    slots.give_back(slots.take().unwrap());
                    slots.take().unwrap().index().number()
                })
            };
            let mine = slots.take().unwrap().index().number();
            let seen = slots.iter().count();
            let theirs = other.join().unwrap();
            assert_ne!(mine, theirs, "a slot was handed out twice");
            assert!(seen >= 1 && slots.used() <= 2, "{} slots for two at a time", slots.used());
        });
    }
}
