//! What must exist before the first sample: done once, outside every hook.
//!
//! A hook may not initialise anything lazily (it may run before `main`, in a dying thread, or in a
//! forked child), so the allocator's constructor calls [`open`] before it lets sampling begin, and
//! every public function that needs the parts calls it too, for programs that have no allocator of
//! ours.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::fork_lock::{ForkLock, own_process};

static OPENING: ForkLock = ForkLock::new();
static OPEN: AtomicBool = AtomicBool::new(false);
/// The process that everything was made in; 0 before.
static PROCESS: AtomicU32 = AtomicU32::new(0);

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
    let _untracked = crate::sampling::untracked();
    crate::clock::open();
    crate::random::open();
    crate::mem::open();
    crate::contention::open();
    crate::thread_create::open();
    crate::stack::unwind::open();
    crate::stack::spare::open();
    crate::modules::refresh();
    crate::stack::outermost::open();
    // Unloaded, it would leave its tables behind, and holes where destructors of threads and fork handlers were.
    crate::modules::keep_loaded(open as *const () as usize);
    crate::goroutine::open();
    crate::stack::open_mode();
    PROCESS.store(own_process(), Ordering::Relaxed);
    OPEN.store(true, Ordering::Release);
}

/// Whether this process was forked from the one that called [`open`], without `exec`. What threads of the parent held
/// at that instant is held for ever here: std's lock of the list of threads, too, which each thread takes that starts.
pub fn is_forked_child() -> bool {
    ![0, own_process()].contains(&PROCESS.load(Ordering::Relaxed))
}
