//! Descriptors of this process.

/// Lets the process have so many, where the system allows it.
pub(crate) fn allow(most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the limit outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

/// How many it has.
pub(crate) fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux tells").count()
}
