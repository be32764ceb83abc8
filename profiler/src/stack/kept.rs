//! Stacks that are kept for what they say, with nothing counted for them, and cells that name one.

use core::ptr;

use super::table::{Entry, Key};
use crate::primitive::{AtomicPtr, Ordering};

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
pub struct NotedStack<R: 'static = ()>(AtomicPtr<KeptStack<R>>);

impl<R> Default for NotedStack<R> {
    fn default() -> Self {
        Self(AtomicPtr::default())
    }
}

impl<R> NotedStack<R> {
    /// What was noted last.
    pub fn get(&self) -> Option<&'static KeptStack<R>> {
        // SAFETY: null, or from a static reference.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Notes it. For hooks.
    #[inline]
    pub fn note(&self, stack: Option<&'static KeptStack<R>>) {
        // Release: whoever reads the note reads the stack as well.
        self.0
            .store(stack.map_or(ptr::null_mut(), |stack| (&raw const *stack).cast_mut()), Ordering::Release);
    }
}
