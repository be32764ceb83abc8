//! The signal dispositions of the process.

/// Returns the handler or disposition of a signal.
pub fn disposition(signal: i32) -> usize {
    // SAFETY: an all-zero `sigaction` is valid, and the call writes to it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &raw mut action), 0);
        action.sa_sigaction
    }
}

/// Returns whether threads are being sampled: the signal then has a handler. (An attempt to sample would interfere.)
pub fn is_sampled() -> bool {
    disposition(libc::SIGURG) != libc::SIG_DFL
}
