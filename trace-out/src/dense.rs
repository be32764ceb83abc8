//! Tables with small reusable indices, so that code that follows goroutines or lanes can keep parallel arrays.

use std::ops::{Index, IndexMut};

use rtprof_symbols::hash::AddressMap;

/// Entries by index, found by a 64-bit id. Index 0 belongs to id 0 and stands for "none".
pub(crate) struct DenseTable<T> {
    entries: Vec<T>,
    by_id: AddressMap<u64, u32>,
    free: Vec<u32>,
}

impl<T: Default> DenseTable<T> {
    pub(crate) fn new() -> Self {
        Self { entries: vec![T::default()], by_id: AddressMap::default(), free: Vec::new() }
    }

    /// Returns the index of an id that has an entry.
    pub(crate) fn find(&self, id: u64) -> Option<u32> {
        if id == 0 { Some(0) } else { self.by_id.get(&id).copied() }
    }

    /// Returns the index of an id, and whether a new entry was made for it, with `make`.
    pub(crate) fn find_or_insert(&mut self, id: u64, make: impl FnOnce() -> T) -> (u32, bool) {
        if let Some(index) = self.find(id) {
            return (index, false);
        }
        let index = match self.free.pop() {
            Some(index) => {
                self[index] = make();
                index
            }
            None => self.push(make()),
        };
        self.by_id.insert(id, index);
        (index, true)
    }

    /// Removes the entry of an id and frees its index.
    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(index) = self.by_id.remove(&id) {
            self[index] = T::default();
            self.free.push(index);
        }
    }

    /// Adds an entry that is found only by its index.
    pub(crate) fn push(&mut self, entry: T) -> u32 {
        self.entries.push(entry);
        self.entries.len() as u32 - 1
    }

    /// Returns the entry at an index that another table has assigned. The table grows up to there.
    pub(crate) fn entry(&mut self, index: u32) -> &mut T {
        let index = index as usize;
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, T::default);
        }
        &mut self.entries[index]
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)
    }

    /// Returns all indices but 0, free ones included.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + use<T> {
        1..self.entries.len() as u32
    }
}

impl<T> Index<u32> for DenseTable<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.entries[index as usize]
    }
}

impl<T> IndexMut<u32> for DenseTable<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.entries[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_used_again() {
        let mut table = DenseTable::new();
        assert_eq!([0, 50, 60, 50].map(|id| table.find_or_insert(id, || id).0), [0, 1, 2, 1]);
        table.remove(60);
        assert_eq!((table.find(0), table.find(50), table.find(60), table[2]), (Some(0), Some(1), None, 0));
        assert_eq!([70, 80].map(|id| table.find_or_insert(id, || id)), [(2, true), (3, true)]);
        assert_eq!((table[2], table.indices().collect::<Vec<_>>()), (70, vec![1, 2, 3]));
    }

    #[test]
    fn a_table_follows_the_indices_of_another() {
        let mut table = DenseTable::new();
        *table.entry(3) = 'c';
        assert_eq!((table.get(1), table.get(3), table.get(4)), (Some(&'\0'), Some(&'c'), None));
    }
}
