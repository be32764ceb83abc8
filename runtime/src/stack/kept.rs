//! Stacks that are kept for what they say, with nothing counted for them, and cells that name one.

use super::table::{Entry, Key};
use crate::atomic_ref::AtomicRef;

/// What distinguishes such stacks beside their frames: nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Frames;

impl Key for Frames {
    fn seed(&self) -> u64 {
        0
    }
}

/// A stack that is kept, and what is noted beside it. Never freed.
pub type KeptStack<R = ()> = Entry<Frames, R>;

/// A note of a kept stack, or of none.
pub type NotedStack<R = ()> = AtomicRef<KeptStack<R>>;
