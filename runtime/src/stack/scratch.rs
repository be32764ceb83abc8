//! The place where a stack is captured, before it is known whether it is a new one.
//!
//! Problem: an array on the stack must be zeroed first, which takes as long as the walk along ten frames. So each thread has a
//! place that is zeroed once. A signal handler that interrupts its use takes an array on its stack.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use super::MAX_STACK;

struct Scratch {
    is_used: AtomicBool,
    frames: UnsafeCell<[usize; MAX_STACK]>,
}

thread_local! {
    // No destructor and no lazy initialisation: readable from the first to the last instruction of a thread
    // (rust#116390).
    static SCRATCH: Scratch =
        const { Scratch { is_used: AtomicBool::new(false), frames: UnsafeCell::new([0; MAX_STACK]) } };
}

/// Runs `f` with room for a stack, in which anything may be. For hooks.
#[inline(always)]
pub fn with_frames<R>(f: impl FnOnce(&mut [usize; MAX_STACK]) -> R) -> R {
    // Not within a function of std's, which would be on the stack that is captured, and look as if it were the program's.
    let scratch = SCRATCH.with(|scratch| &raw const *scratch);
    // SAFETY: this thread's, which goes on until this returns; without a destructor it is there to the last instruction.
    let scratch = unsafe { &*scratch };
    // Of this thread and its signal handlers alone, which run from beginning to end in between.
    if scratch.is_used.load(Ordering::Relaxed) {
        return with_fresh_frames(f);
    }
    scratch.is_used.store(true, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    // SAFETY: this thread's, and not used by what it may have interrupted, says the flag; what interrupts it sees the flag.
    let result = f(unsafe { &mut *scratch.frames.get() });
    compiler_fence(Ordering::SeqCst);
    scratch.is_used.store(false, Ordering::Relaxed);
    result
}

#[cold]
#[inline(never)]
fn with_fresh_frames<R>(f: impl FnOnce(&mut [usize; MAX_STACK]) -> R) -> R {
    f(&mut [0; MAX_STACK])
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_interrupts_a_use_has_room_elsewhere() {
        with_frames(|outer| {
            outer[0] = 1;
            with_frames(|inner| inner[0] = 2);
            assert_eq!(outer[0], 1);
        });
        with_frames(|again| assert_eq!(again[0], 1, "the thread's own"));
    }
}
