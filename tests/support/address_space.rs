//! The address space of the process, and its limit.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Sets the soft limit of the address space; returns the previous limit.
pub(crate) fn limit_address_space(bytes: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &mut limit), 0);
        let before = limit.rlim_cur;
        limit.rlim_cur = bytes.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &limit), 0);
        before
    }
}

/// Makes a command run with this much address space from its start.
pub(crate) fn limited_to(megabytes: u64) -> impl FnOnce(&mut Command) {
    move |command| {
        // SAFETY: only a system call runs between fork and exec.
        unsafe {
            command.pre_exec(move || {
                limit_address_space(megabytes << 20);
                Ok(())
            })
        };
    }
}

/// Returns the address space of this process in bytes.
pub(crate) fn mapped() -> u64 {
    pages(0) * 4096
}

/// Returns the resident memory of this process in bytes.
pub(crate) fn resident() -> u64 {
    pages(1) * 4096
}

fn pages(field: usize) -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    text.split(' ').nth(field).and_then(|word| word.parse().ok()).expect("a number")
}
