//! Counts of what the profiler could not record, by reason, so that a profile can report them.
//!
//! A counter is a static of the module that loses something. It holds the words for the loss, made from the constants of that
//! module, and the profiles that report it.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::memory::atomic_ref::AtomicRef;

/// The counters that have counted, in the order in which they began. There are some twenty; a counter that finds no place is in no
/// profile.
static LISTED: [AtomicRef<Counter>; 64] = [const { AtomicRef::none() }; 64];

/// A count of one kind of loss.
pub struct Counter {
    count: AtomicU64,
    profiles: &'static [CountedProfile],
    words: fn() -> String,
    /// Whether it is in [`LISTED`].
    is_listed: AtomicBool,
}

impl Counter {
    /// A counter that these profiles report. `words` are the rest of a sentence that begins with the count. An empty list is for
    /// losses that the records of each profile show.
    pub const fn new(profiles: &'static [CountedProfile], words: fn() -> String) -> Self {
        Self { count: AtomicU64::new(0), profiles, words, is_listed: AtomicBool::new(false) }
    }

    /// Adds one. Safe to call in a hook.
    #[inline]
    pub fn add(&'static self) {
        if !self.is_listed.load(Ordering::Relaxed) {
            self.list();
        }
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Lists the counter. Several threads, a signal handler and a forked child may each do this again: all begin at the first place,
    /// and no place changes once it is filled, so that the counter has one place.
    #[cold]
    fn list(&'static self) {
        _ = LISTED.iter().find(|place| ptr::eq(place.get_or_set(self), self));
        self.is_listed.store(true, Ordering::Relaxed);
    }

    /// Returns the count so far.
    pub fn get(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn sentence(&self) -> String {
        format!("rtprof: {} {}", self.get(), (self.words)())
    }
}

/// A profile that a count concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedProfile {
    /// The heap and allocs profiles.
    Heap,
    /// The block profile.
    Block,
    /// The mutex profile.
    Mutex,
    /// The threadcreate profile.
    ThreadCreate,
    /// The goroutine profile.
    Goroutine,
    /// The CPU profile.
    Cpu,
}

impl CountedProfile {
    /// Profiles that count events.
    pub(crate) const EVENTS: &'static [Self] =
        &[Self::Heap, Self::Block, Self::Mutex, Self::ThreadCreate, Self::Cpu];
    /// All profiles: each has stacks.
    pub(crate) const ALL: &'static [Self] =
        &[Self::Heap, Self::Block, Self::Mutex, Self::ThreadCreate, Self::Goroutine, Self::Cpu];
    /// Profiles of waits.
    pub const WAITS: &'static [Self] = &[Self::Block, Self::Mutex];
    /// Profiles whose samples carry labels.
    pub(crate) const LABELLED: &'static [Self] =
        &[Self::Heap, Self::Block, Self::Mutex, Self::Goroutine, Self::Cpu];
}

/// Returns a sentence for each count that is not zero and concerns this profile, in the order in which they began. A count that
/// concerns several profiles is the total over all of them.
pub fn sentences(profile: CountedProfile) -> Vec<String> {
    listed().filter(|counter| counter.profiles.contains(&profile)).map(Counter::sentence).collect()
}

/// Returns the sum of all counts that concern this profile.
pub fn total(profile: CountedProfile) -> u64 {
    listed().filter(|counter| counter.profiles.contains(&profile)).map(Counter::get).sum()
}

/// Returns a sentence for each count that is not zero, in the order in which they began.
pub fn all_sentences() -> Vec<String> {
    listed().map(Counter::sentence).collect()
}

/// Returns all counters that are not 0, the first one first.
fn listed() -> impl Iterator<Item = &'static Counter> {
    LISTED.iter().map_while(AtomicRef::get).filter(|counter| counter.get() > 0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counters_are_told_in_the_order_in_which_they_began() {
        static FIRST: Counter = Counter::new(CountedProfile::WAITS, || "first of this test".into());
        static SECOND: Counter = Counter::new(&[], || format!("second of this test, of {}", 7));
        static NEVER: Counter = Counter::new(CountedProfile::ALL, || "third of this test".into());
        let told = |sentences: Vec<String>| {
            let of_test = |sentence: &String| sentence.contains("of this test");
            sentences.into_iter().filter(of_test).collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| FIRST.add()));
            }
        });
        SECOND.add();
        let (first, second) = ("rtprof: 400 first of this test", "rtprof: 1 second of this test, of 7");
        assert_eq!(told(all_sentences()), [first, second]);
        assert_eq!(told(sentences(CountedProfile::Mutex)), [first]);
        assert_eq!(told(sentences(CountedProfile::Cpu)), [""; 0]);
        assert_eq!(NEVER.get(), 0);
        assert!(total(CountedProfile::Block) >= 400);
    }
}
