//! Descriptors of this process.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::folder;

/// Raises the limit of descriptors to `most`, where the system allows it.
pub fn allow(most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the limit outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

/// Returns the number of open descriptors.
pub fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux tells").count()
}

/// Closes all descriptors but the first three, as a daemon does, and makes files that get their numbers.
pub fn replace() -> Vec<Untouched> {
    close();
    (0..50).map(|_| Untouched::new()).collect()
}

/// Closes all descriptors but the first three.
pub fn close() {
    // SAFETY: tests that call this use none of them.
    assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) }, 0);
}

/// A file without a name and content, which only its maker is to use.
#[derive(Debug)]
pub struct Untouched(File);

impl Untouched {
    fn new() -> Self {
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_APPEND);
        Self(options.open(folder::tmp()).expect("the build's own folder can be written"))
    }

    /// Checks that it is open, empty, and in the state in which it was opened.
    #[track_caller]
    pub fn check(&self) {
        assert!(self.0.metadata().is_ok_and(|of| of.len() == 0 && of.is_file()), "{self:?}");
        // SAFETY: the descriptor is open.
        let flags = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETFL) };
        assert_eq!(flags & (libc::O_APPEND | libc::O_ASYNC | libc::O_NONBLOCK), libc::O_APPEND, "{self:?}");
    }
}

/// Returns what the open descriptors of this process lead to.
pub fn targets() -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir("/proc/self/fd").expect("Linux tells");
    all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()).collect()
}
