//! Recursion that leaves a stack of a wanted depth under a measured piece of code.

use std::hint::black_box;

use crate::sizes::Draw;

/// A level of the recursion. It is reached through a table of virtual functions, so that no optimizer can merge levels.
trait Level: Sync {
    fn descend(&self, way: usize, left: usize, leaf: &mut dyn FnMut()) -> usize;
}

/// Many levels, each a separate function. A recursion of one function would have the same return address in all its
/// frames, which an unwinder that remembers addresses finds much more easily than the stacks of a program.
struct Nth<const N: usize>;

impl<const N: usize> Level for Nth<N> {
    fn descend(&self, way: usize, left: usize, leaf: &mut dyn FnMut()) -> usize {
        let below = if left == 0 {
            leaf();
            black_box(1)
        } else {
            level(way, left).descend(way, left - 1, leaf)
        };
        // Work after the call keeps it from becoming a jump; a different constant for each level keeps
        // the functions from being merged.
        below.wrapping_mul(2 * N + 3)
    }
}

macro_rules! sixteen {
    ($first:expr) => {
        [
            &Nth::<{ $first }>,
            &Nth::<{ $first + 1 }>,
            &Nth::<{ $first + 2 }>,
            &Nth::<{ $first + 3 }>,
            &Nth::<{ $first + 4 }>,
            &Nth::<{ $first + 5 }>,
            &Nth::<{ $first + 6 }>,
            &Nth::<{ $first + 7 }>,
            &Nth::<{ $first + 8 }>,
            &Nth::<{ $first + 9 }>,
            &Nth::<{ $first + 10 }>,
            &Nth::<{ $first + 11 }>,
            &Nth::<{ $first + 12 }>,
            &Nth::<{ $first + 13 }>,
            &Nth::<{ $first + 14 }>,
            &Nth::<{ $first + 15 }>,
        ]
    };
}

static LEVELS: [[&dyn Level; 16]; 16] = [
    sixteen!(0),
    sixteen!(16),
    sixteen!(32),
    sixteen!(48),
    sixteen!(64),
    sixteen!(80),
    sixteen!(96),
    sixteen!(112),
    sixteen!(128),
    sixteen!(144),
    sixteen!(160),
    sixteen!(176),
    sixteen!(192),
    sixteen!(208),
    sixteen!(224),
    sixteen!(240),
];

/// Returns the function for a level of this way.
fn level(way: usize, left: usize) -> &'static dyn Level {
    let bits = Draw::new((way << 8 | left) as u64).bits() as usize;
    black_box(LEVELS[bits % 16][bits / 16 % 16])
}

/// Runs `leaf` with `depth` frames of recursion above it, and no other frames.
///
/// Each `way` goes through other functions of the same program. Which return addresses collide in a cache is an
/// accident of the way; over several ways such accidents average out.
#[inline(always)]
pub fn at_depth(way: usize, depth: usize, leaf: &mut dyn FnMut()) {
    black_box(level(way, depth).descend(way, depth.saturating_sub(1), leaf));
}

/// Returns the recursion depth that gives a stack of `wanted` frames, or the nearest above. `at_one` is the number of
/// frames at depth 1.
///
/// The frames beside the recursion (the start of the thread, the allocator's own frames) differ between builds, so
/// their number is measured instead of assumed.
pub fn depth_for(wanted: usize, at_one: usize) -> usize {
    (wanted + 1).saturating_sub(at_one).max(1)
}

/// Runs `leaf` once on each of `count` distinct stacks of `depth` levels: every level goes one of two ways, by a bit of
/// the stack's number.
///
/// # Panics
/// If `depth` levels are too few for `count` distinct ways.
pub fn on_distinct_stacks(count: usize, depth: usize, leaf: &mut dyn FnMut()) {
    assert!(depth >= 64 || count <= 1 << depth, "{depth} levels have fewer than {count} ways");
    for number in 0..count {
        black_box(fork(number, depth, leaf));
    }
}

type Way = fn(usize, usize, &mut dyn FnMut()) -> usize;

/// The two ways. They are two functions, because an optimizer may merge two call sites of one function; the constants
/// in them keep the functions themselves from being merged.
static WAYS: [Way; 2] = [left, right];

#[inline(always)]
fn fork(ways: usize, levels: usize, leaf: &mut dyn FnMut()) -> usize {
    if levels == 0 {
        leaf();
        black_box(1)
    } else {
        black_box(WAYS[ways & 1])(ways >> 1, levels - 1, leaf)
    }
}

#[inline(never)]
fn left(ways: usize, levels: usize, leaf: &mut dyn FnMut()) -> usize {
    fork(ways, levels, leaf).wrapping_mul(3)
}

#[inline(never)]
fn right(ways: usize, levels: usize, leaf: &mut dyn FnMut()) -> usize {
    fork(ways, levels, leaf).wrapping_mul(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leaf_runs_once_per_descent() {
        let mut runs = 0;
        at_depth(3, 7, &mut || runs += 1);
        on_distinct_stacks(100, 20, &mut || runs += 1);
        assert_eq!(runs, 101);
    }

    #[test]
    fn depth_accounts_for_the_frames_already_there() {
        assert_eq!(depth_for(32, 10), 23);
        assert_eq!(depth_for(5, 10), 1);
    }
}
