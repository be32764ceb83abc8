//! Forked children that must end well.

use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::child;

/// A child that hangs is ended by its own alarm.
const PATIENCE_SECONDS: u32 = 120;

/// As [`child::isolated_as`], for a test whose forked children start threads.
///
/// Each thread of std that starts or ends holds std's lock of the list of guard pages for a moment. A child forked in that
/// moment never gets the lock, so that none of its threads starts; rtprof can do nothing about that. std keeps no
/// such list where the process comes to life with other dispositions of the two signals than the default. (To ignore them
/// is in vain: the kernel ends a process that faults all the same.)
#[track_caller]
pub(crate) fn isolated(test: &str, scenario: &str, body: impl FnOnce()) {
    let ignore_faults = || {
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            // SAFETY: a plain system call.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        Ok(())
    };
    let set = |command: &mut std::process::Command| {
        // SAFETY: it makes system calls only.
        unsafe { command.pre_exec(ignore_faults) };
    };
    child::isolated_with(test, scenario, set, body);
}

/// As in the C library, which keeps its allocator usable in the child, and calls what was registered for forks.
pub(crate) fn fork() -> i32 {
    // SAFETY: the child calls into the allocator and into rtprof, whose promise this is.
    unsafe { libc::fork() }
}

/// By the system call alone, of which no library hears. No other thread may be at work.
pub(crate) fn bare_fork() -> i32 {
    // SAFETY: as above; with these arguments all of it is copied.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 }
}

/// Runs `body` in a forked child of [`isolated`], and fails unless that ends well and in time.
pub(crate) fn in_a_child(what: &str, body: impl FnOnce()) {
    in_a_child_by(fork, what, body);
}

/// As [`in_a_child`], in a child that `make` makes.
pub(crate) fn in_a_child_by(make: fn() -> i32, what: &str, body: impl FnOnce()) {
    let pid = make();
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: a plain system call.
        unsafe { libc::alarm(PATIENCE_SECONDS) };
        let result = catch_unwind(AssertUnwindSafe(body));
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "{what}: the child ended with status {status:#x}; {} is its alarm",
        libc::SIGALRM
    );
}
