//! What must exist before the first sample: done once, outside every hook.
//!
//! A hook may not initialise anything lazily (it may run before `main`, in a dying thread, or in a
//! forked child), so the allocator's constructor calls [`open`] before it lets sampling begin, and
//! every public function that needs the parts calls it too, for programs that have no allocator of
//! ours.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::fork_lock::ForkLock;

static OPENING: ForkLock = ForkLock::new();
static OPEN: AtomicBool = AtomicBool::new(false);

/// As [`open`], in a constructor: of the program, before `main`, or of a library when it is loaded.
pub fn open_at_start() {
    crate::modules::expect_first_reading();
    open();
}

/// Whether [`open`] has made everything.
#[inline]
pub fn is_open() -> bool {
    OPEN.load(Ordering::Acquire)
}

/// Makes the tables, the unwind caches and the list of modules, and decides how stacks are walked.
/// Idempotent. Not for hooks.
pub fn open() {
    if is_open() {
        return;
    }
    let _held = OPENING.lock();
    if is_open() {
        return;
    }
    let _untracked = crate::sampling::untracked();
    crate::clock::open();
    crate::random::open();
    crate::mem::open();
    crate::contention::open();
    crate::thread_create::open();
    crate::task::open();
    crate::stack::unwind::open();
    crate::stack::spare::open();
    crate::modules::refresh();
    crate::stack::outermost::open();
    // Unloaded, it would leave its tables behind, and holes where destructors of threads and fork handlers were.
    crate::modules::keep_loaded(open as *const () as usize);
    crate::goroutine::open();
    crate::stack::open_mode();
    OPEN.store(true, Ordering::Release);
}
