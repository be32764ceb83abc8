//! How much of the address space the process has, and may have.

/// Sets the soft limit of the address space; returns the one before.
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

/// Address space of this process in bytes.
pub(crate) fn mapped() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages: u64 = text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    pages * 4096
}
