//! Initialisation before the first sample: done once, outside every hook.
//!
//! A hook may not initialise anything lazily (it may run before `main`, in a dying thread, or in a forked child), so
//! the allocator's constructor calls [`open`] before it lets sampling begin. The public functions that need the parts
//! call it too, for programs without rtprof's allocator.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::clock;
use crate::goroutine;
use crate::goroutine::wait_site;
use crate::hook;
use crate::lock::fork_lock::ForkLock;
use crate::modules;
use crate::random;
#[cfg(rtprof_supported)]
use crate::signal::alternate_stack;
use crate::stack;
use crate::task;
use crate::thread::kernel_thread;
use crate::thread::thread_create;

static OPENING: ForkLock = ForkLock::new();
static OPEN: AtomicBool = AtomicBool::new(false);

/// Calls [`open`] in a constructor: before the program's `main`, or when a library is loaded.
pub fn open_at_start() {
    modules::expect_first_reading();
    open();
}

/// Makes the tables, the unwind caches and the list of modules, and decides how stacks are walked. Idempotent. Must not
/// be called in a hook.
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
    // If this library were unloaded, its tables would leak, and thread destructors and fork handlers would point to
    // unmapped code.
    modules::keep_loaded(open as *const () as usize);
    goroutine::open();
    stack::open_mode();
    // Last, because captures of creators begin with this.
    thread_create::open();
    #[cfg(rtprof_supported)]
    if kernel_thread::is_main() {
        alternate_stack::make_room();
    }
    OPEN.store(true, Ordering::Release);
}
