//! The measured loops: objects that live for a moment, and objects that live in a ring.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::processor::Stopwatch;
use crate::sizes::{Draw, Sizes};

/// The number of objects that the ring keeps alive.
const RING: usize = 1024;

/// How long an object lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Freed at once: the best case of every thread cache.
    Pair,
    /// Replaces a random one of [`RING`] live objects, so that frees do not come in the order of allocations.
    Ring,
}

impl Shape {
    /// Returns the word for a request.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Ring => "ring",
        }
    }

    /// Parses the word that [`Shape::word`] returns.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "pair" => Some(Self::Pair),
            "ring" => Some(Self::Ring),
            _ => None,
        }
    }
}

/// Returns the nanoseconds for one allocation with its free, over `count` of them after a warm-up of an eighth of that.
///
/// `table` has [`Sizes::TABLE`] sizes. This function and the loops are inlined, so that they add no frame to recorded
/// stacks.
#[inline(always)]
pub fn churn(shape: Shape, table: &[usize], count: usize) -> f64 {
    match shape {
        Shape::Pair => {
            let _held = hold_some(table);
            pairs(table, count / 8);
            let watch = Stopwatch::start();
            pairs(table, count);
            watch.nanos_each(count)
        }
        Shape::Ring => {
            let mut ring = Ring::fill(table);
            ring.turn(table, count / 8);
            let watch = Stopwatch::start();
            ring.turn(table, count);
            watch.nanos_each(count)
        }
    }
}

/// Keeps a different number of objects alive each time, so that a loop of pairs, which gets a single address again and
/// again, gets another address in each round. This matters: jemalloc with its profiler compiled in takes a slow path
/// for every free of a page-aligned object, and the first object of a slab is page-aligned.
#[inline(never)]
fn hold_some(table: &[usize]) -> Vec<Object> {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let held = Draw::new(CALLS.fetch_add(1, Ordering::Relaxed)).bits() % 64;
    table.iter().take(held as usize).map(|&size| Object::new(size)).collect()
}

/// Allocates and frees `count` objects, one alive at a time.
#[inline(always)]
fn pairs(table: &[usize], count: usize) {
    for i in 0..count {
        drop(Object::new(table[i & (Sizes::TABLE - 1)]));
    }
}

/// A live allocation of which the first and the last byte were written.
struct Object {
    start: NonNull<u8>,
    layout: Layout,
}

impl Object {
    #[inline(always)]
    fn new(size: usize) -> Self {
        debug_assert!(size > 0);
        // The plain functions instead of a Box, because an optimizer may remove an unused Box.
        let layout = Layout::from_size_align(size, 8).expect("sizes are far below isize::MAX");
        // SAFETY: every size of a table is at least 16, so the layout is not zero-sized.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(black_box(start)) else { handle_alloc_error(layout) };
        // SAFETY: both bytes lie within the allocation just made.
        unsafe {
            start.write(1);
            start.add(size - 1).write(1);
        }
        Self { start, layout }
    }
}

impl Drop for Object {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc` with this layout, and an object is dropped once.
        unsafe { dealloc(black_box(self.start.as_ptr()), self.layout) }
    }
}

/// Objects that are replaced in random order.
struct Ring {
    slots: Vec<Object>,
    order: Vec<u16>,
}

impl Ring {
    fn fill(table: &[usize]) -> Self {
        let mut draw = Draw::new(0x0dde);
        Self {
            slots: table.iter().take(RING).map(|&size| Object::new(size)).collect(),
            order: (0..Sizes::TABLE).map(|_| (draw.bits() % RING as u64) as u16).collect(),
        }
    }

    #[inline(always)]
    fn turn(&mut self, table: &[usize], count: usize) {
        for i in 0..count {
            let step = i & (Sizes::TABLE - 1);
            self.slots[usize::from(self.order[step])] = Object::new(table[step]);
        }
    }
}
