//! The boundary of a task on a stack: the function through which every poll goes.
//!
//! Below a task's frames lie those of the executor, and below them the thread's. A return address inside `poll_task` is
//! the boundary. `poll_task` is a function of a few instructions, in assembly, so that the compiler can neither inline
//! nor copy it: the program contains a single address of this kind.
//!
//! ```text
//!   leaf …  app::inner  app::outer  call<…> │ poll_task │ Instrumented::poll  tokio::…  thread start
//!                the task                                     the thread
//! ```

use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicBool, Ordering};

/// Runs `f` as the inside of a task's poll.
#[inline]
pub fn run<F: FnOnce() -> R, R>(f: F) -> R {
    union Cell<F, R> {
        function: ManuallyDrop<F>,
        result: ManuallyDrop<R>,
    }
    unsafe extern "C-unwind" fn call<F: FnOnce() -> R, R>(cell: *mut ()) {
        let cell = cell.cast::<Cell<F, R>>();
        // SAFETY: `run` has stored the function there, and calls this once.
        let function = unsafe { ManuallyDrop::take(&mut (*cell).function) };
        let result = function();
        // SAFETY: the cell belongs to `run`, which waits for this call.
        unsafe { (*cell).result = ManuallyDrop::new(result) };
    }
    let mut cell = Cell { function: ManuallyDrop::new(f) };
    // SAFETY: the cell lives until the call returns, and has the type that `call` expects.
    unsafe { poll_task((&raw mut cell).cast(), call::<F, R>) };
    // SAFETY: the function has returned, so it has stored its result there; after a panic this is not reached.
    unsafe { ManuallyDrop::into_inner(cell.result) }
}

/// Whether there was a task yet; before the first task no stack is searched.
static IS_IN_USE: AtomicBool = AtomicBool::new(false);

/// Notes that tasks exist. Called before the first task is polled.
pub(crate) fn note_in_use() {
    if !IS_IN_USE.load(Ordering::Relaxed) {
        IS_IN_USE.store(true, Ordering::Relaxed);
    }
}

/// Returns the return address of the boundary, at which the walk of a task's stack may end; `None` before the first task. Safe
/// to call in a hook.
#[inline]
pub(crate) fn address_in_use() -> Option<usize> {
    IS_IN_USE.load(Ordering::Relaxed).then(address)
}

/// Returns how many frames of a stack, leaf first, belong to the innermost task; `None` if there is no task. Safe to
/// call in a hook.
#[inline]
pub fn end(frames: &[usize]) -> Option<usize> {
    if !IS_IN_USE.load(Ordering::Relaxed) {
        return None;
    }
    frames.iter().position(|&frame| is_boundary(frame)).map(|at| at + 1)
}

/// Returns whether a return address is in [`poll_task`].
#[inline]
pub(crate) fn is_boundary(return_address: usize) -> bool {
    return_address == address()
}

/// Returns the return address of the call in [`poll_task`].
#[cfg(rtprof_supported)]
fn address() -> usize {
    /// Its offset from the first instruction.
    const RETURN: usize = if cfg!(target_arch = "x86_64") { 6 } else { 12 };
    poll_task as *const () as usize + RETURN
}

/// Calls `call` with `cell`.
///
/// # Safety
/// `call` may be called with `cell`.
#[cfg(all(rtprof_supported, target_arch = "x86_64"))]
#[unsafe(naked)]
unsafe extern "C-unwind" fn poll_task(cell: *mut (), call: unsafe extern "C-unwind" fn(*mut ())) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "call rsi",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `call` with `cell`.
///
/// # Safety
/// `call` may be called with `cell`.
#[cfg(all(rtprof_supported, target_arch = "aarch64"))]
#[unsafe(naked)]
unsafe extern "C-unwind" fn poll_task(cell: *mut (), call: unsafe extern "C-unwind" fn(*mut ())) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "blr x1",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(not(rtprof_supported))]
unsafe extern "C-unwind" fn poll_task(cell: *mut (), call: unsafe extern "C-unwind" fn(*mut ())) {
    // SAFETY: the caller allows `call` to be called with `cell`.
    unsafe { call(cell) };
}

/// Returns 0, which is no return address.
#[cfg(not(rtprof_supported))]
fn address() -> usize {
    0
}

#[cfg(all(test, rtprof_supported, not(loom)))]
mod tests {
    use super::*;
    use crate::stack::{MAX_STACK, capture, capture_whole};

    #[inline(never)]
    fn boundaries() -> (usize, usize) {
        let mut frames = [0; MAX_STACK];
        let own = capture(&mut frames);
        let depth = capture_whole(&mut frames);
        let all = frames[..depth].iter().filter(|&&frame| is_boundary(frame)).count();
        (all, depth - own)
    }

    #[test]
    fn stacks_have_the_boundaries_of_the_polls_that_go_on() {
        crate::init::open();
        note_in_use();
        assert_eq!(boundaries(), (0, 0));
        let (one, beyond_it) = run(boundaries);
        assert_eq!(one, 1);
        assert!(beyond_it > 0);
        let (two, beyond_both) = run(|| run(boundaries));
        assert_eq!(two, 2);
        assert!(beyond_both > beyond_it, "the innermost comes first");
    }

    #[test]
    fn results_and_panics_pass() {
        let text = String::from("owned");
        assert_eq!(run(|| text + " result"), "owned result");
        let dropped = std::sync::Arc::new(());
        let held = dropped.clone();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(|| -> u64 {
                let _held = held;
                panic!("through the boundary")
            })
        }));
        assert!(panic.is_err());
        assert_eq!(std::sync::Arc::strong_count(&dropped), 1);
    }
}
