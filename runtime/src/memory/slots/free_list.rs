//! The free slots: a stack of their numbers, linked through the slots themselves.
//!
//! Problem: a thread that takes the top slot reads which slot is below it, and swaps the head from one to the other. If
//! the thread is delayed in between, others may take both slots and give the first one back: the head has its old
//! value, the swap succeeds, and the slot below is free and in use at once.
//!
//! Scheme: the head contains a count of all pops, so that it never repeats. The count has 32 bits; a thread would have
//! to be delayed for exactly 2^32 pops.

use crate::primitive::{AtomicU32, AtomicU64, Ordering};

/// The empty list; slot n is stored as n + 1.
const END: u32 = 0;

pub(super) struct FreeList {
    /// The count of pops, and below it the first slot.
    head: AtomicU64,
}

/// The field of a slot by which the list links it.
#[derive(Default)]
pub(super) struct Link(AtomicU32);

impl Link {
    const_fn! {
        pub(super) const fn new() -> Self {
            Self(AtomicU32::new(END))
        }
    }
}

impl FreeList {
    const_fn! {
        pub(super) const fn new() -> Self {
            Self { head: AtomicU64::new(END as u64) }
        }
    }

    /// Gives back slot `number`, whose link is `link`. The slot is free and not in the list.
    pub(super) fn push(&self, number: u32, link: &Link) {
        // Release: the thread that takes the slot sees the slot's contents, including the link.
        let _ = self.head.fetch_update(Ordering::Release, Ordering::Relaxed, |head| {
            link.0.store(head as u32, Ordering::Relaxed);
            Some(head & !u64::from(u32::MAX) | u64::from(number + 1))
        });
    }

    /// Empties the list.
    pub(super) fn clear(&self) {
        self.head.fetch_and(!u64::from(u32::MAX), Ordering::Relaxed);
    }

    /// Takes the slot that was given back last. `link` returns the link of any slot that ever was in the list.
    pub(super) fn pop<'a>(&self, link: impl Fn(u32) -> &'a Link) -> Option<u32> {
        // Acquire on success too: the slot below may have been pushed since.
        let popped = self.head.fetch_update(Ordering::Acquire, Ordering::Acquire, |head| {
            let number = (head as u32).checked_sub(1)?;
            // The slot may belong to another thread by now; then the swap fails.
            let below = link(number).0.load(Ordering::Relaxed);
            Some(((head >> 32).wrapping_add(1)) << 32 | u64::from(below))
        });
        Some(popped.ok()? as u32 - 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_given_back_is_taken_first() {
        let links: [Link; 3] = Default::default();
        let list = FreeList::new();
        let pop = || list.pop(|n| &links[n as usize]);
        assert_eq!(pop(), None);
        for n in [1, 0, 2] {
            list.push(n, &links[n as usize]);
        }
        assert_eq!([pop(), pop(), pop(), pop()], [Some(2), Some(0), Some(1), None]);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    struct SlotTable {
        list: FreeList,
        links: [Link; 2],
        owned: [AtomicU32; 2],
    }

    impl SlotTable {
        fn take(&self) -> Option<u32> {
            let number = self.list.pop(|n| &self.links[n as usize])?;
            let before = self.owned[number as usize].swap(1, Ordering::Relaxed);
            assert_eq!(before, 0, "slot {number} was handed out twice");
            Some(number)
        }

        fn give_back(&self, number: u32) {
            // Relaxed: the list itself must order one owner's writes before the next owner's reads.
            assert_eq!(self.owned[number as usize].load(Ordering::Relaxed), 1);
            self.owned[number as usize].store(0, Ordering::Relaxed);
            self.list.push(number, &self.links[number as usize]);
        }
    }

    /// One thread takes both slots and gives the first one back while the other is about to take it.
    #[test]
    fn loom_a_slot_has_one_owner() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let slots = Arc::new(SlotTable {
                list: FreeList::new(),
                links: [Link::default(), Link::default()],
                owned: [AtomicU32::new(1), AtomicU32::new(1)],
            });
            slots.give_back(0);
            slots.give_back(1);
            let other = {
                let slots = slots.clone();
                loom::thread::spawn(move || {
                    let first = slots.take();
                    let second = slots.take();
                    if let Some(first) = first {
                        slots.give_back(first);
                    }
                    second.is_some()
                })
            };
            let mine = slots.take();
            if let Some(mine) = mine {
                slots.give_back(mine);
            }
            let kept = usize::from(other.join().unwrap());
            let left = core::iter::from_fn(|| slots.take()).count();
            assert_eq!(left + kept, 2, "a slot was lost");
        });
    }
}
