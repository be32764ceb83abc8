//! The address space of the process, and its limit.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Sets the soft limit of the address space; returns the previous limit.
pub fn limit_address_space(bytes: u64) -> u64 {
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
///
/// glibc's threads share one arena there. A thread that gets its own maps 64 to 128 MB for a moment, to align it, and a
/// thread that is spawned in this moment is refused its stack. Under 100 MB one run in ten failed so here, and one in fifty
/// of a C program without a profiler.
pub fn limited_to(megabytes: u64) -> impl FnOnce(&mut Command) {
    move |command| {
        command.env("MALLOC_ARENA_MAX", "1");
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
pub fn mapped() -> u64 {
    pages(0) * 4096
}

/// Returns the address space that the program's own file takes, in bytes.
pub fn of_the_program() -> u64 {
    let program = std::env::current_exe().expect("a test knows its own binary");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux tells");
    let own = maps.lines().filter(|line| line.ends_with(&*program.to_string_lossy()));
    own.map(|line| {
        let (begin, rest) = line.split_once('-').expect("a range");
        let end = rest.split(' ').next().expect("a range");
        let address = |digits: &str| u64::from_str_radix(digits, 16).expect("a number");
        address(end) - address(begin)
    })
    .sum()
}

/// Returns the resident memory of this process in bytes.
pub fn resident() -> u64 {
    pages(1) * 4096
}

fn pages(field: usize) -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    text.split(' ').nth(field).and_then(|word| word.parse().ok()).expect("a number")
}
