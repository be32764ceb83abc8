//! Where a sampled object is put: a pure function of its whole `Layout`, so that the free, which receives the same
//! `Layout`, knows where to look.
//!
//! | layout | place | how its free is found |
//! |---|---|---|
//! | size and alignment up to 4 KiB | the pool: a slab of its size class | `ptr - BASE < LEN` |
//! | anything else | the inner allocator | the table of large objects, searched only for such layouts |
//!
//! An ordinary small object therefore costs one subtraction and one compare at its free, and no object costs an extra
//! byte. (A page alignment as the mark of a sampled object was tried and rejected: glibc reuses freed aligned chunks
//! for ordinary objects, which caused 2.6 million false look-ups for 7,500 samples.)

use core::alloc::Layout;

/// The largest size and alignment of pooled objects, in bytes.
pub(crate) const MAX_POOLED: usize = 4096;
/// Size classes: steps of 16 B up to 128 B, then four to each doubling.
pub(crate) const CLASSES: usize = 28;

/// Object sizes of the classes.
const SIZES: [u16; CLASSES] = {
    let mut sizes = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        sizes[class] = if class < 8 {
            16 * (class as u16 + 1)
        } else {
            let doubling = (class - 8) / 4;
            let quarter = (class - 8) % 4 + 1;
            (128 << doubling) + quarter as u16 * (32 << doubling)
        };
        class += 1;
    }
    sizes
};

const _: () = assert!(SIZES[CLASSES - 1] as usize == MAX_POOLED);

/// A size class of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    pub(crate) const fn from_index(index: usize) -> Self {
        assert!(index < CLASSES);
        Self(index as u8)
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the bytes of each object.
    pub(crate) const fn size(self) -> usize {
        SIZES[self.0 as usize] as usize
    }

    /// Returns the smallest class that holds `size` bytes, `1..=4096`.
    const fn of_size(size: usize) -> usize {
        if size <= 128 {
            return size.div_ceil(16).saturating_sub(1);
        }
        // The doubling range that contains `size`, counted from (128, 256], and its quarter within that range.
        let doubling = (size - 1).ilog2() as usize - 7;
        let quarter = (size - 1 - (128 << doubling)) / (32 << doubling);
        8 + 4 * doubling + quarter
    }
}

/// Whether sampled objects of this layout are in the table of large objects.
#[inline(always)]
pub(crate) const fn is_large(layout: Layout) -> bool {
    layout.size() > MAX_POOLED || layout.align() > MAX_POOLED
}

/// Returns the class of sampled objects of this layout; `None` for large ones.
pub(crate) const fn class_of(layout: Layout) -> Option<Class> {
    if is_large(layout) {
        return None;
    }
    let mut class = Class::of_size(layout.size());
    // Objects lie at multiples of their class's size from a slab's start, so a class provides an alignment that divides
    // its size. The last class, 4 KiB, provides every alignment that is pooled.
    while !(SIZES[class] as usize).is_multiple_of(layout.align()) {
        class += 1;
    }
    Some(Class(class as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_fits_its_class_and_no_smaller_one() {
        for size in 1..=MAX_POOLED {
            for shift in 0..=12 {
                let layout = Layout::from_size_align(size, 1 << shift).unwrap();
                let class = class_of(layout).unwrap();
                assert!(class.size() >= size && class.size().is_multiple_of(layout.align()), "{layout:?}");
                assert!(
                    (0..class.index())
                        .all(|c| (SIZES[c] as usize) < size
                            || !(SIZES[c] as usize).is_multiple_of(layout.align())),
                    "{layout:?} would fit a smaller class than {class:?}"
                );
            }
        }
    }

    #[test]
    fn waste_is_a_fifth_at_most_above_128_bytes() {
        for size in 129..=MAX_POOLED {
            let class = class_of(Layout::from_size_align(size, 8).unwrap()).unwrap();
            assert!(class.size() - size < size / 4, "{size} in {}", class.size());
        }
    }

    #[test]
    fn large_is_size_or_alignment() {
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        assert!(class_of(layout(4096, 4096)).is_some());
        assert!(class_of(layout(4097, 1)).is_none());
        assert!(class_of(layout(1, 8192)).is_none());
    }
}
