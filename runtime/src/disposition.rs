//! Handlers of ours for signals of the process.
//!
//! A signal is taken only if the program has no handler there, and what it does by default is what it does still when
//! the program or another process sends it.

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr;

use crate::modules;

/// A function that handles a signal (`SA_SIGINFO`). It is known by its address, so it is `#[inline(never)]`: others may have
/// several.
pub(crate) type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Whether this code is part of the program itself, and not of a shared library: there the first access of a thread to our
/// thread-locals may allocate, which a handler may not.
pub(crate) fn is_in_program() -> bool {
    modules::find(is_in_program as *const () as usize).is_none_or(|module| module.is_main_executable)
}

/// What the process does with `signal`.
fn disposition(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: an all-zero structure is one, and the call writes to it.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        (libc::sigaction(signal, ptr::null(), &raw mut action) == 0).then_some(action)
    }
}

/// Whether `signal` has this handler.
pub fn is_handled_by(signal: c_int, handler: Handler) -> bool {
    disposition(signal).is_some_and(|action| action.sa_sigaction == handler as usize)
}

/// Installs `handler` for `signal` and returns what was there, one of `free` (`SIG_DFL`, `SIG_IGN`); `None` if it is something
/// else.
///
/// # Safety
/// The handler keeps to what a handler may do, and lives as long as it is installed.
pub unsafe fn install(signal: c_int, handler: Handler, free: &[usize]) -> Option<usize> {
    let is_free = |action: &libc::sigaction| free.contains(&action.sa_sigaction);
    if !disposition(signal).as_ref().is_some_and(is_free) {
        return None;
    }
    // SAFETY: the structures are locals; about the handler the caller has promised.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as usize;
        // On the thread's own stack for handlers, if it has one: it may be on a coroutine's.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        // Another handler within ours could wait while we are awaited.
        libc::sigfillset(&raw mut action.sa_mask);
        let mut before: libc::sigaction = zeroed();
        if libc::sigaction(signal, &raw const action, &raw mut before) != 0 {
            return None;
        }
        if is_free(&before) {
            return Some(before.sa_sigaction);
        }
        // Installed since we have looked.
        libc::sigaction(signal, &raw const before, ptr::null_mut());
        None
    }
}

/// Puts back what [`install`] has found, unless the program has installed a handler meanwhile. Signals of this number that
/// are still pending are dropped: by default they may end the process. In a forked child too.
pub fn restore(signal: c_int, handler: Handler, before: usize) {
    if !is_handled_by(signal, handler) {
        return;
    }
    // The kernel drops what is pending of a signal that becomes ignored.
    let replaced = exchange(signal, libc::SIG_IGN);
    if replaced.sa_sigaction != handler as usize {
        // The program's, installed since we have looked.
        put_back(signal, &replaced);
        return;
    }
    let replaced = exchange(signal, before);
    if replaced.sa_sigaction != libc::SIG_IGN {
        put_back(signal, &replaced);
    }
}

/// Has the process ignore `signal`, or do what it does by default (`SIG_IGN`, `SIG_DFL`). Returns what it did.
fn exchange(signal: c_int, action: usize) -> libc::sigaction {
    // SAFETY: neither takes code of ours; the structures are locals.
    unsafe {
        let mut new: libc::sigaction = zeroed();
        new.sa_sigaction = action;
        let mut before: libc::sigaction = zeroed();
        libc::sigaction(signal, &raw const new, &raw mut before);
        before
    }
}

fn put_back(signal: c_int, programs: &libc::sigaction) {
    // SAFETY: the program has installed it.
    unsafe { libc::sigaction(signal, programs, ptr::null_mut()) };
}

/// In a handler of ours: does with a signal that somebody else has sent what was done without us, for one that ends the
/// process by default.
pub fn end_as_without_us(signal: c_int) {
    // SAFETY: plain calls. The signal is blocked until the handler returns, and then does what it does by default.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::syscall(libc::SYS_gettid), signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    unsafe extern "C" fn nothing(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {}

    #[test]
    fn a_handler_of_the_program_is_not_replaced_and_what_was_there_comes_back() {
        let signal = libc::SIGWINCH;
        let free = [libc::SIG_DFL];
        // SAFETY: the handler does nothing.
        let before = unsafe { install(signal, nothing, &free) }.expect("there is none");
        assert!(is_handled_by(signal, nothing));
        // SAFETY: as above.
        assert!(unsafe { install(signal, nothing, &free) }.is_none(), "there is one");
        restore(signal, nothing, before);
        assert_eq!(disposition(signal).unwrap().sa_sigaction, libc::SIG_DFL);
        // SAFETY: ignores a signal that is ignored by default.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
        restore(signal, nothing, before);
        assert_eq!(disposition(signal).unwrap().sa_sigaction, libc::SIG_IGN, "not ours any more");
        // SAFETY: as it was.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
