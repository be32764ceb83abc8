//! Samples taken where a stack has little room left, and the number of those dropped.

use std::alloc::{GlobalAlloc, Layout, alloc, dealloc};
use std::hint::black_box;

use crate::inner::INNER;
use crate::profile::{ALLOC_OBJECTS, Profile, Sample};

/// The size of the counted objects; no other object has it.
const OBJECT: usize = 613;
pub const ROUNDS: i64 = 20;
/// The stack that the program itself needs for an allocation here: at rate 0 it needs 0.5 KiB, in debug builds 1.5 KiB.
pub const LEAST: usize = if cfg!(debug_assertions) { 3 << 10 } else { 1 << 10 };
/// Enough for every sample to be kept.
pub const ENOUGH: usize = if cfg!(debug_assertions) { 8 << 10 } else { 5 << 10 };

#[inline(never)]
pub fn some_objects() {
    let layout = Layout::from_size_align(OBJECT, 1).expect("a small size");
    for _ in 0..ROUNDS {
        // SAFETY: the layout's size is not 0, and the object is freed with the layout of its allocation.
        unsafe { dealloc(black_box(alloc(layout)), layout) };
    }
}

/// Returns the profile, written on a thread with enough stack.
pub fn profile() -> Profile {
    std::thread::spawn(Profile::heap).join().expect("it is written")
}

/// Returns how many samples have all these functions in their stack.
pub fn recorded(profile: &Profile, functions: &[&str]) -> i64 {
    let has_all = |sample: &Sample| functions.iter().all(|function| sample.has(function));
    profile
        .samples_of("some_objects")
        .iter()
        .filter(|sample| has_all(sample))
        .map(|sample| sample.values[ALLOC_OBJECTS])
        .sum()
}

/// Returns how many samples were dropped for lack of room, according to the profile.
pub fn given_up(profile: &Profile) -> i64 {
    let comments = profile.comments();
    let line = comments.lines().find(|line| line.contains("too little of the program's stack was left"));
    line.map_or(0, |line| line.split(' ').nth(1).expect("a number").parse().expect("a number"))
}

fn stack_pointer() -> usize {
    let local = 0_u8;
    (&raw const local).addr()
}

/// Calls `f` when the stack pointer is near `to`, through frames of decreasing size.
///
/// The thread holds an object of the inner allocator during the calls. Otherwise the first object that is not sampled
/// might need a new page of objects, and taking one needs more than [`LEAST`] in mimalloc.
pub fn deeper(to: usize, f: &dyn Fn()) {
    let layout = Layout::from_size_align(OBJECT, 1).expect("a small size");
    // SAFETY: the layout's size is not 0, and the object is freed below with the same layout.
    let held = unsafe { INNER.alloc(layout) };
    assert!(!held.is_null(), "there is memory");
    deeper_still(to, f);
    // SAFETY: see above.
    unsafe { INNER.dealloc(held, layout) };
}

fn deeper_still(to: usize, f: &dyn Fn()) {
    match stack_pointer().saturating_sub(to) {
        ..512 => f(),
        512..4096 => with_bytes::<64>(to, f),
        4096..32768 => with_bytes::<2048>(to, f),
        _ => with_bytes::<16384>(to, f),
    }
}

#[inline(never)]
fn with_bytes<const N: usize>(to: usize, f: &dyn Fn()) {
    let bytes = black_box([0_u8; N]);
    deeper_still(to, f);
    black_box(&bytes);
}
