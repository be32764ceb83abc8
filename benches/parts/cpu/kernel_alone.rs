//! The kernel's part in the cost of a sample: the same event that rtprof opens, with a handler that only counts.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn handle(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// An event of the current thread, which sends signals to the thread until the event is dropped.
pub(crate) struct Event(#[expect(dead_code, reason = "closed when dropped")] OwnedFd);

impl Event {
    /// Opens an event that fires `hz` times in a second of processor time.
    ///
    /// # Panics
    /// When the kernel does not permit it.
    pub(crate) fn start(hz: u32) -> Self {
        const SOFTWARE: u64 = 1;
        const TASK_CLOCK: u64 = 1;
        const SIZE: usize = 64;
        // `perf_event_attr` as words: type and size, config, period, and at index 5 the flags, all of them clear.
        let attributes: [u64; SIZE / 8] =
            [SOFTWARE | (SIZE as u64) << 32, TASK_CLOCK, 1_000_000_000 / u64::from(hz), 0, 0, 0, 0, 0];
        const SET_SIGNAL: c_int = 10;
        const SET_OWNER: c_int = 15;
        const OWNER_THREAD: c_int = 0;
        // SAFETY: the structures are locals that the kernel reads; the handler only counts.
        unsafe {
            let id = libc::syscall(libc::SYS_gettid) as c_int;
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
            libc::sigfillset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut());
            let fd = libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), id, -1, -1, 0);
            assert!(fd >= 0, "perf_event_open: {}", io::Error::last_os_error());
            let fd = OwnedFd::from_raw_fd(fd as c_int);
            let owner = [OWNER_THREAD, id];
            libc::fcntl(fd.as_raw_fd(), SET_OWNER, owner.as_ptr());
            libc::fcntl(fd.as_raw_fd(), SET_SIGNAL, libc::SIGURG);
            libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK);
            Self(fd)
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: restores the default action, which the process had before.
        unsafe { libc::signal(libc::SIGURG, libc::SIG_DFL) };
    }
}

/// Returns the number of signals so far.
pub(crate) fn signals() -> u64 {
    SIGNALS.load(Ordering::Relaxed)
}
