//! Used ids, kept as ranges, because most of them are consecutive.

use std::collections::BTreeMap;

/// A set of numbers that only grows. Its memory is proportional to the number of gaps.
#[derive(Debug, Default)]
pub(crate) struct IdSet {
    /// First and last of each range; ranges neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
}

impl IdSet {
    pub(crate) fn contains(&self, id: u64) -> bool {
        self.ranges.range(..=id).next_back().is_some_and(|(_, &last)| id <= last)
    }

    /// Adds an id. Returns `false` if it was in the set.
    pub(crate) fn insert(&mut self, id: u64) -> bool {
        if self.contains(id) {
            return false;
        }
        let last = match id.checked_add(1).and_then(|next| self.ranges.remove(&next)) {
            Some(last) => last,
            None => id,
        };
        match self.ranges.range_mut(..id).next_back() {
            Some((_, before)) if before.checked_add(1) == Some(id) => *before = last,
            _ => {
                self.ranges.insert(id, last);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_is_a_set() {
        let mut set = IdSet::default();
        let mut model = BTreeSet::new();
        let mut random = 1u64;
        for _ in 0..2000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let id = (random >> 33) % 300;
            assert_eq!(set.contains(id), model.contains(&id));
            assert_eq!(set.insert(id), model.insert(id));
        }
        assert!(set.ranges.len() < 20, "{} ids in {} ranges", model.len(), set.ranges.len());
        assert!(set.insert(u64::MAX) && set.insert(u64::MAX - 1) && !set.insert(u64::MAX));
    }

    #[test]
    fn ids_in_sequence_are_one_range() {
        let mut set = IdSet::default();
        for id in 0..1000 {
            set.insert(id * 2);
        }
        assert_eq!(set.ranges.len(), 1000);
        for id in 0..999 {
            set.insert(id * 2 + 1);
        }
        assert_eq!(set.ranges, BTreeMap::from([(0, 1998)]));
    }
}
