//! Samples taken where a stack has little room left, and what became of them.

use std::alloc::{Layout, alloc, dealloc};
use std::hint::black_box;

use super::profile::{ALLOC_OBJECTS, Profile, Sample};

/// The size of what is counted here; nothing else has it.
const OBJECT: usize = 613;
pub(crate) const ROUNDS: i64 = 20;
/// What the program itself needs for an allocation here: at rate 0 it gets by with 0.5 KiB, and in debug builds with
/// 1.5.
pub(crate) const LEAST: usize = if cfg!(debug_assertions) { 3 << 10 } else { 1 << 10 };
/// Enough for every sample to be kept.
pub(crate) const ENOUGH: usize = if cfg!(debug_assertions) { 8 << 10 } else { 5 << 10 };

#[inline(never)]
pub(crate) fn some_objects() {
    let layout = Layout::from_size_align(OBJECT, 1).expect("a small size");
    for _ in 0..ROUNDS {
        // SAFETY: it has a size, and is given back as it was had.
        unsafe { dealloc(black_box(alloc(layout)), layout) };
    }
}

/// The profile, written where there is room.
pub(crate) fn profile() -> Profile {
    std::thread::spawn(Profile::heap).join().expect("it is written")
}

/// How many samples have all these functions in their stack.
pub(crate) fn recorded(profile: &Profile, functions: &[&str]) -> i64 {
    let has_all = |sample: &Sample| functions.iter().all(|function| sample.has(function));
    profile
        .samples_of("some_objects")
        .iter()
        .filter(|sample| has_all(sample))
        .map(|sample| sample.values[ALLOC_OBJECTS])
        .sum()
}

/// How many samples the profile says were given up for want of room.
pub(crate) fn given_up(profile: &Profile) -> i64 {
    let comments = profile.comments();
    let line = comments.lines().find(|line| line.contains("too little of the program's stack was left"));
    line.map_or(0, |line| line.split(' ').nth(1).expect("a number").parse().expect("a number"))
}

fn stack_pointer() -> usize {
    let local = 0_u8;
    (&raw const local).addr()
}

/// Calls `f` when the stack pointer has come near `to`, by frames that get smaller.
pub(crate) fn deeper(to: usize, f: &dyn Fn()) {
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
    deeper(to, f);
    black_box(&bytes);
}
