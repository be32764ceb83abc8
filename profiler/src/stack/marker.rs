//! Functions that are never called: their addresses stand in a stack where there is no real frame,
//! and their names say why.
//!
//! Each returns another number, so that no linker folds two of them into one address, and calls
//! nothing, so that no inlined function's name stands before its own.

/// The stack of a sample beyond the limit on distinct stacks.
#[inline(never)]
pub extern "C" fn too_many_distinct_stacks() -> u32 {
    1
}

/// The stack of a sample whose stack could not be walked: no unwind cache was free, or too little
/// stack was left to walk on.
#[inline(never)]
pub extern "C" fn stack_not_captured() -> u32 {
    2
}

/// The stack of a thread that runs, or waits for something that rtprof does not see, in the goroutine profile.
#[inline(never)]
pub extern "C" fn thread_not_waiting_in_rtprof() -> u32 {
    3
}

/// The frame that stands for a marker: like a return address, it is looked up at the byte before.
pub fn frame(marker: extern "C" fn() -> u32) -> usize {
    marker as usize + 1
}
