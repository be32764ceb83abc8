//! The mark of a state word, as the tracer uses it: the generation in which the goroutine was declared.
//!
//! A trace must state what a goroutine does before it shows the first change (`RecordKind::Status`: the goroutine is
//! *declared*), once in every generation. The thread that replaces an older generation in the mark by the present one
//! declares the goroutine: the compare-and-swap makes it the only one to do so, and returns the state to declare.
//!
//! A change that the trace has no room for leaves [`LOST_GENERATION`] in the mark, so that the next change declares the
//! goroutine anew.

use rtprof_runtime::goroutine::state::{MAX_MARK, StateWord};

/// The mark of a goroutine that was declared and has changed since without a record.
pub(crate) const LOST_GENERATION: u32 = MAX_MARK;

/// Generations are numbered from 1 to this number, and then from 1 again. 0 stands for none.
pub(crate) const MAX_GENERATION: u32 = LOST_GENERATION - 1;

/// A state word whose mark is a generation.
pub(crate) trait Declared {
    /// Returns the generation in which the goroutine was declared; 0 for none.
    fn generation(self) -> u32;
    /// Returns the mark after a change without a record.
    fn lost(self) -> u32;
    /// Returns the same state, declared in `generation`.
    #[must_use]
    fn declared(self, generation: u32) -> Self;
}

impl Declared for StateWord {
    #[inline]
    fn generation(self) -> u32 {
        self.mark()
    }

    #[inline]
    fn lost(self) -> u32 {
        if self.mark() == 0 { 0 } else { LOST_GENERATION }
    }

    #[inline]
    fn declared(self, generation: u32) -> Self {
        self.with_mark(generation)
    }
}
