//! The buffer in which a stack is captured, before it is known whether the stack is new.
//!
//! Problem: an array on the stack must be zeroed first, which takes as long as the walk along ten frames. So each
//! thread has a buffer that is zeroed once. A signal handler that interrupts its use takes an array on its stack.

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

/// Runs `f` with a buffer for a stack, with arbitrary contents. Safe to call in a hook.
#[inline(always)]
pub fn with_frames<R>(f: impl FnOnce(&mut [usize; MAX_STACK]) -> R) -> R {
    // Not inside `LocalKey::with`, whose frame would be on the captured stack and look like the program's.
    let scratch = SCRATCH.with(|scratch| &raw const *scratch);
    // SAFETY: the buffer belongs to this thread, which runs until this returns; without a destructor it exists until
    // the thread's last instruction.
    let scratch = unsafe { &*scratch };
    // Only this thread and its signal handlers use the flag, and a handler runs to its end in between.
    if scratch.is_used.load(Ordering::Relaxed) {
        return with_fresh_frames(f);
    }
    scratch.is_used.store(true, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    // SAFETY: the buffer belongs to this thread. The flag was clear, so interrupted code does not use it; a handler
    // that interrupts this use sees the flag.
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
