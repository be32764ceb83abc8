//! Memory that may fault, copied by the kernel.
//!
//! Problem: the loader maps a library's file. When the file is truncated afterwards (a build or a copy that writes it
//! in place), an access to a page beyond its new end raises SIGBUS and kills the program, which might never have
//! touched that page itself. Scheme: the kernel reads the page for us, and reports an error if it cannot. Data goes
//! through a pipe, which every sandbox allows; `process_vm_readv`, which some sandboxes forbid, is for processes
//! without descriptors left.

use core::ffi::c_void;
use core::mem::MaybeUninit;

/// The maximum number of bytes in the pipe at a time: its capacity, unless the kernel grants less.
const PIECE: usize = 64 << 10;

/// A way to copy memory.
pub(super) struct Memory {
    pipe: Option<Pipe>,
}

impl Memory {
    pub(super) fn open() -> Self {
        Self { pipe: Pipe::new() }
    }

    /// Copies `len` bytes at `address`, if all of them are readable.
    pub(super) fn copy(&self, address: usize, len: usize) -> Option<Vec<u8>> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(len).ok()?;
        while copy.len() < len {
            let rest = len - copy.len();
            let into = &mut copy.spare_capacity_mut()[..rest];
            let from = address.checked_add(len - rest)?;
            let copied = match &self.pipe {
                Some(pipe) => pipe.copy(from, into)?,
                None => copy_at_once(from, into)?,
            };
            // SAFETY: `copied` bytes of the spare capacity were written.
            unsafe { copy.set_len(len - rest + copied) };
        }
        Some(copy)
    }
}

/// The ends of a pipe, for reading and for writing.
struct Pipe([libc::c_int; 2]);

impl Pipe {
    fn new() -> Option<Self> {
        let mut ends = [0; 2];
        // SAFETY: writes to the local.
        let n = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
        (n == 0).then(|| Self(ends))
    }

    /// Copies a part, at least 1 byte, and returns its length. The pipe is empty before and after.
    fn copy(&self, from: usize, into: &mut [MaybeUninit<u8>]) -> Option<usize> {
        let [reading, writing] = self.0;
        let wanted = into.len().min(PIECE);
        // SAFETY: the kernel checks the address, and only reads there.
        let written = unsafe { libc::write(writing, from as *const c_void, wanted) };
        let written = usize::try_from(written).ok().filter(|&written| written > 0)?;
        // SAFETY: the buffer is a local of the caller and has room for `wanted` bytes.
        let read = unsafe { libc::read(reading, into.as_mut_ptr().cast(), written) };
        (read == written as isize).then_some(written)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for end in self.0 {
            // SAFETY: the descriptors belong to this pipe, and are not used any more.
            unsafe { libc::close(end) };
        }
    }
}

fn copy_at_once(from: usize, into: &mut [MaybeUninit<u8>]) -> Option<usize> {
    let remote = libc::iovec { iov_base: from as *mut c_void, iov_len: into.len() };
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: the kernel checks the remote address, and only reads there; the local buffer belongs to the caller.
    let copied =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(copied).ok().filter(|&copied| copied > 0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_copied_and_what_is_not_is_not() {
        let bytes: Vec<u8> = (0..3 * PIECE + 5).map(|at| (at / 3) as u8).collect();
        let at = bytes.as_ptr() as usize;
        for memory in [Memory::open(), Memory { pipe: None }] {
            assert_eq!(memory.copy(at, bytes.len()).as_ref(), Some(&bytes));
            assert_eq!(memory.copy(at + 1, 2).as_deref(), Some(&bytes[1..3]));
            assert_eq!(memory.copy(8, 0), Some(Vec::new()));
            assert_eq!(memory.copy(8, 1), None);
            assert_eq!(memory.copy(usize::MAX - 3, 8), None);
        }
    }

    #[test]
    fn without_descriptors_none_of_the_programs_is_closed() {
        // SAFETY: the child of the fork makes system calls only. All locals outlive the calls.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
                libc::dup2(null, 0);
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none);
                drop(Memory::open());
                libc::_exit((libc::fcntl(0, libc::F_GETFD) == -1).into());
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        };
        assert_eq!(status, 0, "the standard input was closed");
    }
}
