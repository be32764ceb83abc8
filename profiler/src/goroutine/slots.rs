//! All slots that were ever needed, by number: as many as goroutines were live at one time.
//!
//! ```text
//!   blocks ─► ┌ 32 ┐ ┌ 64 ┐ ┌ 128 ┐ …   each a mapping of its own, twice the one before
//!             └────┘ └────┘ └─────┘
//!              0…31   32…95  96…223     used: numbers below it were handed out at least once
//! ```
//!
//! No lock: free slots are in a [`FreeList`], and when that is empty the next number is taken by a
//! compare-and-swap, after its block was made by one. (The arena of the tables would do but for two
//! things: slots are aligned to more than its places, and who loses the race for a block can unmap it here.)

use core::ptr::NonNull;

use super::free_list::FreeList;
use super::slot::Goroutine;
use crate::primitive::{AtomicPtr, AtomicU32, Ordering};

#[cfg(not(loom))]
const FIRST: u32 = 32;
#[cfg(loom)]
const FIRST: u32 = 1;

#[cfg(not(loom))]
const BLOCKS: usize = 17;
#[cfg(loom)]
const BLOCKS: usize = 3;

/// The most goroutines at one time: 4,194,272, in 512 MiB.
const LIMIT: u32 = FIRST * ((1 << BLOCKS) - 1);

pub(super) struct Slots {
    blocks: [AtomicPtr<Goroutine>; BLOCKS],
    used: AtomicU32,
    free: FreeList,
}

/// The block that a number lies in, and its place there.
fn place(number: u32) -> (usize, usize) {
    let block = (number / FIRST + 1).ilog2();
    (block as usize, (number - FIRST * ((1 << block) - 1)) as usize)
}

impl Slots {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self {
            blocks: [const { AtomicPtr::new(core::ptr::null_mut()) }; BLOCKS],
            used: AtomicU32::new(0),
            free: FreeList::new(),
        }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self {
            blocks: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
            used: AtomicU32::new(0),
            free: FreeList::new(),
        }
    }

    /// A slot for the caller alone. `None` when the kernel gives no more memory, or at the limit.
    pub(super) fn take(&self) -> Option<&Goroutine> {
        match self.free.pop(|number| &self.slot(number).link) {
            Some(number) => Some(self.slot(number)),
            None => self.take_new(),
        }
    }

    /// Gives back what [`Slots::take`] gave.
    pub(super) fn give_back(&self, slot: &Goroutine) {
        // Relaxed: the caller has taken the slot, or has seen its goroutine, which began after that.
        self.free.push(slot.number.load(Ordering::Relaxed), &slot.link);
    }

    /// How many were ever needed at one time.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed) as usize
    }

    /// All slots, in use or not.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Goroutine> {
        // Acquire: the blocks of these are seen.
        (0..self.used.load(Ordering::Acquire)).map(|number| self.slot(number))
    }

    /// `number` is below `used`, as seen by the caller.
    fn slot(&self, number: u32) -> &Goroutine {
        let (block, at) = place(number);
        let start = self.blocks[block].load(Ordering::Acquire);
        // SAFETY: the block was made before `used` went beyond the number, it holds the place, and it is
        // never unmapped.
        unsafe { &*start.add(at) }
    }

    #[cold]
    fn take_new(&self) -> Option<&Goroutine> {
        let mut number = self.used.load(Ordering::Acquire);
        loop {
            if number == LIMIT || !self.make_block(place(number).0) {
                return None;
            }
            match self.used.compare_exchange_weak(number, number + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let slot = self.slot(number);
                    slot.number.store(number, Ordering::Relaxed);
                    return Some(slot);
                }
                Err(seen) => number = seen,
            }
        }
    }

    /// Makes a block unless it is there. `false` when there is no memory for it.
    fn make_block(&self, block: usize) -> bool {
        let place = &self.blocks[block];
        if !place.load(Ordering::Acquire).is_null() {
            return true;
        }
        let len = (FIRST as usize) << block;
        let Some(made) = map(len) else { return false };
        let null = core::ptr::null_mut();
        // AcqRel: who finds the block finds it zeroed; who has lost finds the other's so.
        if place.compare_exchange(null, made.as_ptr(), Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: ours alone: it was not installed.
            unsafe { unmap(made, len) };
        }
        true
    }
}

/// Zeroed memory, which is valid: slots that are free. Pages cost memory only once used.
#[cfg(not(loom))]
fn map(len: usize) -> Option<NonNull<Goroutine>> {
    const { assert!(align_of::<Goroutine>() <= crate::mapping::PAGE) };
    Some(crate::mapping::map(len * size_of::<Goroutine>())?.cast())
}

/// # Safety
/// The block is from [`map`] with this length, and nobody else knows it.
#[cfg(not(loom))]
unsafe fn unmap(block: NonNull<Goroutine>, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { crate::mapping::unmap(block.cast(), len * size_of::<Goroutine>()) };
}

#[cfg(loom)]
fn map(len: usize) -> Option<NonNull<Goroutine>> {
    let block: Vec<_> = (0..len).map(|_| Goroutine::default()).collect();
    NonNull::new(Box::leak(block.into_boxed_slice()).as_mut_ptr())
}

#[cfg(loom)]
unsafe fn unmap(block: NonNull<Goroutine>, len: usize) {
    // SAFETY: leaked by `map` as a slice of this length, and nobody else knows it.
    drop(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(block.as_ptr(), len)) });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_places_of_their_own() {
        assert_eq!([0, 31, 32, 95, 96].map(place), [(0, 0), (0, 31), (1, 0), (1, 63), (2, 0)]);
        let (block, at) = place(LIMIT - 1);
        assert_eq!((block, at), (BLOCKS - 1, ((FIRST as usize) << (BLOCKS - 1)) - 1));
        assert_eq!((size_of::<Goroutine>(), align_of::<Goroutine>()), (128, 128));
    }

    #[test]
    #[cfg(rtprof_supported)]
    fn slots_are_used_again_and_as_many_as_are_live_at_once() {
        const AT_ONCE: usize = 25;
        const THREADS: usize = 4;
        let slots = Slots::new();
        std::thread::scope(|s| {
            for thread in 0..THREADS {
                let slots = &slots;
                s.spawn(move || {
                    for round in 0..2_000 {
                        let id = (round * THREADS + thread + 1) as u64;
                        let taken: Vec<_> = (0..AT_ONCE).map(|_| slots.take().unwrap()).collect();
                        for slot in &taken {
                            assert_eq!(slot.id(), 0, "somebody else is in this slot");
                            let identity = super::super::slot::Identity {
                                id,
                                thread_id: 1,
                                process: 1,
                                name: "",
                                created_by: None,
                            };
                            slot.begin(identity);
                        }
                        for slot in taken {
                            assert!(slot.end(id), "somebody else was in this slot");
                            slots.give_back(slot);
                        }
                    }
                });
            }
        });
        let used = slots.used();
        assert!((AT_ONCE..=THREADS * AT_ONCE).contains(&used), "{used} slots for {AT_ONCE} a thread");
        assert_eq!(slots.iter().filter(|slot| slot.id() != 0).count(), 0);
        let all: std::collections::HashSet<_> =
            core::iter::from_fn(|| (slots.used() == used).then(|| slots.take()).flatten())
                .map(Goroutine::token)
                .collect();
        assert_eq!(all.len(), used + 1, "all were free, and then a new one was made");
        assert!(all.iter().all(|token| token % 128 == 0));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Two threads need slots at once, of blocks that are not made yet.
    #[test]
    fn loom_new_slots_have_one_owner() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let slots = Arc::new(Slots::new());
            let other = {
                let slots = slots.clone();
                loom::thread::spawn(move || {
                    slots.give_back(slots.take().unwrap());
                    slots.take().unwrap().token()
                })
            };
            let mine = slots.take().unwrap().token();
            let seen = slots.iter().count();
            let theirs = other.join().unwrap();
            assert_ne!(mine, theirs, "a slot was handed out twice");
            assert!(seen >= 1 && slots.used() <= 2, "{} slots for two at a time", slots.used());
        });
    }
}
