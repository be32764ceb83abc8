//! What must exist before the first sample: made once, outside every hook.
//!
//! A hook may not initialise anything lazily (it may run before `main`, in a dying thread, or in a
//! forked child), so the allocator's constructor calls [`open`] before it lets sampling begin, and
//! the public functions that need the parts call it too, for programs that have no allocator of
//! ours.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::fork_lock::ForkLock;
use crate::{clock, goroutine, hook, modules, random, stack, task, thread_create, wait_site};

static OPENING: ForkLock = ForkLock::new();
static OPEN: AtomicBool = AtomicBool::new(false);

/// As [`open`], in a constructor: of the program, before `main`, or of a library when it is loaded.
pub fn open_at_start() {
    modules::expect_first_reading();
    open();
}

/// Makes the tables, the unwind caches and the list of modules, and decides how stacks are walked.
/// Idempotent. Not for hooks.
pub fn open() {
    if OPEN.load(Ordering::Acquire) {
        return;
    }
    let _held = OPENING.lock();
    if OPEN.load(Ordering::Acquire) {
        return;
    }
    let _untracked = hook::untracked();
    clock::open();
    random::open();
    wait_site::open();
    task::open();
    stack::open();
    // Unloaded, it would leave its tables behind, and holes where destructors of threads and fork handlers were.
    modules::keep_loaded(open as *const () as usize);
    goroutine::open();
    stack::open_mode();
    // Last: captures of creators begin with it.
    thread_create::open();
    OPEN.store(true, Ordering::Release);
}
