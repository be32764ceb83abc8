//! The part of a heap profile bucket's key that distinguishes it besides the stack.

use rtprof_runtime::labels::LabelSetId;
use rtprof_runtime::stack::table::{Entry, Key};

use crate::mem_record::MemRecord;
use crate::rate::RateIndex;

/// The object size and a 32-bit tag: the rate at which and the labels under which the samples were taken.
///
/// Go's key is (type, stack, size); here each type has a separate table. The size belongs to the key because the weight
/// of a sample depends on it: counts of different sizes must not be added before they are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemKey {
    size: usize,
    tag: u32,
}

const LABEL_BITS: u32 = 16;

impl MemKey {
    /// Makes the key of an object of `size` bytes.
    pub fn new(size: usize, rate: RateIndex, labels: LabelSetId) -> Self {
        Self { size, tag: rate.bits() << LABEL_BITS | labels.bits() }
    }

    /// Returns the same key with the size rounded down to a sixteenth of its power of two if it is above 4 KiB: for the
    /// overflow bucket, which must not grow with the number of distinct sizes.
    pub fn coarse(self) -> Self {
        if self.size <= 4096 {
            return self;
        }
        let step = 1usize << (self.size.ilog2() - 4);
        Self { size: self.size / step * step, ..self }
    }

    /// Returns the size of each object in bytes.
    pub fn size(self) -> usize {
        self.size
    }

    /// Returns the rate at which the samples were taken.
    pub fn rate(self) -> RateIndex {
        RateIndex::from_bits(self.tag >> LABEL_BITS)
    }

    /// Returns the labels under which the samples were taken.
    pub fn labels(self) -> LabelSetId {
        LabelSetId::from_bits(self.tag & ((1 << LABEL_BITS) - 1))
    }
}

impl Key for MemKey {
    #[inline]
    fn seed(&self) -> u64 {
        (self.size as u64) << 32 ^ u64::from(self.tag)
    }
}

/// A bucket of the heap profile. Never freed, so that a sampled object may keep a reference to it.
pub type MemBucket = Entry<MemKey, MemRecord>;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn coarse_sizes_are_few_and_near() {
        let rate = RateIndex::from_bits(3);
        let distinct: std::collections::HashSet<usize> =
            (1..200_000).map(|size| MemKey::new(size, rate, LabelSetId::NONE).coarse().size()).collect();
        assert!(distinct.len() < 4096 + 16 * 7);
        let key = MemKey::new(1_000_000, rate, LabelSetId::from_bits(9));
        assert!(key.coarse().size() as f64 > 1_000_000.0 * 15.0 / 16.0);
        assert_eq!((key.coarse().rate(), key.coarse().labels()), (rate, LabelSetId::from_bits(9)));
    }
}
