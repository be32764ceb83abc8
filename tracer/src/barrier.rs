//! The barrier between a thread that says "I am in an event" and one that asks whether it is.
//!
//! Problem: both write one word and then read the other's, and both must not miss. That takes a full barrier on
//! either side, 7 ns of an event that may take 25 in all.
//! Scheme: who asks, rarely, makes every thread of the process go through a barrier (membarrier(2)), so that those who
//! say need only keep the compiler from reordering. Where the kernel does not know that call, both sides pay. The same
//! from the moment on at which the call is refused: a program may install a filter of system calls after its first trace.

use rtprof_runtime::primitive::{Ordering, fence};

use core::sync::atomic::AtomicBool;
#[cfg(not(loom))]
use core::sync::atomic::compiler_fence;

/// Which of the two it is.
pub(crate) struct Barrier {
    /// Set before the first event, or when the kernel refuses its part.
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
        // The choice is made after the store: a thread that had made it before, and was preempted in between for longer
        // than `heavy` waits, would store without a fence when both sides have to have one.
        #[cfg(not(loom))]
        compiler_fence(Ordering::SeqCst);
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
        if !self.is_symmetric.load(Ordering::Relaxed) && !membarrier::run() {
            self.is_symmetric.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            outwait_stores();
        }
    }
}

/// Waits until what other cores have written is seen: for threads that have passed `light` without a fence, because the
/// kernel was to have made them go through one. A store waits in its core for other stores, nanoseconds to microseconds;
/// it stays there for no reason that lasts for milliseconds.
fn outwait_stores() {
    #[cfg(not(loom))]
    std::thread::sleep(core::time::Duration::from_millis(10));
    fence(Ordering::SeqCst);
}

#[cfg(all(not(loom), target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod membarrier {
    const PRIVATE_EXPEDITED: i32 = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

    pub(super) fn register() -> bool {
        // SAFETY: the call takes numbers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 }
    }

    /// Whether every thread has gone through a barrier.
    pub(super) fn run() -> bool {
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) == 0 }
    }
}

#[cfg(any(loom, not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))))]
mod membarrier {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn run() -> bool {
        false
    }
}

#[cfg(all(test, not(loom), target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;

    /// Has the kernel refuse membarrier to this thread from now on. `false` where filters are not permitted.
    fn refuse_membarrier() -> bool {
        const fn step(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
            libc::sock_filter { code: code as u16, jt, jf, k }
        }
        let mut filter = [
            // The number of the call stands first.
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_membarrier as u32, 0, 1),
            step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
            step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program outlives the calls.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) == 0
        }
    }

    #[test]
    fn both_sides_pay_once_the_kernel_refuses() {
        let checks = || {
            let barrier = Barrier::new();
            barrier.open();
            if barrier.is_symmetric.load(Ordering::Relaxed) {
                // This kernel does not know the call at all.
                return;
            }
            barrier.heavy();
            assert!(!barrier.is_symmetric.load(Ordering::Relaxed));
            if !refuse_membarrier() {
                return eprintln!(
                    "SKIPPED: both_sides_pay_once_the_kernel_refuses: no filter may be installed"
                );
            }
            barrier.heavy();
            assert!(barrier.is_symmetric.load(Ordering::Relaxed));
            barrier.light();
            barrier.open();
            assert!(barrier.is_symmetric.load(Ordering::Relaxed), "refused before the next trace too");
        };
        // The filter is this thread's and ends with it.
        std::thread::spawn(checks).join().unwrap();
    }
}
