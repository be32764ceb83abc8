//! Forked children that must end well.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A child that hangs is ended by its own alarm.
const PATIENCE_SECONDS: u32 = 120;

/// Runs `body` in a forked child, and fails unless that ends well and in time.
pub(crate) fn in_a_child(what: &str, body: impl FnOnce()) {
    // SAFETY: the child calls into libc's allocator, which glibc keeps usable after a fork, and into
    // rtprof, whose promise this is.
    let pid = unsafe { libc::fork() };
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
