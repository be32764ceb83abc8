//! Tables of numbered slots of one type: as many as were ever in use at one time. They hold goroutines, a trace's
//! records of threads, and a trace's buffers.
//!
//! ```text
//!   blocks ─► ┌ 32 ┐ ┌ 64 ┐ ┌ 128 ┐ …   each a separate mapping, twice the previous
//!             └────┘ └────┘ └─────┘
//!              0…31   32…95  96…223     used: numbers below it were handed out at least once
//! ```
//!
//! No lock: free slots are in a `FreeList`, and when that is empty the next number is taken by a compare-and-swap,
//! after its block was installed by another one. (The arena of the tables is unsuitable for two reasons: slots are
//! aligned to more than the arena's allocations, and here the thread that loses the race for a block can unmap it.)

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

/// The maximum number of slots in a table: 4,194,272.
pub(crate) const LIMIT: u32 = FIRST * ((1 << BLOCKS) - 1);

/// The type of a slot.
///
/// # Safety
/// Zeroed memory is a valid value, the default: a slot that is not in use. The alignment is at most
/// [`crate::memory::mapping::PAGE`], and the type needs no drop.
pub unsafe trait Slot: Sync + Default {
    /// Returns its index in the table.
    fn index(&self) -> &SlotIndex;
}

/// The index of a slot, and its link in the list of free slots.
#[derive(Default)]
pub struct SlotIndex {
    number: AtomicU32,
    link: Link,
}

impl SlotIndex {
    const_fn! {
        /// Makes the index of a slot that is in no table yet.
        #[allow(clippy::new_without_default)]
        pub const fn new() -> Self {
            Self { number: AtomicU32::new(0), link: Link::new() }
        }
    }

    /// Returns the number of the slot in its table, from 0.
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }
}

/// A table of slots.
pub struct SlotTable<T> {
    blocks: [AtomicPtr<T>; BLOCKS],
    used: AtomicU32,
    limit: AtomicU32,
    free: FreeList,
}

// SAFETY: slots are shared by reference between all threads, and are `Sync`.
unsafe impl<T: Slot> Sync for SlotTable<T> {}
// SAFETY: a table holds nothing that is bound to a thread.
unsafe impl<T: Slot> Send for SlotTable<T> {}

/// Returns the block of a slot number, and the position in the block.
fn index(number: u32) -> (usize, usize) {
    let block = (number / FIRST + 1).ilog2();
    (block as usize, (number - FIRST * ((1 << block) - 1)) as usize)
}

impl<T: Slot> SlotTable<T> {
    const_fn! {
        /// Makes an empty table.
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

    /// Sets the maximum number of slots; existing slots beyond it stay in use. At most [`LIMIT`].
    #[cfg(test)]
    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(limit.min(LIMIT), Ordering::Relaxed);
    }

    /// Takes a slot, which the caller then owns. Returns `None` when the kernel grants no more memory, or at the limit.
    /// Safe to call in a hook.
    pub fn take(&self) -> Option<&T> {
        match self.free.pop(|number| &self.slot(number).index().link) {
            Some(number) => Some(self.slot(number)),
            None => self.take_new(),
        }
    }

    /// Gives back a slot from [`SlotTable::take`]. Safe to call in a hook.
    pub fn give_back(&self, slot: &T) {
        self.give_back_at(slot.index());
    }

    /// Gives back the slot with this index. Safe to call in a hook.
    pub fn give_back_at(&self, index: &SlotIndex) {
        // The caller has taken the slot, or has read its contents, which were written after that.
        self.free.push(index.number(), &index.link);
    }

    /// Removes all slots and returns their memory to the kernel. Their blocks stay mapped.
    ///
    /// # Safety
    /// All slots are free, and no thread takes a slot during the call.
    pub unsafe fn clear(&self) {
        self.free.clear();
        self.used.store(0, Ordering::Release);
        for (block, start) in self.blocks.iter().enumerate() {
            if let Some(start) = NonNull::new(start.load(Ordering::Acquire)) {
                // SAFETY: this is a whole mapping made by `map_zeroed`, and the caller guarantees that all its slots
                // are free. Zeroed memory is a slot that is not in use.
                let _ = unsafe {
                    crate::memory::mapping::discard(
                        start.cast(),
                        ((FIRST as usize) << block) * size_of::<T>(),
                    )
                };
            }
        }
    }

    /// Returns how many slots were ever needed at one time.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed) as usize
    }

    /// Iterates over all slots, in use or not.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        // Acquire: the blocks of these slots are visible.
        (0..self.used.load(Ordering::Acquire)).map(|number| self.slot(number))
    }

    /// Returns slot `number`, which is below a value of `used` that the caller has read.
    fn slot(&self, number: u32) -> &T {
        let (block, at) = index(number);
        let start = self.blocks[block].load(Ordering::Acquire);
        // SAFETY: the block was made before `used` exceeded the number, it holds the slot, and it is never unmapped.
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

    /// Makes a block unless it exists. Returns `false` when there is no memory for it.
    fn make_block(&self, block: usize) -> bool {
        let cell = &self.blocks[block];
        if !cell.load(Ordering::Acquire).is_null() {
            return true;
        }
        let len = (FIRST as usize) << block;
        // SAFETY: an implementation of `Slot` guarantees that zeroed memory is valid.
        let Some(made) = (unsafe { map_zeroed(len) }) else { return false };
        let null = core::ptr::null_mut();
        // AcqRel: a thread that finds the block sees it zeroed, and so does the loser for the winner's block.
        if cell.compare_exchange(null, made.as_ptr(), Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: the mapping was not installed, so only this thread has it.
            unsafe { unmap_zeroed(made, len) };
        }
        true
    }
}

#[cfg(test)]
mod numbered {
    use super::SlotIndex;
    use crate::primitive::AtomicU64;

    /// A slot that holds its user's number.
    #[derive(Default)]
    pub(super) struct Numbered {
        pub(super) index: SlotIndex,
        pub(super) user: AtomicU64,
    }

    // SAFETY: the fields are atomics, for which zero is valid.
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
                    for round in 0..if cfg!(miri) { 10 } else { 2_000 } {
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

    /// Two threads need slots at the same time, in blocks that are not made yet.
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
