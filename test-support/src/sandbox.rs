//! System calls that the kernel refuses, as in a sandbox.

use std::io;

/// Makes the kernel refuse these system calls to all threads of this process from now on.
pub fn refuse(calls: &[libc::c_long]) -> io::Result<()> {
    filter(calls, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, libc::SECCOMP_RET_ALLOW)
}

/// Makes the kernel kill this process when a thread makes any system call but these, from now on.
pub fn kill_at_all_but(calls: &[libc::c_long]) -> io::Result<()> {
    filter(calls, libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_KILL_PROCESS)
}

fn filter(calls: &[libc::c_long], theirs: u32, others: u32) -> io::Result<()> {
    let step = |code: u32, k: u32, jt: u8| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    // The number of the call is the first word.
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (at, &call) in calls.iter().enumerate() {
        let to_theirs = (calls.len() - at) as u8;
        filter.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, to_theirs));
    }
    filter.push(step(libc::BPF_RET | libc::BPF_K, others, 0));
    filter.push(step(libc::BPF_RET | libc::BPF_K, theirs, 0));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    const ALL_THREADS: libc::c_long = 1;
    const FILTER: libc::c_long = 1;
    // SAFETY: the program outlives the calls.
    let is_installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_seccomp, FILTER, ALL_THREADS, &raw const program) == 0
    };
    if is_installed { Ok(()) } else { Err(io::Error::last_os_error()) }
}
