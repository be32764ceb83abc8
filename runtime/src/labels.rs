//! Labels: key-value pairs that apply to a stretch of code and are attached to every sample it takes.
//!
//! Go: `pprof.Labels`, `pprof.Do`, `pprof.SetGoroutineLabels`. A sample stores a small number for its label set,
//! because the hook can neither hash strings nor keep them alive. Numbers are given when a set is made current, to at
//! most [`MAX_SETS`] distinct sets. Sets beyond that (a request id as a label makes one per request) share one number,
//! appear as `labels=overflow`, and are counted.
//!
//! Locks: `NAMES` (a [`ForkMutex`]) protects the dictionary of sets; taken by [`set_labels`], never in a hook. In a
//! forked child whose parent held it, new sets are numbered as overflow.

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::counters::{CountedProfile, Counter};
use crate::hook;
use crate::hook::hidden::{self, Calls};
use crate::lock::fork_safe::{ForkMutex, PerProcess};
use crate::memory::atomic_ref::AtomicRef;

/// The number of distinct label sets that enter aggregated profiles.
pub const MAX_SETS: usize = 1024;

/// Times a set beyond this number was set.
static OVER_LIMIT: Counter = Counter::new(CountedProfile::LABELLED, || {
    format!(
        "times a label set beyond {MAX_SETS} distinct ones was set; its samples stand under labels=overflow"
    )
});

/// The number of a label set in the key of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSetId(u16);

impl LabelSetId {
    /// No labels.
    pub const NONE: Self = Self(0);
    const OVERFLOW: Self = Self(1);

    /// Returns the set with this result of [`LabelSetId::bits`].
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits as u16)
    }

    /// Returns a number that identifies the set; 0 for no labels.
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }
}

type Pairs = BTreeMap<String, String>;

/// A set of labels. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSet(Arc<Pairs>);

/// Makes a label set from key-value pairs; of pairs with equal keys the last one counts. The key `bytes` is reserved
/// for the heap profile, which uses it for the size of objects. Go: `pprof.Labels`.
pub fn labels(pairs: &[(&str, &str)]) -> LabelSet {
    LabelSet(Arc::new(pairs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect()))
}

thread_local! {
    // An `Arc` as a plain pointer, owned by this cell: a thread-local with a destructor could not be read while the
    // thread dies. Labels that are current when a thread ends are leaked; guards that live in scopes leave nothing.
    static CURRENT: Cell<*const Pairs> = const { Cell::new(core::ptr::null()) };
    static CURRENT_ID: Cell<LabelSetId> = const { Cell::new(LabelSetId::NONE) };
}

/// Returns the number of this thread's current label set. Safe to call in a hook.
#[inline]
pub fn current_id() -> LabelSetId {
    CURRENT_ID.with(Cell::get)
}

/// The current labels, with their number, of a thread, or of a task while it is not polled.
#[derive(Debug, Default)]
pub struct Current {
    pairs: Option<Arc<Pairs>>,
    id: LabelSetId,
}

/// Returns the labels of this thread, to be passed on or read. Does not allocate.
pub fn current() -> Current {
    Current { pairs: current_pairs(), id: current_id() }
}

/// Returns a reference to this thread's current labels. Readers hold it, because the program may drop the guard while
/// it reads.
fn current_pairs() -> Option<Arc<Pairs>> {
    let held = CURRENT.with(Cell::get);
    if held.is_null() {
        return None;
    }
    // SAFETY: the cell owns one reference of a pointer that came from `Arc::into_raw`; this adds the reference that the
    // returned `Arc` owns.
    unsafe {
        Arc::increment_strong_count(held);
        Some(Arc::from_raw(held))
    }
}

impl Current {
    /// Returns these labels with `labels` added; a key that exists already takes the new value.
    #[must_use]
    pub fn with(self, labels: LabelSet) -> Self {
        let pairs = match self.pairs {
            Some(outer) => {
                let mut all = Pairs::clone(&outer);
                all.extend(labels.0.iter().map(|(k, v)| (k.clone(), v.clone())));
                Arc::new(all)
            }
            None => labels.0,
        };
        let id = number(&pairs);
        Self { pairs: Some(pairs), id }
    }

    /// Makes these labels current on this thread until the guard is dropped.
    pub fn enter(mut self) -> LabelGuard {
        self.swap();
        LabelGuard { previous: self, _of_this_thread: PhantomData }
    }

    /// Exchanges these labels with those of the task that the current thread polls, else of the thread.
    pub fn swap(&mut self) {
        self.swap_unseen();
        if let Some(note) = NOTE.get() {
            note(current_id());
        }
    }

    /// Exchanges these labels with those of the current thread, without changing its goroutine's: at the beginning or
    /// the end of a poll. Safe to call in a hook.
    #[inline]
    pub fn swap_unseen(&mut self) {
        let held = CURRENT.with(Cell::get);
        if self.pairs.is_none() && held.is_null() {
            return;
        }
        let pairs = self.pairs.take().map_or(core::ptr::null(), Arc::into_raw);
        CURRENT.with(|c| c.set(pairs));
        self.id = CURRENT_ID.with(|c| c.replace(self.id));
        // SAFETY: the cell owned the reference that this `Arc` takes over.
        self.pairs = (!held.is_null()).then(|| unsafe { Arc::from_raw(held) });
    }
}

/// Restores, when dropped, the labels that a [`set_labels`] replaced. Intended to live in a scope: if guards are not
/// dropped in the reverse order of their creation, the labels that remain are those that the last dropped guard had
/// found when it was created.
#[must_use = "the labels end when the guard is dropped"]
pub struct LabelGuard {
    previous: Current,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for LabelGuard {
    fn drop(&mut self) {
        self.previous.swap();
    }
}

/// Marks the current thread as one of rtprof's until the guard is dropped: its samples carry the label `rtprof`, so
/// that a user can distinguish them from the program's, and its waits are not in profiles.
pub fn set_own(part: &str) -> OwnGuard {
    let _untracked = hook::untracked();
    OwnGuard {
        _labels: set_labels(labels(&[("rtprof", part)])),
        _own: hook::own_thread(),
        before: hidden::hide(Calls::OWN),
    }
}

/// Guard during whose life the current thread is one of rtprof's. See [`set_own`].
#[must_use = "the thread is the program's again when the guard is dropped"]
pub struct OwnGuard {
    _labels: LabelGuard,
    _own: hook::OwnThread,
    before: hidden::Before,
}

impl Drop for OwnGuard {
    fn drop(&mut self) {
        hidden::restore(self.before);
    }
}

/// Returns whether these are the labels of one of rtprof's threads.
pub fn is_own(id: LabelSetId) -> bool {
    resolve(id).iter().any(|(key, _)| key == "rtprof")
}

/// Adds `labels` to those of the current thread until the guard is dropped; a key that is set already takes the new
/// value. Threads that `rtprof::thread` starts while the guard lives inherit these labels, and keep them to their end.
/// Threads that std starts begin without labels, unless the feature `interpose` is on. In a poll of a task of
/// `rtprof::task` the labels belong to the task: the thread has its previous labels again when the poll ends, and tasks
/// that are made while the guard lives inherit them. (The guard is not `Send`: it can live across an await only in
/// tasks that stay on their thread.) Go: `pprof.SetGoroutineLabels`, and the first half of `pprof.Do`.
pub fn set_labels(labels: LabelSet) -> LabelGuard {
    current().with(labels).enter()
}

/// Runs `f` with `labels` added to those of the thread. For a future, use `rtprof::task::do_with`. Go: `pprof.Do`.
pub fn do_with<T>(labels: LabelSet, f: impl FnOnce() -> T) -> T {
    let _guard = set_labels(labels);
    f()
}

/// Returns the current value of a label of this thread. Go: `pprof.Label`.
pub fn label(key: &str) -> Option<String> {
    current_pairs()?.get(key).cloned()
}

/// Calls `f` for each label of this thread, in the order of keys, until it returns `false`.
/// Go: `pprof.ForLabels`.
pub fn for_labels(mut f: impl FnMut(&str, &str) -> bool) {
    if let Some(pairs) = current_pairs() {
        pairs.iter().all(|(k, v)| f(k, v));
    }
}

/// Callback for a change of a thread's labels, with their number.
static NOTE: AtomicRef<fn(LabelSetId)> = AtomicRef::none();

/// Calls `note` from now on when the labels of the current thread have changed.
pub(crate) fn on_change(note: &'static fn(LabelSetId)) {
    NOTE.set(Some(note));
}

static NAMES: ForkMutex<Option<HashMap<Arc<Pairs>, LabelSetId>>> = ForkMutex::new(None);
static BY_ID: [AtomicPtr<Vec<(String, String)>>; MAX_SETS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_SETS];
/// The next free number; 0 means no labels, 1 means overflow.
static NEXT: AtomicUsize = AtomicUsize::new(2);

fn number(pairs: &Arc<Pairs>) -> LabelSetId {
    if pairs.is_empty() {
        return LabelSetId::NONE;
    }
    let Some(mut names) = NAMES.lock() else { return overflow() };
    let by_name = names.get_or_insert_default();
    if let Some(&id) = by_name.get(pairs) {
        return id;
    }
    let next = NEXT.load(Ordering::Relaxed);
    if next == MAX_SETS {
        return overflow();
    }
    NEXT.store(next + 1, Ordering::Relaxed);
    let list = pairs.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    BY_ID[next].store(Box::leak(Box::new(list)), Ordering::Release);
    let id = LabelSetId(next as u16);
    by_name.insert(pairs.clone(), id);
    id
}

#[cold]
fn overflow() -> LabelSetId {
    OVER_LIMIT.add();
    LabelSetId::OVERFLOW
}

/// Returns the labels of a set, in the order of keys.
pub fn resolve(id: LabelSetId) -> &'static [(String, String)] {
    if id == LabelSetId::OVERFLOW {
        static OVERFLOW: PerProcess<Vec<(String, String)>> = PerProcess::new();
        return OVERFLOW.get(|| vec![("labels".into(), "overflow".into())]);
    }
    let Some(slot) = BY_ID.get(id.0 as usize) else {
        return &[];
    };
    // SAFETY: a stored list is leaked, so it stays valid.
    unsafe { slot.load(Ordering::Acquire).as_ref() }.map_or(&[], Vec::as_slice)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn labels_nest_and_end_with_their_scope() {
        assert_eq!(label("a"), None);
        do_with(labels(&[("a", "1"), ("b", "2")]), || {
            do_with(labels(&[("b", "3")]), || {
                let mut seen = Vec::new();
                for_labels(|k, v| {
                    seen.push(format!("{k}={v}"));
                    true
                });
                assert_eq!(seen, ["a=1", "b=3"]);
                let id = current_id();
                assert_eq!(resolve(id), [("a".into(), "1".into()), ("b".into(), "3".into())]);
                assert_eq!(
                    number(&labels(&[("b", "3"), ("a", "1")]).0),
                    id,
                    "order of pairs does not matter"
                );
            });
            assert_eq!(label("b").as_deref(), Some("2"));
        });
        assert_eq!(current_id(), LabelSetId::NONE);
        let (outer, inner) = (set_labels(labels(&[("a", "1")])), set_labels(labels(&[("b", "2")])));
        drop(outer);
        assert_eq!(label("b"), None);
        drop(inner);
        assert_eq!(label("a").as_deref(), Some("1"), "what the last guard had found, still alive");
        Current::default().swap();
        assert_eq!(resolve(LabelSetId::OVERFLOW), [("labels".into(), "overflow".into())]);
    }
}
