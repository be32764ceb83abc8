//! What the process does with its signals.

/// What the process does with a signal.
pub(crate) fn disposition(signal: i32) -> usize {
    // SAFETY: an all-zero structure is one, and the call writes to it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &raw mut action), 0);
        action.sa_sigaction
    }
}

/// Whether threads are being sampled: the signal has a handler then. (To try to sample would be in the way.)
pub(crate) fn is_sampled() -> bool {
    disposition(libc::SIGURG) != libc::SIG_DFL
}
