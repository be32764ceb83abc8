//! Stacks stored for their frames only, without counts, and cells that refer to a stored stack.

use super::table::{Entry, Key};
use crate::memory::atomic_ref::AtomicRef;

/// The key of these stacks: the frames alone distinguish them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Frames;

impl Key for Frames {
    fn seed(&self) -> u64 {
        0
    }
}

/// A stored stack and the data `R` beside it. Never freed.
pub type KeptStack<R = ()> = Entry<Frames, R>;

/// A reference to a stored stack, or none.
pub(crate) type NotedStack<R = ()> = AtomicRef<KeptStack<R>>;
