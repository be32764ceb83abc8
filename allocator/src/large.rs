//! The table of large sampled objects: from an object's address to its sample.
//!
//! Every free of an object above 4 KiB looks here, sampled or not, so a miss must be cheap: one cache line of eight
//! addresses, chosen by hash, and no chain to follow.
//!
//! ```text
//!   level 0:    512 groups of 8 keys ─ 8 values     a group is searched whole, so a removed key
//!   level 1:  2,048 groups                          leaves a free place and no tombstone
//!   level 2:  8,192 …                               mapped when a group above it overflows
//! ```
//!
//! A look-up searches each level that exists: one up to a few thousand live large samples, two up to tens of thousands. While
//! there are few, a filter answers most look-ups before that ([`filter`]).
//! No lock is needed. A key is placed by compare-and-swap in a free place, by the thread that has just allocated the
//! object and has not yet shared its address. It is removed before the object goes back to the inner allocator, which
//! may reuse the address at once.

mod filter;

use core::ptr::null_mut;

use rtprof_runtime::primitive::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use filter::Filter;

/// Keys of a group: one cache line.
#[cfg(not(loom))]
const WAYS: usize = 8;
#[cfg(loom)]
const WAYS: usize = 2;
#[cfg(not(loom))]
const LEVEL0_GROUPS: usize = 512;
#[cfg(loom)]
const LEVEL0_GROUPS: usize = 1;
#[cfg(not(loom))]
const LEVELS: usize = 10;
#[cfg(loom)]
const LEVELS: usize = 1;

/// A free place.
const FREE: usize = 0;
/// A place whose object `realloc` is processing: it holds no address, but is not free either.
const HELD: usize = 1;

/// Keys of one group, and two words of value for each.
#[repr(C, align(64))]
struct Group {
    keys: [AtomicUsize; WAYS],
    values: [[AtomicUsize; 2]; WAYS],
}

/// The table. `const`-constructible; maps its levels when needed.
pub(crate) struct LargeTable {
    filter: Filter,
    levels: [AtomicPtr<Group>; LEVELS],
}

/// A place in the table that its holder owns: either just [`claim`](LargeTable::claim)ed and not yet filled, or an
/// object's place taken by [`hold`](LargeTable::hold).
pub(crate) struct Held<'a> {
    group: &'a Group,
    way: usize,
    /// The count of its key in the filter.
    count: &'a AtomicU8,
}

fn groups_of(level: usize) -> usize {
    LEVEL0_GROUPS << (2 * level)
}

fn hash(key: usize) -> usize {
    // Large objects are aligned to at least 16; the multiplication spreads all bits to the top.
    ((key as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

impl LargeTable {
    rtprof_runtime::const_fn! {
        /// An empty table.
        pub(crate) const fn new() -> Self {
            let levels = rtprof_runtime::array_of![AtomicPtr::new(null_mut()); LEVELS];
            Self { filter: Filter::new(), levels }
        }
    }

    fn group(&self, level: usize, key: usize) -> Option<&Group> {
        let groups = self.levels[level].load(Ordering::Acquire);
        if groups.is_null() {
            return None;
        }
        // SAFETY: a level, once installed, holds `groups_of(level)` groups and is never unmapped.
        Some(unsafe { &*groups.add(hash(key) & (groups_of(level) - 1)) })
    }

    /// Finds the place with this key.
    #[inline]
    fn find(&self, key: usize) -> Option<Held<'_>> {
        let count = self.filter.count(hash(key));
        if !filter::has_any(count) {
            return None;
        }
        for level in 0..LEVELS {
            let group = self.group(level, key)?;
            // Relaxed: the program itself orders an object's free after its allocation, and the key was placed before
            // the allocation returned.
            if let Some(way) = (0..WAYS).find(|&way| group.keys[way].load(Ordering::Relaxed) == key) {
                return Some(Held { group, way, count });
            }
        }
        None
    }

    /// Places a key; the caller then calls [`fill`](Held::fill) or [`release`](Held::release). `None` when there is no
    /// memory for another level.
    pub(crate) fn claim(&self, key: usize) -> Option<Held<'_>> {
        for level in 0..LEVELS {
            let group = match self.group(level, key) {
                Some(group) => group,
                None => {
                    self.add_level(level)?;
                    self.group(level, key)?
                }
            };
            for way in 0..WAYS {
                let place = &group.keys[way];
                // Acquire: pairs with the release of the place, so that its last user's reads of the value are over.
                if place.load(Ordering::Relaxed) == FREE
                    && place.compare_exchange(FREE, key, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    let count = self.filter.count(hash(key));
                    filter::add(count);
                    return Some(Held { group, way, count });
                }
            }
        }
        None
    }

    /// Takes out the object of this address, if it is in the table: the address is not found any more, but the caller
    /// keeps its place, so that a failed `realloc` can [`restore`](Held::restore) it.
    #[inline]
    pub(crate) fn hold(&self, key: usize) -> Option<Held<'_>> {
        let held = self.find(key)?;
        held.group.keys[held.way].store(HELD, Ordering::Relaxed);
        Some(held)
    }

    #[cfg(not(loom))]
    fn add_level(&self, level: usize) -> Option<()> {
        use rtprof_runtime::memory::mapping;
        let bytes = groups_of(level) * size_of::<Group>();
        // Zeroed memory is a level of free places.
        let fresh = mapping::map(bytes)?.cast::<Group>();
        let installed = self.levels[level].compare_exchange(
            null_mut(),
            fresh.as_ptr(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if installed.is_err() {
            // SAFETY: only this thread knows the mapping, because another thread's level was installed instead.
            unsafe { mapping::unmap(fresh.cast(), bytes) };
        }
        Some(())
    }

    #[cfg(loom)]
    fn add_level(&self, level: usize) -> Option<()> {
        let groups: Vec<Group> = (0..groups_of(level))
            .map(|_| Group {
                keys: core::array::from_fn(|_| AtomicUsize::new(FREE)),
                values: core::array::from_fn(|_| core::array::from_fn(|_| AtomicUsize::new(0))),
            })
            .collect();
        let fresh = Box::leak(groups.into_boxed_slice()).as_mut_ptr();
        let _ = self.levels[level].compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Relaxed);
        Some(())
    }
}

impl Held<'_> {
    /// Writes the value of a claimed place.
    pub(crate) fn fill(self, value: [usize; 2]) {
        for (word, v) in self.group.values[self.way].iter().zip(value) {
            word.store(v, Ordering::Relaxed);
        }
    }

    /// Returns the value of a held place.
    pub(crate) fn value(&self) -> [usize; 2] {
        let words = &self.group.values[self.way];
        [words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed)]
    }

    /// Puts the object's address back into its place.
    pub(crate) fn restore(self, key: usize) {
        self.group.keys[self.way].store(key, Ordering::Relaxed);
    }

    /// Frees the place.
    pub(crate) fn release(self) {
        self.group.keys[self.way].store(FREE, Ordering::Release);
        filter::remove(self.count);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn many_objects_are_found_and_removed_over_several_levels() {
        let table = LargeTable::new();
        let key = |i: usize| 0x7f00_0000_0000 + i * 4112;
        assert!(table.hold(key(0)).is_none(), "an empty table holds nothing");
        const N: usize = 50_000;
        for i in 0..N {
            table.claim(key(i)).unwrap().fill([i, i + 1]);
        }
        assert!(!table.levels[1].load(Ordering::Relaxed).is_null(), "one level cannot hold them");
        for i in (0..N).step_by(2) {
            let held = table.hold(key(i)).unwrap();
            assert_eq!(held.value(), [i, i + 1]);
            assert!(table.hold(key(i)).is_none());
            if i % 4 == 0 { held.release() } else { held.restore(key(i)) }
        }
        for i in 0..N {
            assert_eq!(table.hold(key(i)).map(Held::release).is_some(), i % 4 != 0, "{i}");
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Threads that place and remove different objects in one group never see each other's values.
    #[test]
    fn loom_objects_keep_their_values() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let table = Arc::new(LargeTable::new());
            let work = |table: &LargeTable, key: usize| {
                table.claim(key).unwrap().fill([key + 1, key + 2]);
                let held = table.hold(key).unwrap();
                assert_eq!(held.value(), [key + 1, key + 2]);
                held.release();
                assert!(table.hold(key).is_none());
            };
            let other = {
                let table = table.clone();
                loom::thread::spawn(move || work(&table, 0x1000))
            };
            work(&table, 0x2000);
            other.join().unwrap();
        });
    }
}
