//! Asymmetric fence between a thread that enters an event and the drain that checks for it: membarrier on the drain,
//! a compiler fence on the writer.
//!
//! Problem: each side writes one word and then reads the other's, and the two reads must not both miss. That takes a
//! full barrier on either side, 7 ns of an event that may take 25 in all.
//! Scheme: the drain, which rarely checks, makes every thread of the process go through a barrier (membarrier(2)), so
//! that a writer need only keep the compiler from reordering. Where the kernel does not know that call, both sides pay
//! for a full barrier. They also do from the moment at which the call is refused: a program may install a filter of
//! system calls after its first trace.

use rtprof_runtime::primitive::{Ordering, fence};

use core::sync::atomic::AtomicBool;
#[cfg(not(loom))]
use core::sync::atomic::compiler_fence;

/// The asymmetric fence, or a symmetric one where the kernel does not help.
pub(crate) struct Barrier {
    /// Set before the first event, or when the kernel refuses membarrier.
    is_symmetric: AtomicBool,
}

impl Barrier {
    pub(crate) const fn new() -> Self {
        Self { is_symmetric: AtomicBool::new(false) }
    }

    /// Registers this process for membarrier. Called before each trace: a forked child has to register anew.
    pub(crate) fn open(&self) {
        self.is_symmetric.store(!membarrier::register(), Ordering::Relaxed);
    }

    /// Fences the writer, between the store that marks an event as begun and the load of the generation.
    #[inline(always)]
    pub(crate) fn light(&self) {
        // `is_symmetric` is read after the store: a thread that had read it before, and was preempted in between for
        // longer than `heavy` waits, would store without a fence when both sides must have one.
        #[cfg(not(loom))]
        compiler_fence(Ordering::SeqCst);
        #[cfg(not(loom))]
        if !self.is_symmetric.load(Ordering::Relaxed) {
            compiler_fence(Ordering::SeqCst);
            return;
        }
        fence(Ordering::SeqCst);
    }

    /// Fences the drain, between the store of the new generation and the loads that check each thread's event.
    pub(crate) fn heavy(&self) {
        fence(Ordering::SeqCst);
        if !self.is_symmetric.load(Ordering::Relaxed) && !membarrier::run() {
            self.is_symmetric.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            outwait_stores();
        }
    }
}

/// Waits until stores of other cores are visible, for threads that have passed `light` without a fence because they
/// relied on membarrier. A store stays in its core's store buffer for nanoseconds to microseconds; nothing keeps it
/// there for milliseconds.
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
        // SAFETY: the call takes numbers and touches no memory of ours.
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

    /// Makes the kernel refuse membarrier to this thread from now on. `false` where filters are not permitted.
    fn refuse_membarrier() -> bool {
        const fn step(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
            libc::sock_filter { code: code as u16, jt, jf, k }
        }
        let mut filter = [
            // The number of the system call is the first word of the data.
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_membarrier as u32, 0, 1),
            step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
            step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program and the filter outlive the calls.
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
        // The filter applies to this thread only and ends with it.
        std::thread::spawn(checks).join().unwrap();
    }
}
