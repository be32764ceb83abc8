//! Stacks: capture, hash, and the table that stores each distinct stack once.
//!
//! A stack is a list of return addresses, leaf first, of at most [`MAX_STACK`] frames, from the function that called
//! [`capture`] out to `main` or the thread's first function, or, while an async task is polled, to the task's boundary
//! (`crate::boundary`). Frames of the profiler itself are at its leaf end; they are hidden at export, by name, because
//! their number depends on inlining.
//!
//! Capture may run anywhere, in an allocator or with any lock held: it takes no lock, allocates
//! nothing, and calls neither `_Unwind_Backtrace` nor `dl_iterate_phdr`, whose lock another thread
//! may hold while it allocates.

mod bounds;
#[cfg(rtprof_supported)]
pub mod frame_mark;
mod frame_pointer;
mod hash;
#[cfg(rtprof_supported)]
mod interrupted;
pub mod kept;
mod kernel;
pub mod marker;
mod mode;
mod outermost;
pub mod overflow;
mod registers;
#[cfg(rtprof_supported)]
mod rule;
#[cfg(rtprof_supported)]
mod rule_cache;
mod saved_frame;
pub mod scratch;
pub mod spare;
#[cfg(rtprof_supported)]
mod stripes;
pub mod table;
mod unwind;
#[cfg(rtprof_supported)]
mod unwinders;

use core::ops::Deref;

#[cfg(rtprof_supported)]
pub use interrupted::Interrupted;
pub use mode::{StackMode, set_stack_mode, stack_mode};
pub use saved_frame::SavedFrame;
pub use spare::{most_used as most_used_of_spare, with_room, with_room_for_text};

use crate::boundary;
use crate::counters::{CountedProfile, Counter};
use crate::modules::{self, CaptureSpan, Module, OnReading};
use bounds::Bounds;
use mode::Walk;
use registers::{Registers, registers};
use spare::Start;

/// Initialises what captures need, except for the choice of [`StackMode::Auto`]. Called by one thread at a time; must
/// not be called in a hook.
pub(crate) fn open() {
    #[cfg(rtprof_supported)]
    stripes::open();
    spare::open();
    modules::on_reading(&(on_reading as OnReading));
    outermost::open();
}

/// Called at each reading of the modules, by one thread at a time.
fn on_reading(changed: Option<&[&'static Module]>) {
    #[cfg(rtprof_supported)]
    stripes::renew();
    if let Some(modules) = changed {
        unwind::install(modules);
    }
}

/// Decides what [`StackMode::Auto`] means. Called after [`open`].
pub(crate) fn open_mode() {
    mode::open();
}

/// Returns whether the page of `address` can be read. Safe to call in a hook.
#[cfg(rtprof_supported)]
pub(crate) fn is_readable(address: usize) -> bool {
    kernel::is_readable(address)
}

/// The maximum number of frames stored per stack: the innermost ones. Go's limit since 1.23.
pub const MAX_STACK: usize = 128;

/// Stacks of which only the innermost frames were kept. Each record shows whether its stack is one.
static TRUNCATED: Counter = Counter::new(&[], || {
    format!("stacks were deeper than {MAX_STACK} frames; their outermost frames are missing")
});

/// Stacks that could not be walked. Each record shows whether its stack is one.
pub static NOT_CAPTURED: Counter = Counter::new(&[], || {
    "stacks could not be walked (no unwind cache free, or just switched?) and stand under stack_not_captured"
        .into()
});

/// Frame-pointer walks that were broken and replaced by unwinding.
static REPAIRED: Counter = Counter::new(CountedProfile::ALL, || {
    "stacks were broken for frame pointers (C code in between?) and were unwound by tables instead".into()
});

/// A captured stack, perhaps captured more than once.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'a> {
    /// Return addresses, leaf first.
    pub addresses: &'a [usize],
    /// When it was captured: the functions at the addresses depend on it.
    pub span: CaptureSpan,
}

impl Deref for Stack<'_> {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        self.addresses
    }
}

/// A stack that was captured at an unknown time.
impl<'a> From<&'a [usize]> for Stack<'a> {
    fn from(addresses: &'a [usize]) -> Self {
        Self { addresses, span: CaptureSpan::UNKNOWN }
    }
}

/// Captures the caller's stack into `frames` and returns its depth. If the thread polls a task, the stack ends at that
/// task. The first frames may be frames of the profiler.
///
/// The depth is never 0 on a supported platform: a stack that cannot be walked is the single frame
/// [`marker::stack_not_captured`], and is counted.
///
/// A caller in a hook uses [`with_room`] to make sure that the stack has room for this.
#[inline(never)]
pub fn capture(frames: &mut [usize; MAX_STACK]) -> usize {
    // Without the frames of the executor, which are more than the task's in most programs.
    let end = boundary::address_in_use().unwrap_or(NO_END);
    let depth = walked_from(registers(), end, frames);
    if is_at(end, &frames[..depth]) { depth } else { finish(frames, depth) }
}

/// Captures as [`capture`] does, but out to the end of the thread's stack, including all tasks that it polls.
#[inline(never)]
pub(crate) fn capture_whole(frames: &mut [usize; MAX_STACK]) -> usize {
    let depth = walked_from(registers(), NO_END, frames);
    finish(frames, depth)
}

#[inline]
fn walked_from(registers: Registers, end: usize, frames: &mut [usize; MAX_STACK]) -> usize {
    let Start { registers, stack } = match bounds::own_stack_at(registers.sp) {
        Some(stack) => Start { registers, stack },
        None => elsewhere(registers),
    };
    walked(registers, stack, end, frames)
}

/// The end of a walk that does not end before the stack: no return address is 0.
const NO_END: usize = 0;

/// Returns whether a walk that was to end at the return address `end` has come there.
#[inline]
fn is_at(end: usize, walked: &[usize]) -> bool {
    end != NO_END && walked.last() == Some(&end)
}

/// Walks the stack from these registers outwards, to the return address `end` or to the stack's end, including start-up
/// frames; returns 0 where it cannot be walked.
#[inline]
fn walked(registers: Registers, stack: Bounds, end: usize, frames: &mut [usize; MAX_STACK]) -> usize {
    let by_pointers = |frames| frame_pointer::walk(registers.fp, registers.sp, stack, end, frames);
    match mode::walk() {
        Walk::Unwind => unwound(registers, stack, end, frames),
        Walk::FramePointersUnchecked => by_pointers(frames),
        Walk::FramePointers => {
            let depth = by_pointers(frames);
            let is_trusted = || depth > 0 && (depth == MAX_STACK || outermost::is_trusted(frames[depth - 1]));
            if is_at(end, &frames[..depth]) || is_trusted() {
                depth
            } else {
                checked(registers, stack, end, frames, depth)
            }
        }
    }
}

/// Returns the start of a walk whose registers were not read on the thread's own stack, as far as its bounds are known.
#[cold]
fn elsewhere(registers: Registers) -> Start {
    spare::start_of(registers.sp)
        .unwrap_or_else(|| Start { registers, stack: bounds::of_stack_at(registers.sp) })
}

#[inline]
fn finish(frames: &mut [usize; MAX_STACK], depth: usize) -> usize {
    if depth == 0 {
        return not_captured(frames);
    }
    if depth == MAX_STACK {
        TRUNCATED.add();
        return depth;
    }
    outermost::trim(&frames[..depth])
}

#[cold]
fn not_captured(frames: &mut [usize; MAX_STACK]) -> usize {
    NOT_CAPTURED.add();
    frames[0] = marker::frame(marker::stack_not_captured);
    1
}

#[inline]
fn unwound(registers: Registers, stack: Bounds, end: usize, frames: &mut [usize; MAX_STACK]) -> usize {
    unwind::walk(registers, stack, end, frames).unwrap_or(0)
}

/// Checks by the unwind tables a frame-pointer walk whose end is not a known end of a stack.
#[cold]
#[inline(never)]
fn checked(
    registers: Registers,
    stack: Bounds,
    end: usize,
    frames: &mut [usize; MAX_STACK],
    depth: usize,
) -> usize {
    let mut by_tables = [0; MAX_STACK];
    let unwound = unwound(registers, stack, end, &mut by_tables);
    if unwound == 0 {
        // No cache is free: an unconfirmed stack is better than none.
        return depth;
    }
    // Frame pointers that have missed `end` have missed frames, and how many there are beyond it is not known.
    let may_be_whole = depth > 0 && !is_at(end, &by_tables[..unwound]);
    if may_be_whole && outermost::confirm(frames[depth - 1], &by_tables[..unwound]) {
        return depth;
    }
    REPAIRED.add();
    *frames = by_tables;
    unwound
}

/// Walks both ways from one place, without trimming; for the self-test.
#[inline(never)]
fn capture_both_ways(
    by_pointers: &mut [usize; MAX_STACK],
    by_tables: &mut [usize; MAX_STACK],
) -> (usize, usize) {
    let registers = registers();
    let stack = bounds::of_stack_at(registers.sp);
    (
        frame_pointer::walk(registers.fp, registers.sp, stack, NO_END, by_pointers),
        unwound(registers, stack, NO_END, by_tables),
    )
}
