//! Forked children that must end with success.

use std::backtrace::Backtrace;
use std::ffi::c_int;
use std::fs;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::child;
use crate::threads::thread_id;

/// The time after which its alarm ends a child that hangs.
const PATIENCE_SECONDS: u32 = 120;
/// The time that it has then to say where it hangs.
const LAST_SECONDS: u32 = 20;
/// Asks another thread of the child where it is.
const ASKS: c_int = libc::SIGVTALRM;

/// As [`child::isolated_as`], for a test whose forked children start threads.
///
/// Each thread of std that starts or ends holds std's lock of the list of guard pages for a moment. A child forked in
/// that moment never gets the lock, so that none of its threads starts; rtprof cannot prevent this. std keeps no such
/// list if the process starts with other dispositions of the two signals than the default. (Ignoring the signals has no
/// other effect: the kernel still ends a process that faults.)
#[track_caller]
pub fn isolated(test: &str, scenario: &str, body: impl FnOnce()) {
    let ignore_faults = || {
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            // SAFETY: a plain system call.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        Ok(())
    };
    let set = |command: &mut std::process::Command| {
        // SAFETY: the closure makes only system calls.
        unsafe { command.pre_exec(ignore_faults) };
    };
    child::isolated_with(test, scenario, set, body);
}

/// Forks as the C library does, which keeps its allocator usable in the child, and calls the registered fork handlers.
pub fn fork() -> i32 {
    // SAFETY: the child calls only the allocator and rtprof, both of which must work in a forked child.
    unsafe { libc::fork() }
}

/// Forks by the system call alone, so that no library learns of it. No other thread may run.
pub fn bare_fork() -> i32 {
    // SAFETY: with these arguments the child is a full copy, and no other thread runs, so no lock is held.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 }
}

/// Runs `body` in a forked child of [`isolated`], and fails unless the child ends with success and in time.
pub fn in_a_child(what: &str, body: impl FnOnce()) {
    in_a_child_by(fork, what, body);
}

/// As [`in_a_child`], in a child that `make` makes.
pub fn in_a_child_by(make: fn() -> i32, what: &str, body: impl FnOnce()) {
    let pid = make();
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        begin_patience();
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

/// Sets the alarm of a child.
fn begin_patience() {
    // The second alarm finds the default action.
    let once = libc::SA_RESETHAND | libc::SA_NODEFER;
    for (signal, handler, flags) in [(libc::SIGALRM, tell_all as extern "C" fn(c_int), once), (ASKS, tell, 0)]
    {
        // SAFETY: an all-zero `sigaction` is valid. The handlers do what a handler must not do; but they run only in a child
        // that would be ended instead, and a second alarm ends it in any case.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
        }
    }
    // SAFETY: a plain system call.
    unsafe { libc::alarm(PATIENCE_SECONDS) };
}

/// Has each thread of this child tell where it is, and lets the next alarm end the child.
extern "C" fn tell_all(signal: c_int) {
    // SAFETY: a plain system call.
    unsafe { libc::alarm(LAST_SECONDS) };
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let others = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    // The others first, and what they wait for before their stacks, which may need a lock that is never released.
    for other in others.filter(|&thread: &i32| thread != thread_id()) {
        write(&format!("{other} is in the system call {}", file(other, "syscall")));
        // SAFETY: a plain system call.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), other, ASKS) };
    }
    tell(signal);
    loop {
        // SAFETY: a plain system call.
        unsafe { libc::pause() };
    }
}

/// Writes where the current thread is.
extern "C" fn tell(_: c_int) {
    write(&format!("{} is {}", thread_id(), file(thread_id(), "comm")));
    write(&Backtrace::force_capture().to_string());
}

/// Returns the kernel's file of a thread, which ends in a line feed.
fn file(thread: i32, name: &str) -> String {
    fs::read_to_string(format!("/proc/self/task/{thread}/{name}")).unwrap_or_default()
}

/// Writes to standard error, without its lock.
fn write(text: &str) {
    // SAFETY: the call reads this text.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}
