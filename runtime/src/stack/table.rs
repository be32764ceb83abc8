//! The interning table: one entry per distinct (key, stack), found again by hash.
//!
//! A profile's bucket table is this table with a record in each entry; a trace's stack table has an id in each entry.
//! Go: `stkbucket`, `newBucket`, and `traceStackTable`.
//!
//! ```text
//!  chains[hash % 179,999] ─► entry ─► entry ─► ∅        next: fixed before an entry is published
//!  all ────────────────────► entry ─► entry ─► …        all_next: fixed before an entry is published
//! ```
//!
//! No lock. An entry is written whole, pushed on the list of all entries, then published by a compare-and-swap on the
//! head of its chain. Entries are never removed, so a failed swap means that others were pushed in front: only those
//! are searched again before the next try. If one of them is the wanted entry, the loser's own entry stays in the list
//! of all, empty (wasted, never wrong).
//!
//! The order matters: if the chain came first, another thread could find the entry and count an event in it before a
//! snapshot that walks the list of all can see the entry, and a cut would lose an event that was over before the cut.

use core::mem::{align_of, size_of};
use core::ptr::{self, NonNull};

use super::Stack;
use super::hash::hash_stack;
use crate::memory::arena::Arena;
use crate::modules::Stamp;
use crate::primitive::{AtomicPtr, AtomicUsize, Ordering, map_zeroed, unmap_zeroed};

/// Chains of the table; Go's `buckHashSize`. 1.4 MiB of address space, of which only touched pages
/// cost memory.
#[cfg(not(loom))]
pub(crate) const CHAINS: usize = 179_999;
/// One chain, so that models collide.
#[cfg(loom)]
pub(crate) const CHAINS: usize = 1;

/// The part of a key that distinguishes entries besides the stack.
pub trait Key: Copy + Eq {
    /// Returns the seed that adds the key to the hash of the stack.
    fn seed(&self) -> u64;
}

/// A (key, stack) and its record. The stack's words follow the struct in memory.
#[repr(C)]
pub struct Entry<K, R> {
    /// Changes only while the entry is in the list of all but not yet in its chain.
    next: AtomicPtr<Entry<K, R>>,
    all_next: *const Entry<K, R>,
    hash: u64,
    /// The words of the stack, behind this struct in the same allocation.
    words: *const usize,
    depth: usize,
    /// When the stack was captured.
    stamp: Stamp,
    /// The key of the entry.
    pub key: K,
    /// The counts of the entry.
    pub record: R,
}

impl<K, R> Entry<K, R> {
    /// Returns the stack: return addresses, leaf first.
    #[inline]
    pub fn stack(&self) -> &[usize] {
        // SAFETY: `insert` wrote `depth` words there before it published the entry; they are never written again, and
        // the arena never frees them.
        unsafe { core::slice::from_raw_parts(self.words, self.depth) }
    }

    /// Returns the stack, and when it was captured.
    pub fn captured(&self) -> Stack<'_> {
        Stack { addresses: self.stack(), span: self.stamp.span() }
    }
}

// SAFETY: the memory behind its pointers is written before the entry is published and read-only from then on.
unsafe impl<K: Sync, R: Sync> Sync for Entry<K, R> {}

/// The reason why an entry could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The limit on entries is reached.
    Limit,
    /// The kernel grants no more memory, or the table was never opened.
    Memory,
}

/// The table. `const`-constructible; [`Table::open`] maps its chains.
pub struct Table<K, R> {
    chains: AtomicPtr<AtomicPtr<Entry<K, R>>>,
    all: AtomicPtr<Entry<K, R>>,
    entries: AtomicUsize,
    limit: AtomicUsize,
    arena: Arena,
}

// SAFETY: entries are shared by reference between all threads; K is read-only after publication and
// R is only reached by shared reference.
unsafe impl<K: Send + Sync, R: Send + Sync> Sync for Table<K, R> {}
// SAFETY: entries are `Send + Sync`, and the table owns nothing that is bound to a thread.
unsafe impl<K: Send + Sync, R: Send + Sync> Send for Table<K, R> {}

impl<K: Key, R: Default> Table<K, R> {
    const_fn! {
        /// Makes a closed table that takes at most `limit` entries once opened.
        pub const fn new(limit: usize) -> Self {
            Self {
                chains: AtomicPtr::new(ptr::null_mut()),
                all: AtomicPtr::new(ptr::null_mut()),
                entries: AtomicUsize::new(0),
                limit: AtomicUsize::new(limit),
                arena: Arena::new(),
            }
        }
    }

    /// Maps the chains. Idempotent. Returns `false` when the kernel refuses; then every insertion is [`Full::Memory`].
    pub fn open(&self) -> bool {
        if self.is_open() {
            return true;
        }
        // SAFETY: zeroed memory is an array of null pointers, which is their default.
        let Some(chains) = (unsafe { map_zeroed(CHAINS) }) else {
            return false;
        };
        let won = self
            .chains
            .compare_exchange(ptr::null_mut(), chains.as_ptr(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if !won {
            // SAFETY: mapped above with this length, and not installed.
            unsafe { unmap_zeroed(chains, CHAINS) };
        }
        true
    }

    /// Returns whether the table takes entries.
    pub(crate) fn is_open(&self) -> bool {
        !self.chains.load(Ordering::Acquire).is_null()
    }

    /// Returns the maximum number of entries.
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit; entries beyond it stay. Returns the previous one.
    pub fn set_limit(&self, limit: usize) -> usize {
        self.limit.swap(limit, Ordering::Relaxed)
    }

    /// Returns the number of entries made so far.
    pub fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Returns whether no entry was made yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes mapped for entries.
    pub fn mapped_bytes(&self) -> usize {
        self.arena.mapped_bytes()
    }

    /// Empties the table and returns its memory to the kernel.
    ///
    /// # Safety
    /// No thread uses the table during the call, and none uses an entry of it ever again.
    pub unsafe fn clear(&self) {
        let chains = self.chains.swap(ptr::null_mut(), Ordering::AcqRel);
        if let Some(chains) = NonNull::new(chains) {
            // SAFETY: mapped by `open` with this length; the caller guarantees that no thread uses the table.
            unsafe { unmap_zeroed(chains, CHAINS) };
        }
        self.all.store(ptr::null_mut(), Ordering::Release);
        self.entries.store(0, Ordering::Release);
        // SAFETY: the caller guarantees that no entry is used ever again.
        unsafe { self.arena.clear() };
    }

    /// Returns the entry for this key and stack. Makes it if it is new and the limit allows.
    #[inline]
    pub fn intern(&self, key: K, stack: &[usize]) -> Result<&Entry<K, R>, Full> {
        self.intern_within(key, stack, self.limit())
    }

    /// Returns the entry as [`Table::intern`] does, with `limit` in place of the table's limit.
    pub(crate) fn intern_within(&self, key: K, stack: &[usize], limit: usize) -> Result<&Entry<K, R>, Full> {
        let chains = NonNull::new(self.chains.load(Ordering::Acquire)).ok_or(Full::Memory)?;
        let hash = hash_stack(stack, key.seed());
        // SAFETY: the index is below CHAINS, and the mapping holds CHAINS heads until `clear`.
        let head = unsafe { chains.add((hash % CHAINS as u64) as usize).as_ref() };
        // Acquire: pairs with the publication, so that the entry's contents are visible.
        let first = head.load(Ordering::Acquire);
        match Self::search(first, ptr::null(), hash, key, stack) {
            Some(entry) => {
                entry.stamp.renew();
                Ok(entry)
            }
            None => self.insert(head, first, hash, key, stack, limit),
        }
    }

    /// Searches a chain from `from` up to, not including, `until`.
    #[inline]
    fn search<'a>(
        from: *const Entry<K, R>,
        until: *const Entry<K, R>,
        hash: u64,
        key: K,
        stack: &[usize],
    ) -> Option<&'a Entry<K, R>> {
        let mut at = from;
        while at != until {
            // SAFETY: chain pointers lead to published entries, which live until `clear`.
            let entry = unsafe { &*at };
            if entry.hash == hash && entry.key == key && entry.stack() == stack {
                return Some(entry);
            }
            // Relaxed: written before the entry was published.
            at = entry.next.load(Ordering::Relaxed);
        }
        None
    }

    #[cold]
    fn insert(
        &self,
        head: &AtomicPtr<Entry<K, R>>,
        mut first: *mut Entry<K, R>,
        hash: u64,
        key: K,
        stack: &[usize],
        limit: usize,
    ) -> Result<&Entry<K, R>, Full> {
        if self.entries.fetch_add(1, Ordering::Relaxed) >= limit {
            self.entries.fetch_sub(1, Ordering::Relaxed);
            return Err(Full::Limit);
        }
        const {
            assert!(
                align_of::<Entry<K, R>>() <= 16
                    && size_of::<Entry<K, R>>().is_multiple_of(align_of::<usize>())
            )
        };
        let Some(place) = self.arena.alloc(size_of::<Entry<K, R>>() + size_of_val(stack)) else {
            self.entries.fetch_sub(1, Ordering::Relaxed);
            return Err(Full::Memory);
        };
        let entry = place.cast::<Entry<K, R>>().as_ptr();
        let depth = stack.len();
        // SAFETY: the arena gave this place, large and aligned enough, to this call only; it is written whole before
        // another thread can reach it.
        unsafe {
            let words = entry.add(1).cast::<usize>();
            ptr::copy_nonoverlapping(stack.as_ptr(), words, depth);
            let next = AtomicPtr::new(first);
            let (all_next, record) = (ptr::null(), R::default());
            entry.write(Entry { next, all_next, hash, words, depth, stamp: Stamp::new(), key, record });
        }

        let _ = self.all.fetch_update(Ordering::Release, Ordering::Relaxed, |all| {
            // SAFETY: the entry is not published yet, so only this thread can access it.
            unsafe { (*entry).all_next = all };
            Some(entry)
        });

        loop {
            // SAFETY: the entry was written whole above and lives until `clear`.
            unsafe { &*entry }.next.store(first, Ordering::Relaxed);
            match head.compare_exchange(first, entry, Ordering::Release, Ordering::Acquire) {
                // SAFETY: the entry is published and lives until `clear`.
                Ok(_) => return Ok(unsafe { &*entry }),
                Err(seen) => {
                    if let Some(theirs) = Self::search(seen, first, hash, key, stack) {
                        theirs.stamp.renew();
                        return Ok(theirs);
                    }
                    first = seen;
                }
            }
        }
    }

    /// Iterates over all entries, newest first. Entries made during the walk may be missing.
    pub fn iter(&self) -> impl Iterator<Item = &Entry<K, R>> {
        let mut at: *const Entry<K, R> = self.all.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: the list of all leads to entries that were written whole and live until `clear`.
            let entry = unsafe { at.as_ref() }?;
            at = entry.all_next;
            Some(entry)
        })
    }
}

#[cfg(test)]
impl Key for u64 {
    fn seed(&self) -> u64 {
        *self
    }
}

#[cfg(all(test, not(loom)))]
#[path = "table_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitive::AtomicU64;
    use loom::sync::Arc;

    #[derive(Default)]
    struct Count(AtomicU64);

    /// Two threads insert the same stack: a single entry holds both counts.
    #[test]
    fn loom_insert_is_unique() {
        loom::model(|| {
            let table: Arc<Table<u64, Count>> = Arc::new(Table::new(100));
            table.open();
            let other = {
                let table = table.clone();
                loom::thread::spawn(move || {
                    table.intern(0, &[1]).unwrap().record.0.fetch_add(1, Ordering::Relaxed);
                    table.intern(0, &[2]).unwrap().record.0.fetch_add(1, Ordering::Relaxed);
                })
            };
            table.intern(0, &[1]).unwrap().record.0.fetch_add(1, Ordering::Relaxed);
            other.join().unwrap();
            let mut counts: Vec<_> = table
                .iter()
                .map(|e| (e.stack()[0], e.record.0.load(Ordering::Relaxed)))
                .filter(|c| c.1 > 0)
                .collect();
            counts.sort_unstable();
            assert_eq!(counts, [(1, 2), (2, 1)]);
        });
    }
}
