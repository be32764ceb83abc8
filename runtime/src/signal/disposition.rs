//! Our own handlers for signals of the process.
//!
//! A signal is taken only if the program has no handler for it, and its default action still happens when the program
//! or another process sends it.
//!
//! Problem: the kernel has no compare-and-swap for actions. Between our look at an action and our change of it the program
//! may install another one, and one more while we put that back. Scheme: each change returns the action that it has
//! displaced. If that is not the one that we have set or seen last, the program has set it in between, and it is put
//! back in turn (`change`), until the program's last action is in place.

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr;

use crate::modules;

/// A signal handler (`SA_SIGINFO`). It is identified by its address, so it is `#[inline(never)]`: an inlinable function
/// may have several addresses.
pub(crate) type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Returns whether this code is part of the program itself, and not of a shared library: in a library the first access
/// of a thread to our thread-locals may allocate, which a handler must not do.
pub(crate) fn is_in_program() -> bool {
    modules::find(is_in_program as *const () as usize).is_none_or(|module| module.is_main_executable)
}

/// Returns the process's current action for `signal`.
pub(crate) fn disposition(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: an all-zero structure is valid, and the call writes to it.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        (libc::sigaction(signal, ptr::null(), &raw mut action) == 0).then_some(action)
    }
}

/// Returns whether `signal` has this handler.
pub fn is_handled_by(signal: c_int, handler: Handler) -> bool {
    disposition(signal).is_some_and(|action| action.sa_sigaction == handler as usize)
}

/// Installs `handler` for `signal` and returns the previous action, one of `free` (`SIG_DFL`, `SIG_IGN`). Returns
/// `None` if the action is another one.
///
/// # Safety
/// The handler does only what a handler may do, and lives as long as it is installed.
pub unsafe fn install(signal: c_int, handler: Handler, free: &[usize]) -> Option<usize> {
    let is_free = |action: &libc::sigaction| free.contains(&action.sa_sigaction);
    if !disposition(signal).as_ref().is_some_and(is_free) {
        return None;
    }
    // SAFETY: the structures are locals; the caller guarantees that the handler may run and stays loaded.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as usize;
        // On the thread's alternate stack, if it has one: the current stack may be a coroutine's.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        action.sa_mask = all_signals();
        let before = set(signal, &action)?;
        if is_free(&before) {
            return Some(before.sa_sigaction);
        }
        // The program has installed a handler since the check.
        change(signal, action, before, |programs| programs);
        None
    }
}

/// Returns the mask of our handlers. Another handler that interrupts ours could wait while a snapshot waits for ours.
///
/// `sigfillset` leaves out the signals that the C library keeps for itself (32 and 33 in glibc, 32 to 34 in musl). One of them
/// cancels a thread: its handler would unwind the thread's stack from within our handler, which ends the process. Blocked for
/// the microseconds that our handler takes, it cancels the interrupted code as without us.
fn all_signals() -> libc::sigset_t {
    // SAFETY: each bit of the set is a signal, of those that exist and of those that may come; the kernel leaves out those
    // that cannot be blocked.
    unsafe {
        let mut all: libc::sigset_t = zeroed();
        ptr::write_bytes(&raw mut all, 0xff, 1);
        all
    }
}

/// Restores the action that [`install`] has found, unless the program has installed a handler since. Pending signals of
/// this number are dropped: their default action may end the process. Works in a forked child too.
pub fn restore(signal: c_int, handler: Handler, before: usize) {
    // The kernel drops the pending signals when a signal becomes ignored.
    if !replace(signal, handler, libc::SIG_IGN) {
        return;
    }
    let (then, replaced) = exchange(signal, before);
    if replaced.sa_sigaction != libc::SIG_IGN {
        change(signal, then, replaced, |programs| programs);
    }
}

/// As [`restore`], for a signal that is ignored by default, whose pending signals the kernel drops in one step. A
/// process that another thread starts at the same time inherits no other action.
pub(crate) fn restore_ignored(signal: c_int, handler: Handler, before: usize) {
    replace(signal, handler, before);
}

/// Replaces our handler by this action. Returns `false` if the program has installed a handler since.
fn replace(signal: c_int, handler: Handler, action: usize) -> bool {
    if !is_handled_by(signal, handler) {
        return false;
    }
    let (then, replaced) = exchange(signal, action);
    let is_ours = replaced.sa_sigaction == handler as usize;
    if !is_ours {
        // The program's handler, installed since the check.
        change(signal, then, replaced, |programs| programs);
    }
    is_ours
}

/// Makes the process ignore `signal`, or take its default action (`SIG_IGN`, `SIG_DFL`). Returns the new action and the
/// previous one.
fn exchange(signal: c_int, action: usize) -> (libc::sigaction, libc::sigaction) {
    // SAFETY: an all-zero structure is valid, and neither action calls our own code.
    unsafe {
        let mut new: libc::sigaction = zeroed();
        new.sa_sigaction = action;
        (new, set(signal, &new).unwrap_or(new))
    }
}

/// Sets an action, and returns the one before.
///
/// # Safety
/// The program has installed the handler itself, or it does only what a handler may do.
unsafe fn set(signal: c_int, action: &libc::sigaction) -> Option<libc::sigaction> {
    // SAFETY: an all-zero structure is valid, and the call writes to it; the caller guarantees that the handler may run.
    unsafe {
        let mut before: libc::sigaction = zeroed();
        (libc::sigaction(signal, action, &raw mut before) == 0).then_some(before)
    }
}

/// How often an action is put back, because the program has set another one in between.
const TRIES: usize = 100;

/// Changes an action of the program's: sets `changed` of it. `known` is the action that was seen or set last. If the program
/// has set another one since, that one is changed instead.
pub(crate) fn change(
    signal: c_int,
    mut known: libc::sigaction,
    mut programs: libc::sigaction,
    changed: impl Fn(libc::sigaction) -> libc::sigaction,
) {
    for _ in 0..TRIES {
        let new = changed(programs);
        // SAFETY: the program has installed this handler itself.
        let Some(displaced) = (unsafe { set(signal, &new) }) else { return };
        if are_same(&displaced, &known) {
            return;
        }
        (known, programs) = (new, displaced);
    }
}

fn are_same(one: &libc::sigaction, other: &libc::sigaction) -> bool {
    /// The C library sets it.
    const SA_RESTORER: c_int = 0x0400_0000;
    let flags = |action: &libc::sigaction| action.sa_flags & !SA_RESTORER;
    // The kernel leaves these two out.
    let can_be_blocked = |signal: &c_int| ![libc::SIGKILL, libc::SIGSTOP].contains(signal);
    // SAFETY: reads a set.
    let has = |action: &libc::sigaction, signal| unsafe { libc::sigismember(&action.sa_mask, signal) };
    one.sa_sigaction == other.sa_sigaction
        && flags(one) == flags(other)
        && (1..=libc::SIGRTMAX()).filter(can_be_blocked).all(|signal| has(one, signal) == has(other, signal))
}

/// Gives a signal that others have sent the default action, which ends the process. Called in our handler, for a signal
/// that ends the process by default.
pub fn end_as_without_us(signal: c_int) {
    // SAFETY: plain system calls. The signal is blocked until the handler returns, and then has its default action.
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
        // SAFETY: the handler does nothing.
        assert!(unsafe { install(signal, nothing, &free) }.is_none(), "there is one");
        restore(signal, nothing, before);
        assert_eq!(disposition(signal).unwrap().sa_sigaction, libc::SIG_DFL);
        // SAFETY: ignores a signal that is ignored by default.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
        restore(signal, nothing, before);
        assert_eq!(disposition(signal).unwrap().sa_sigaction, libc::SIG_IGN, "not ours any more");
        // SAFETY: restores the default action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    /// The program sets two more actions while the first one is changed: one between our look and our change, and one between
    /// our change and the next one.
    #[test]
    fn the_last_action_of_the_program_is_in_place_in_the_end() {
        let signal = libc::SIGIO;
        let install = |action: usize, masked: c_int| {
            // SAFETY: an all-zero structure is valid; the actions do nothing.
            unsafe {
                let mut new: libc::sigaction = zeroed();
                new.sa_sigaction = action;
                libc::sigaddset(&raw mut new.sa_mask, masked);
                set(signal, &new).expect("the signal exists");
            }
        };
        let handler = nothing as *const () as usize;
        // The second one differs from the first only in its mask.
        let later = [(handler, libc::SIGUSR2), (libc::SIG_IGN, libc::SIGHUP), (handler, libc::SIGALRM)];
        for count in 0..=later.len() {
            install(handler, libc::SIGUSR1);
            let seen = disposition(signal).expect("the signal exists");
            let changes = core::cell::Cell::new(0);
            change(signal, seen, seen, |mut action| {
                if let Some((action, masked)) = later[..count].get(changes.replace(changes.get() + 1)) {
                    install(*action, *masked);
                }
                // SAFETY: the set is a local.
                unsafe { libc::sigaddset(&raw mut action.sa_mask, libc::SIGURG) };
                action
            });
            let action = disposition(signal).expect("the signal exists");
            let (last, masked) = count.checked_sub(1).map_or((handler, libc::SIGUSR1), |at| later[at]);
            assert_eq!(action.sa_sigaction, last, "after {count} more");
            // SAFETY: reads a set.
            let has = |signal| unsafe { libc::sigismember(&action.sa_mask, signal) };
            assert_eq!([has(masked), has(libc::SIGURG)], [1, 1], "after {count} more");
        }
        install(libc::SIG_DFL, libc::SIGUSR1);
    }
}
