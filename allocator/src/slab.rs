//! Slabs: 64 KiB of equal slots each, taken and given back by any thread without a lock.
//!
//! ```text
//!   per class:  stack of slabs that may have a free slot ──► slab ──► slab ──► ∅
//!   per slab :  one word = first free slot | slots in use | status | dirty | tag
//!               free slots linked by index, beside the slab, never inside it
//! ```
//!
//! Every change of a slab is one compare-and-swap of its word. The word's tag changes each time, so that a slot taken
//! and given back in between cannot be mistaken for an unchanged one. Links are stored as the distance from the next
//! slot: zeroed memory is a list of all slots in order, so that a slab needs no preparation, whether fresh or returned
//! to the kernel.
//!
//! | status | where the slab is | which thread changes the status |
//! |---|---|---|
//! | `LISTED` | on its class's stack, or just being popped or pushed | |
//! | `FULL` | on no stack | its popper; the first free makes it `LISTED` and pushes it |
//! | `PURGING` | on its class's stack; nothing is in use; no thread takes a slot | the thread that returns its memory |
//!
//! A thread that does not exist in a forked child can leave a slab popped or purging there. The child loses the free
//! slots of that slab, and those of slabs beneath a purging one, but no more.

use rtprof_runtime::primitive::{AtomicU32, AtomicU64, Ordering};

/// The state word of a slab, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlabWord {
    /// The first free slot; the number of slots when none is free.
    head: u32,
    /// Slots in use.
    live: u32,
    status: Status,
    /// Whether the slab is empty, but has memory that was used and is worth returning to the kernel.
    dirty: bool,
    tag: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Full,
    Listed,
    Purging,
}

const TAG_BITS: u32 = 29;

impl SlabWord {
    const FRESH: Self = Self { head: 0, live: 0, status: Status::Listed, dirty: false, tag: 0 };

    fn unpack(bits: u64) -> Self {
        Self {
            head: bits as u16 as u32,
            live: (bits >> 16) as u16 as u32,
            status: match bits >> 32 & 3 {
                0 => Status::Full,
                1 => Status::Listed,
                _ => Status::Purging,
            },
            dirty: bits >> 34 & 1 != 0,
            tag: (bits >> 35) as u32,
        }
    }

    fn pack(self) -> u64 {
        u64::from(self.head)
            | u64::from(self.live) << 16
            | (self.status as u64) << 32
            | u64::from(self.dirty) << 34
            | u64::from(self.tag) << 35
    }

    /// Returns the word with the changes of `change` and the next tag.
    fn with(self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self;
        change(&mut next);
        next.tag = (self.tag + 1) & ((1 << TAG_BITS) - 1);
        next
    }
}

/// The data of each slab, kept beside its memory.
pub(crate) struct Header {
    word: AtomicU64,
    /// The next slab on the stack plus one; meaningful only while the slab is on the stack.
    next: AtomicU32,
    class: AtomicU32,
}

impl Header {
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { word: AtomicU64::new(0), next: AtomicU32::new(0), class: AtomicU32::new(0) }
    }

    /// Makes the slab an empty one of `class`. Only its owner may call this, before the slab is listed.
    pub(crate) fn assign(&self, class: usize) {
        self.class.store(class as u32, Ordering::Relaxed);
        self.word.store(SlabWord::FRESH.pack(), Ordering::Release);
    }

    pub(crate) fn class(&self) -> usize {
        self.class.load(Ordering::Relaxed) as usize
    }

    fn load(&self) -> SlabWord {
        SlabWord::unpack(self.word.load(Ordering::Acquire))
    }

    /// Replaces the word if it is still `old`. Acquire and release: the accesses of a slot's last user happen before
    /// those of the next user.
    fn swap(&self, old: SlabWord, new: SlabWord) -> bool {
        self.word.compare_exchange(old.pack(), new.pack(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// The stack of slabs of one class that may have a free slot: the top slab plus one, and a tag that detects slabs
/// popped and pushed in between.
pub(crate) struct ClassStack(AtomicU64);

impl ClassStack {
    rtprof_runtime::const_fn! {
        pub(crate) const fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }
}

/// The slabs on which the functions of this module work.
pub(crate) trait Slabs {
    fn stack(&self, class: usize) -> &ClassStack;
    fn header(&self, slab: u32) -> &Header;
    /// Returns the link of a slot: the distance from its successor in memory to its successor in the list.
    fn link(&self, slab: u32, slot: u32) -> &AtomicU32;
    /// Returns the number of slots of a slab of this class.
    fn slots(&self, class: usize) -> u32;
    /// Adds a slab, assigned to the class and not listed; `None` when there are no more.
    fn grow(&self, class: usize) -> Option<u32>;
    /// Returns a slab's memory, links included, to the kernel, after which all of it reads as zero. `false` when the
    /// kernel refuses; then the links are unchanged.
    fn discard(&self, slab: u32) -> bool;
    /// Called when a slab becomes dirty (`1`) or stops being so (`-1`).
    fn count_dirty(&self, change: i32);
}

fn push(slabs: &impl Slabs, class: usize, slab: u32) {
    let top = &slabs.stack(class).0;
    let _ = top.fetch_update(Ordering::Release, Ordering::Relaxed, |seen| {
        slabs.header(slab).next.store(seen as u32, Ordering::Relaxed);
        Some((seen >> 32).wrapping_add(1) << 32 | u64::from(slab + 1))
    });
}

/// Takes a slot of the class, and returns (slab, slot). `None` when no slab can be added.
pub(crate) fn take(slabs: &impl Slabs, class: usize) -> Option<(u32, u32)> {
    let top = &slabs.stack(class).0;
    let slots = slabs.slots(class);
    loop {
        let seen = top.load(Ordering::Acquire);
        let Some(slab) = (seen as u32).checked_sub(1) else {
            push(slabs, class, slabs.grow(class)?);
            continue;
        };
        let header = slabs.header(slab);
        let word = header.load();
        if word.status == Status::Purging {
            // The purging thread will be done in a moment, but no thread waits for it.
            push(slabs, class, slabs.grow(class)?);
        } else if word.head == slots {
            let next = u64::from(header.next.load(Ordering::Relaxed));
            let new = (seen >> 32).wrapping_add(1) << 32 | next;
            if top.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                retire(slabs, class, slab);
            }
        } else {
            let next = slabs.link(slab, word.head).load(Ordering::Relaxed);
            let taken = word.with(|w| {
                w.head = next.wrapping_add(word.head + 1);
                w.live += 1;
                w.dirty = false;
            });
            if header.swap(word, taken) {
                if word.dirty {
                    slabs.count_dirty(-1);
                }
                return Some((slab, word.head));
            }
        }
    }
}

/// Marks a slab that the caller popped because it was full as full, or lists it again if a slot was given back since.
fn retire(slabs: &impl Slabs, class: usize, slab: u32) {
    let header = slabs.header(slab);
    loop {
        let word = header.load();
        if word.head != slabs.slots(class) {
            return push(slabs, class, slab);
        }
        if header.swap(word, word.with(|w| w.status = Status::Full)) {
            return;
        }
    }
}

/// Gives a slot back, which the caller owns.
pub(crate) fn give(slabs: &impl Slabs, slab: u32, slot: u32) {
    let header = slabs.header(slab);
    loop {
        let word = header.load();
        slabs.link(slab, slot).store(word.head.wrapping_sub(slot + 1), Ordering::Relaxed);
        let given = word.with(|w| {
            w.head = slot;
            w.live -= 1;
            w.status = Status::Listed;
            w.dirty = w.live == 0;
        });
        if header.swap(word, given) {
            if given.dirty {
                slabs.count_dirty(1);
            }
            if word.status == Status::Full {
                push(slabs, header.class(), slab);
            }
            return;
        }
    }
}

/// Returns the memory of a slab to the kernel if the slab is empty and was used. Returns whether it did.
pub(crate) fn purge(slabs: &impl Slabs, slab: u32) -> bool {
    let header = slabs.header(slab);
    let word = header.load();
    if !word.dirty || word.status != Status::Listed {
        return false;
    }
    let purging = word.with(|w| w.status = Status::Purging);
    if !header.swap(word, purging) {
        return false;
    }
    // Nothing is in use, and no thread takes a slot in this status, so this thread owns the slab.
    let returned = slabs.discard(slab);
    let after = purging.with(|w| {
        if returned {
            *w = SlabWord { tag: w.tag, ..SlabWord::FRESH };
        } else {
            // Locked memory stays, with its list of free slots. The slab is not marked dirty, because the next attempt
            // would fail too.
            w.status = Status::Listed;
            w.dirty = false;
        }
    });
    let won = header.swap(purging, after);
    debug_assert!(won, "somebody touched a slab while it was purged");
    slabs.count_dirty(-1);
    returned
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use rtprof_runtime::primitive::AtomicUsize;

    use super::*;

    const SLOTS: u32 = 2;

    /// Two slabs of two slots in ordinary memory.
    struct Model {
        stack: ClassStack,
        headers: Vec<Header>,
        links: Vec<AtomicU32>,
        /// The holder of each slot.
        owners: Vec<AtomicU32>,
        grown: AtomicUsize,
    }

    impl Model {
        fn new() -> Self {
            Self {
                stack: ClassStack::new(),
                headers: (0..3).map(|_| Header::new()).collect(),
                links: (0..3 * SLOTS).map(|_| AtomicU32::new(0)).collect(),
                owners: (0..3 * SLOTS).map(|_| AtomicU32::new(0)).collect(),
                grown: AtomicUsize::new(0),
            }
        }

        fn take_as(&self, me: u32) -> (u32, u32) {
            let (slab, slot) = take(self, 0).unwrap();
            let before = self.owners[(slab * SLOTS + slot) as usize].swap(me, Ordering::Relaxed);
            assert_eq!(before, 0, "a slot was given to two");
            (slab, slot)
        }

        fn give_as(&self, me: u32, (slab, slot): (u32, u32)) {
            let before = self.owners[(slab * SLOTS + slot) as usize].swap(0, Ordering::Relaxed);
            assert_eq!(before, me, "a slot in use was discarded or given away");
            give(self, slab, slot);
        }
    }

    impl Slabs for Model {
        fn stack(&self, _class: usize) -> &ClassStack {
            &self.stack
        }
        fn header(&self, slab: u32) -> &Header {
            &self.headers[slab as usize]
        }
        fn link(&self, slab: u32, slot: u32) -> &AtomicU32 {
            &self.links[(slab * SLOTS + slot) as usize]
        }
        fn slots(&self, _class: usize) -> u32 {
            SLOTS
        }
        fn grow(&self, class: usize) -> Option<u32> {
            let slab = self.grown.fetch_add(1, Ordering::Relaxed) as u32;
            self.headers.get(slab as usize)?.assign(class);
            Some(slab)
        }
        fn discard(&self, slab: u32) -> bool {
            for slot in 0..SLOTS {
                let at = (slab * SLOTS + slot) as usize;
                assert_eq!(self.owners[at].load(Ordering::Relaxed), 0, "memory in use was returned");
                self.links[at].store(0, Ordering::Relaxed);
            }
            true
        }
        fn count_dirty(&self, _change: i32) {}
    }

    /// One thread fills a slab and frees from it, the other takes from the same class.
    #[test]
    fn loom_slots_are_never_shared() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let model = Arc::new(Model::new());
            let first = model.take_as(1);
            let other = {
                let model = model.clone();
                loom::thread::spawn(move || {
                    let b = model.take_as(2);
                    model.give_as(2, b);
                })
            };
            let second = model.take_as(1);
            model.give_as(1, first);
            model.give_as(1, second);
            other.join().unwrap();
            // All slots are free again, so as many as were made can be taken again.
            let a = model.take_as(3);
            let b = model.take_as(3);
            assert_ne!(a, b);
        });
    }

    /// A purge never takes memory that is in use, and the slab is intact afterwards.
    #[test]
    fn loom_purge_spares_what_is_in_use() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let model = Arc::new(Model::new());
            let slot = model.take_as(1);
            model.give_as(1, slot);
            let other = {
                let model = model.clone();
                loom::thread::spawn(move || {
                    purge(&*model, 0);
                })
            };
            let again = model.take_as(2);
            model.give_as(2, again);
            other.join().unwrap();
            let a = model.take_as(3);
            let b = model.take_as(3);
            assert_ne!(a, b);
        });
    }
}
