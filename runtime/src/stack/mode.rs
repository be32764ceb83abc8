//! The way in which stacks are walked, and the self-test that chooses it.
//!
//! Frame pointers are about three times faster but right only if the whole program keeps them, which no `cfg` reveals. Two
//! things decide at start: a hint from the build script (the flags it saw), and a walk of a chain of our own functions
//! both ways, whose results must agree. A program may choose with [`set_stack_mode`].

use core::hint::black_box;
use core::sync::atomic::{AtomicU8, Ordering};

use super::MAX_STACK;

/// How stacks are walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackMode {
    /// Along frame pointers, about 1 ns a frame. Only for programs built entirely with `-C force-frame-pointers=yes`:
    /// elsewhere stacks are empty or start in the middle.
    FramePointers,
    /// By the unwind tables, about 4 ns a frame (on x86-64). Right in every build.
    Unwind,
    /// Frame pointers, if the flags and a self-test at start indicate that the program has them; every new end of a
    /// stack is then checked against the unwind tables. Otherwise the unwind tables.
    #[default]
    Auto,
}

/// The way a capture walks: the requested mode, with `Auto` resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    FramePointersUnchecked,
    FramePointers,
    Unwind,
}

const UNCHECKED: u8 = 0;
const CHECKED: u8 = 1;
const UNWIND: u8 = 2;

/// `Auto`, until the self-test has run. The unwind tables are used: slower, but never wrong.
const UNDECIDED: u8 = 3;

static WALK: AtomicU8 = AtomicU8::new(UNDECIDED);
/// The resolved meaning of `Auto` in this program.
static AUTO: AtomicU8 = AtomicU8::new(UNDECIDED);

#[inline]
pub(super) fn walk() -> Walk {
    match WALK.load(Ordering::Relaxed) {
        UNCHECKED => Walk::FramePointersUnchecked,
        CHECKED => Walk::FramePointers,
        _ => Walk::Unwind,
    }
}

/// Chooses how stacks are walked from the next capture on. Go has no such choice: its runtime always knows its stacks.
///
/// A walk along missing frame pointers gives short stacks, but reads nothing outside the thread's stack.
pub fn set_stack_mode(mode: StackMode) {
    let walk = match mode {
        StackMode::FramePointers => UNCHECKED,
        StackMode::Unwind => UNWIND,
        StackMode::Auto => UNDECIDED,
    };
    WALK.store(walk, Ordering::SeqCst);
    decide(AUTO.load(Ordering::SeqCst));
}

/// Resolves `Auto`, if that is the requested mode. SeqCst in both callers: of a request and the end of the self-test at
/// the same time, at least one sees the other, and a request for another mode is never overwritten.
fn decide(auto: u8) {
    let _ = WALK.compare_exchange(UNDECIDED, auto, Ordering::SeqCst, Ordering::SeqCst);
}

/// Returns the current way of walking stacks, with `Auto` resolved.
pub fn stack_mode() -> StackMode {
    match walk() {
        Walk::Unwind => StackMode::Unwind,
        _ => StackMode::FramePointers,
    }
}

/// Runs the self-test. Must not be called in a hook.
pub(crate) fn open() {
    let hint = env!("RTPROF_FRAME_POINTERS_HINT");
    let auto = if hint != "no" && frame_pointers_work() { CHECKED } else { UNWIND };
    AUTO.store(auto, Ordering::SeqCst);
    decide(auto);
}

/// The number of frames that must agree: the recursion of `probe`, which is entirely code of this crate.
const PROBED: usize = 4;

fn frame_pointers_work() -> bool {
    let mut by_pointers = [0; MAX_STACK];
    let mut by_tables = [0; MAX_STACK];
    probe(PROBED, &mut by_pointers, &mut by_tables)
}

#[inline(never)]
fn probe(depth: usize, by_pointers: &mut [usize; MAX_STACK], by_tables: &mut [usize; MAX_STACK]) -> bool {
    let agree = if depth == 0 {
        let (a, b) = super::capture_both_ways(by_pointers, by_tables);
        a > PROBED && b > PROBED && by_pointers[..=PROBED] == by_tables[..=PROBED]
    } else {
        probe(depth - 1, by_pointers, by_tables)
    };
    // Keeps the recursion from becoming a loop.
    black_box(agree)
}
