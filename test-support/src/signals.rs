//! The signals of the process and of its threads.

use std::mem::zeroed;
use std::ptr::null_mut;

/// Returns the handler or disposition of a signal.
pub fn disposition(signal: i32) -> usize {
    // SAFETY: an all-zero `sigaction` is valid, and the call writes to it.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &raw mut action), 0);
        action.sa_sigaction
    }
}

/// Returns whether threads are being sampled: the signal then has a handler. (An attempt to sample would interfere.)
pub fn is_sampled() -> bool {
    disposition(libc::SIGURG) != libc::SIG_DFL
}

/// Returns the set of these signals.
pub fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: the set is a local.
    unsafe {
        let mut set = zeroed();
        libc::sigemptyset(&raw mut set);
        signals.iter().for_each(|&signal| assert_eq!(libc::sigaddset(&raw mut set, signal), 0));
        set
    }
}

/// Returns the set of all signals that a program may block.
pub fn all() -> libc::sigset_t {
    // SAFETY: the set is a local.
    unsafe {
        let mut set = zeroed();
        libc::sigfillset(&raw mut set);
        set
    }
}

/// Blocks these signals in this thread.
pub fn block(set: &libc::sigset_t) {
    change_mask(libc::SIG_BLOCK, set);
}

/// Unblocks these signals in this thread.
pub fn unblock(set: &libc::sigset_t) {
    change_mask(libc::SIG_UNBLOCK, set);
}

fn change_mask(how: i32, set: &libc::sigset_t) {
    // SAFETY: reads the set.
    assert_eq!(unsafe { libc::pthread_sigmask(how, set, null_mut()) }, 0);
}
