//! Queries to the kernel about a thread's memory. Safe to call in a hook.

/// The unit of the queries. A larger page is queried more than once.
pub(super) const PAGE: usize = 4096;

pub(super) use imp::*;

#[cfg(rtprof_supported)]
mod imp {
    use super::PAGE;
    use crate::hook::errno;
    use crate::stack::bounds::Bounds;

    /// Bytes of text that are read at a time.
    const BUFFER: usize = 1024;

    /// Returns the thread pointer, which is the address of glibc's and musl's thread control block.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn thread_pointer() -> usize {
        let tp: usize;
        // SAFETY: the word at fs:0 holds the block's own address, by the x86-64 TLS ABI.
        unsafe { core::arch::asm!("mov {}, fs:0", out(reg) tp, options(nostack, readonly, preserves_flags)) };
        tp
    }

    /// Returns the thread pointer. On aarch64 the control block lies below it, and the pointer itself points into the
    /// stack's mapping, so it serves as the same bound.
    #[cfg(target_arch = "aarch64")]
    pub(crate) fn thread_pointer() -> usize {
        let tp: usize;
        // SAFETY: reading the register has no effect.
        unsafe {
            core::arch::asm!("mrs {}, tpidr_el0", out(reg) tp, options(nostack, nomem, preserves_flags))
        };
        tp
    }

    /// Returns whether this is the thread that `main` runs in. In a forked child: the thread that forked.
    pub(crate) fn is_main_thread() -> bool {
        // SAFETY: both calls only return a number. Raw system calls, because a C library may cache the parent's ids in
        // a forked child.
        unsafe { libc::syscall(libc::SYS_gettid) == libc::syscall(libc::SYS_getpid) }
    }

    /// Returns whether the page of `address` is readable; a stack that grows on demand is extended down to it, if
    /// allowed.
    ///
    /// The kernel reads the signal set before it rejects the invalid way to change the mask: the trick of Abseil's
    /// `AddressIsReadable`.
    pub(crate) fn is_readable(address: usize) -> bool {
        const NO_SUCH_WAY: libc::c_int = -1;
        let none = core::ptr::null_mut::<u64>();
        let at = address & !7;
        errno::kept(|| {
            // SAFETY: the kernel checks the address, and changes nothing.
            let n =
                unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NO_SUCH_WAY, at, none, size_of::<u64>()) };
            n < 0 && errno::get() == libc::EINVAL
        })
    }

    /// The argument of `PROCMAP_QUERY`, as in linux/fs.h.
    #[repr(C)]
    #[derive(Default)]
    struct Query {
        size: u64,
        query_flags: u64,
        query_addr: u64,
        vma_start: u64,
        vma_end: u64,
        vma_flags: u64,
        vma_page_size: u64,
        vma_offset: u64,
        inode: u64,
        dev_major: u32,
        dev_minor: u32,
        vma_name_size: u32,
        build_id_size: u32,
        vma_name_addr: u64,
        build_id_addr: u64,
    }

    /// `_IOWR('f', 17, struct procmap_query)`.
    const PROCMAP_QUERY: u64 = 3 << 30 | (size_of::<Query>() as u64) << 16 | (b'f' as u64) << 8 | 17;

    pub(crate) fn mapping_around(address: usize) -> Option<Bounds> {
        errno::kept(|| ask_for_mapping(address))
    }

    fn ask_for_mapping(address: usize) -> Option<Bounds> {
        // The thread's own directory: the process's is empty once its main thread has ended. Raw system calls: the C
        // library's functions are cancellation points, and a thread must not be cancelled in an allocation.
        // SAFETY: these calls only write to our own locals, and receive their sizes.
        unsafe {
            let path = c"/proc/thread-self/maps".as_ptr();
            let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC);
            if fd < 0 {
                return None;
            }
            let mut query =
                Query { size: size_of::<Query>() as u64, query_addr: address as u64, ..Query::default() };
            let found = if libc::syscall(libc::SYS_ioctl, fd, PROCMAP_QUERY, &raw mut query) == 0 {
                Some(Bounds::new(query.vma_start as usize, query.vma_end as usize))
            } else if is_readable((&raw const query).addr().wrapping_sub(BUFFER + PAGE)) {
                scan(fd, address)
            } else {
                None
            };
            libc::syscall(libc::SYS_close, fd);
            found
        }
    }

    /// Reads the text form: `start-end perms …` a line. A separate function because of its buffer, which would take
    /// stack space in hooks that do not need it.
    #[cold]
    #[inline(never)]
    fn scan(fd: libc::c_long, address: usize) -> Option<Bounds> {
        let mut buffer = [0u8; BUFFER];
        let mut line = Line::default();
        loop {
            // SAFETY: the buffer is a local, and its length is passed.
            let n = unsafe { libc::syscall(libc::SYS_read, fd, buffer.as_mut_ptr(), buffer.len()) };
            if n < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
                continue;
            }
            if n <= 0 {
                return None;
            }
            for &byte in &buffer[..n as usize] {
                if let Some(bounds) = line.feed(byte)
                    && bounds.contains(address)
                {
                    return Some(bounds);
                }
            }
        }
    }

    /// Parses the two addresses of each line, byte by byte.
    #[derive(Default)]
    pub(crate) struct Line {
        field: u8,
        bounds: Bounds,
    }

    impl Line {
        pub(crate) fn feed(&mut self, byte: u8) -> Option<Bounds> {
            let digit = match byte {
                b'\n' => {
                    *self = Self::default();
                    return None;
                }
                b'-' if self.field == 0 => {
                    self.field = 1;
                    return None;
                }
                b' ' if self.field == 1 => {
                    self.field = 2;
                    return Some(self.bounds);
                }
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                _ => return None,
            };
            match self.field {
                0 => self.bounds.low = self.bounds.low << 4 | digit as usize,
                1 => self.bounds.high = self.bounds.high << 4 | digit as usize,
                _ => {}
            }
            None
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn scan_for_test(address: usize) -> Option<Bounds> {
        // SAFETY: these calls only write to the locals of this function and of `scan`.
        unsafe {
            let fd = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY);
            let found = scan(fd.into(), address);
            libc::close(fd);
            found
        }
    }
}

#[cfg(not(rtprof_supported))]
mod imp {
    use crate::stack::bounds::Bounds;

    pub(crate) fn thread_pointer() -> usize {
        0
    }

    pub(crate) fn mapping_around(_address: usize) -> Option<Bounds> {
        None
    }

    pub(crate) fn is_main_thread() -> bool {
        false
    }

    pub(crate) fn is_readable(_address: usize) -> bool {
        false
    }
}
