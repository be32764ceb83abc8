//! Functions that are never called: their addresses stand in a stack where there is no real frame,
//! and their names say why.
//!
//! Each body differs, so that no linker folds two of them into one address.

use core::hint::black_box;

/// The stack of a sample beyond the limit on distinct stacks.
#[inline(never)]
pub extern "C" fn too_many_distinct_stacks() {
    black_box(1u8);
}

/// The stack of a sample whose stack could not be walked: no unwind cache was free, or too little
/// stack was left to walk on.
#[inline(never)]
pub extern "C" fn stack_not_captured() {
    black_box(2u16);
}

/// The frame that stands for a marker: like a return address, it is looked up at the byte before.
pub fn frame(marker: extern "C" fn()) -> usize {
    marker as usize + 1
}
