//! A cache of rules by the addresses that stacks went through.
//!
//! A rule has two places, neighbours in memory. A new rule takes the first and moves the rule there to the second, so
//! that two addresses of one stack that share a place do not evict each other, and a rule is learnt again at every walk
//! only if three share it: at 32 frames among 2,048 pairs, one stack in 800.
//!
//! A walk by hashes alone takes 5.5 ns a frame, most of it waiting: the place of a rule is known only when the return
//! address has been read, which needs the rule before. Therefore each rule stores a guess: the place of the rule that
//! followed it last time. The processor continues with the guess while the return address is still being loaded, which
//! leaves 3.7 ns a frame. A function whose caller is not the last one costs what the hash costs.

use core::ptr::NonNull;

use super::rule::Rule;
use crate::memory::mapping;

const LEN: usize = 1 << 12;
/// The position of the guess: the bits above those of the rule itself.
const GUESS: u32 = Rule::BITS;
const _: () = assert!(LEN << GUESS >> GUESS == LEN);

/// 64 KiB: addresses, each with its rule and the guess of the next place. A mapping that is never unmapped, so that memory is
/// allocated as places are filled.
pub(super) struct RuleCache(&'static mut [[u64; 2]; LEN]);

/// The place at which the rule of a frame was found.
#[derive(Clone, Copy)]
pub(super) struct CacheSlot(usize);

impl RuleCache {
    /// Returns `most` empty caches, or as many as the kernel grants memory for.
    pub(super) fn several(most: usize) -> impl Iterator<Item = Self> {
        let mut count = most;
        let start = loop {
            match mapping::map(count * size_of::<[[u64; 2]; LEN]>()) {
                None if count > 1 => count /= 2,
                start => break start.map(NonNull::cast::<[[u64; 2]; LEN]>),
            }
        };
        // SAFETY: the mapping has room for `count` of them, is aligned to pages, and zeroed; it is never unmapped, and each
        // part of it is borrowed once.
        start
            .into_iter()
            .flat_map(move |start| (0..count).map(move |at| Self(unsafe { start.add(at).as_mut() })))
    }

    /// Clears the cache, because modules were loaded or unloaded.
    #[cold]
    pub(super) fn forget(&mut self) {
        self.0.fill([0; 2]);
    }

    /// Returns the place of an address, which is not 0. Learns a rule that is not known; `None` if that fails.
    #[inline(always)]
    pub(super) fn find(&mut self, address: u64, learn: impl FnOnce() -> Option<Rule>) -> Option<CacheSlot> {
        // Low bits differ most, except for functions at the same distance from a large power of two.
        let first = (address ^ (address >> 11)) as usize % (LEN / 2) * 2;
        let second = first + 1;
        if self.0[first][0] == address {
            return Some(CacheSlot(first));
        }
        if self.0[second][0] == address {
            return Some(CacheSlot(second));
        }
        let rule = learn()?;
        self.0[second] = self.0[first];
        self.0[first] = [address, rule.bits()];
        Some(CacheSlot(first))
    }

    /// Returns the place of an address, as [`find`](Self::find) does, where the address followed that of `before`.
    #[inline(always)]
    pub(super) fn find_after(
        &mut self,
        before: CacheSlot,
        address: u64,
        learn: impl FnOnce() -> Option<Rule>,
    ) -> Option<CacheSlot> {
        let guess = (self.0[before.0][1] >> GUESS) as usize % LEN;
        if self.0[guess][0] == address {
            return Some(CacheSlot(guess));
        }
        let found = self.find(address, learn)?;
        // Another rule may have been moved to `before` just now; it then has a wrong guess.
        let [_, rule] = &mut self.0[before.0];
        *rule = *rule & ((1 << GUESS) - 1) | (found.0 as u64) << GUESS;
        Some(found)
    }

    #[inline(always)]
    pub(super) fn rule(&self, place: CacheSlot) -> Rule {
        Rule::from_bits(self.0[place.0][1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn new() -> RuleCache {
        RuleCache::several(1).next().expect("there is memory")
    }

    #[test]
    fn two_share_a_place() {
        let mut cache = new();
        let mut learns = |address: u64| {
            let learnt = Cell::new(false);
            let rule = if address.is_multiple_of(2) { Rule::END } else { Rule::ASK };
            let place = cache.find(address, || {
                learnt.set(true);
                Some(rule)
            });
            assert_eq!(cache.rule(place.expect("it was learnt")), rule);
            learnt.get()
        };
        // The same place for all three: the index ignores the bits above.
        let [a, b, c] = [0x40_0000_0123_u64, 0x80_0000_0123, 0xc0_0000_0123];
        assert_eq!([a, b, c].map(|address| (address ^ (address >> 11)) as usize % (LEN / 2) * 2), [0x246; 3]);
        assert_eq!([learns(a), learns(b)], [true, true]);
        assert_eq!([learns(a), learns(b), learns(a)], [false; 3]);
        assert!(learns(c), "the third");
        assert_eq!([learns(c), learns(b), learns(a)], [false, false, true]);
        assert!(learns(a + 1) && !learns(a + 1), "another place");
        // Addresses of a walk that went astray.
        assert!(learns(u64::MAX) && learns(u64::MAX - 1));
    }

    #[test]
    fn nothing_is_left_after_forgetting() {
        let mut cache = new();
        let before = cache.find(1000, || Some(Rule::END)).expect("it was learnt");
        cache.find_after(before, 2000, || Some(Rule::END));
        cache.forget();
        let mut learnt = 0;
        for address in [2000, 1000] {
            cache.find_after(before, address, || {
                learnt += 1;
                Some(Rule::ASK)
            });
        }
        assert_eq!(learnt, 2);
    }

    #[test]
    fn guesses_are_checked() {
        let mut cache = new();
        let rule_of = |address: u64| if address.is_multiple_of(2) { Rule::END } else { Rule::ASK };
        // Few places for many addresses, so that rules are moved and replaced under the guesses.
        let mut before = cache.find(1, || Some(rule_of(1))).expect("it was learnt");
        let mut random = 1_u64;
        for _ in 0..100_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let address = 1 + (random >> 60) + (((random >> 40) % 4) << 30);
            assert!(cache.find_after(before, address + (1 << 40), || None).is_none());
            before = cache.find_after(before, address, || Some(rule_of(address))).expect("it was learnt");
            assert_eq!(cache.0[before.0][0], address);
            assert_eq!(cache.rule(before), rule_of(address));
        }
    }
}
