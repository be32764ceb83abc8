//! The barrier between a thread that says "I am in an event" and one that asks whether it is.
//!
//! Problem: both write one word and then read the other's, and both must not miss. That takes a full barrier on
//! either side, 7 ns of an event that may take 25 in all.
//! Scheme: who asks, rarely, makes every thread of the process go through a barrier (membarrier(2)), so that those who
//! say need only keep the compiler from reordering. Where the kernel does not know that call, both sides pay.

use rtprof_profiler::primitive::{Ordering, fence};

use core::sync::atomic::AtomicBool;
#[cfg(not(loom))]
use core::sync::atomic::compiler_fence;

/// Which of the two it is.
pub(crate) struct Barrier {
    /// Set before the first event, and then never again.
    is_symmetric: AtomicBool,
}

impl Barrier {
    pub(crate) const fn new() -> Self {
        Self { is_symmetric: AtomicBool::new(false) }
    }

    /// Tells the kernel that this process will ask. Before each trace: a forked child has to tell anew.
    pub(crate) fn open(&self) {
        self.is_symmetric.store(!membarrier::register(), Ordering::Relaxed);
    }

    /// Between the store that says and the load that looks.
    #[inline(always)]
    pub(crate) fn light(&self) {
        #[cfg(not(loom))]
        if !self.is_symmetric.load(Ordering::Relaxed) {
            compiler_fence(Ordering::SeqCst);
            return;
        }
        fence(Ordering::SeqCst);
    }

    /// Between the store that all are to see and the load that asks.
    pub(crate) fn heavy(&self) {
        fence(Ordering::SeqCst);
        if !self.is_symmetric.load(Ordering::Relaxed) {
            membarrier::run();
        }
    }
}

#[cfg(all(not(loom), target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod membarrier {
    const PRIVATE_EXPEDITED: i32 = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

    pub(super) fn register() -> bool {
        // SAFETY: the call takes numbers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 }
    }

    pub(super) fn run() {
        // SAFETY: as above. It cannot fail: the process is registered.
        unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) };
    }
}

#[cfg(any(loom, not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))))]
mod membarrier {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn run() {}
}
