//! Where the current thread's stack ends, so that a stack walk never reads beyond it.
//!
//! A frame-pointer walk without bounds faults as soon as `rbp` holds anything else, and in code
//! without frame pointers it does. `pthread_getattr_np` knows the bounds but allocates, so they are
//! read once per thread from the kernel, by system calls into fixed memory: the `PROCMAP_QUERY` of
//! Linux 6.11 where it exists (2 µs), else /proc/thread-self/maps line by line (0.1 ms).

use core::cell::Cell;

/// Addresses that belong to a stack: `low..high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The lowest mapped address.
    pub(super) low: usize,
    /// One past the highest address.
    pub(super) high: usize,
}

impl Bounds {
    /// No stack at all.
    pub(super) const NONE: Self = Self { low: 0, high: 0 };

    /// Whether `address` lies inside.
    #[inline]
    pub(super) fn contains(self, address: usize) -> bool {
        self.low <= address && address < self.high
    }
}

thread_local! {
    // No destructor and no lazy initialisation: readable from the first to the last instruction of
    // a thread (rust#116390).
    static BOUNDS: Cell<Bounds> = const { Cell::new(Bounds::NONE) };
}

/// The bounds of the stack that `sp` points into; `NONE` when the kernel does not tell.
///
/// Cached per thread, and looked up anew when `sp` has left them because the main thread's stack has
/// grown. A stack that the program switched to by itself (a fiber, a signal stack) may be unmapped and
/// its addresses given to a smaller one, so it is looked up each time.
#[inline]
pub(super) fn of_stack_at(sp: usize) -> Bounds {
    BOUNDS.with(|cell| {
        let known = cell.get();
        if known.contains(sp) {
            return known;
        }
        let (found, is_lasting) = look_up(sp);
        if is_lasting {
            cell.set(found);
        }
        found
    })
}

#[cold]
fn look_up(sp: usize) -> (Bounds, bool) {
    let mut bounds = imp::mapping_around(sp).unwrap_or(Bounds::NONE);
    // glibc puts a thread's control block at the top of its stack. A neighbouring mapping that the
    // kernel merged with the stack is not part of it, and may go away: end at the control block.
    let block = imp::thread_pointer();
    if bounds.contains(block) && block > sp {
        bounds.high = block;
        return (bounds, true);
    }
    (bounds, bounds.contains(super::outermost::main_stack()))
}

#[cfg(rtprof_supported)]
mod imp {
    use super::Bounds;

    /// The thread pointer, which is the address of glibc's and musl's thread control block.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn thread_pointer() -> usize {
        let tp: usize;
        // SAFETY: the word at fs:0 holds the block's own address, by the x86-64 TLS ABI.
        unsafe { core::arch::asm!("mov {}, fs:0", out(reg) tp, options(nostack, readonly, preserves_flags)) };
        tp
    }

    /// On aarch64 the block lies below the thread pointer and the pointer itself inside the stack's
    /// mapping, so it serves as the same bound.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn thread_pointer() -> usize {
        let tp: usize;
        // SAFETY: reading the register has no effect.
        unsafe {
            core::arch::asm!("mrs {}, tpidr_el0", out(reg) tp, options(nostack, nomem, preserves_flags))
        };
        tp
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

    pub(super) fn mapping_around(address: usize) -> Option<Bounds> {
        // The thread's own directory: the process's is empty once its main thread has ended. Raw calls:
        // the C library's are cancellation points, and a thread must not be cancelled in an allocation.
        // SAFETY: these calls only write to our own locals, whose sizes they get.
        unsafe {
            let path = c"/proc/thread-self/maps".as_ptr();
            let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC);
            if fd < 0 {
                return None;
            }
            let mut query =
                Query { size: size_of::<Query>() as u64, query_addr: address as u64, ..Query::default() };
            let found = if libc::syscall(libc::SYS_ioctl, fd, PROCMAP_QUERY, &raw mut query) == 0 {
                Some(Bounds { low: query.vma_start as usize, high: query.vma_end as usize })
            } else {
                scan(fd, address)
            };
            libc::syscall(libc::SYS_close, fd);
            found
        }
    }

    /// Reads the text form: `start-end perms …` a line.
    fn scan(fd: libc::c_long, address: usize) -> Option<Bounds> {
        let mut buffer = [0u8; 1024];
        let mut line = Line::default();
        loop {
            // SAFETY: the buffer is ours and its length is given.
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
    pub(super) struct Line {
        field: u8,
        bounds: Bounds,
    }

    impl Line {
        pub(super) fn feed(&mut self, byte: u8) -> Option<Bounds> {
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
    pub(super) fn scan_for_test(address: usize) -> Option<Bounds> {
        // SAFETY: as in `mapping_around`.
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
    use super::Bounds;

    pub(super) fn thread_pointer() -> usize {
        0
    }

    pub(super) fn mapping_around(_address: usize) -> Option<Bounds> {
        None
    }
}

#[cfg(all(test, rtprof_supported, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_local_lies_inside_the_bounds_on_main_and_other_threads() {
        let check = || {
            let local = 0u8;
            let at = &raw const local as usize;
            let bounds = of_stack_at(at);
            assert!(bounds.contains(at), "{bounds:x?} does not hold {at:x}");
            assert!(bounds.high - at < 64 << 20, "{bounds:x?} is no thread's stack");
            let text = imp::scan_for_test(at).unwrap();
            assert!(text.low <= bounds.low && bounds.high <= text.high, "{text:x?} against {bounds:x?}");
        };
        check();
        std::thread::spawn(check).join().unwrap();
        std::thread::Builder::new().stack_size(64 << 10).spawn(check).unwrap().join().unwrap();
    }

    #[test]
    fn an_address_on_no_mapping_has_no_bounds() {
        assert_eq!(imp::mapping_around(8), None);
        assert_eq!(imp::scan_for_test(8), None);
    }

    #[test]
    fn the_text_form_is_parsed_across_lines() {
        let mut line = imp::Line::default();
        let text = "55d0-55f0 r--p 00000000 fe:00 1234 /bin/a-b\n7ffe00-7fff00 rw-p 0 0:0 0 [stack]\n";
        let found: Vec<_> = text.bytes().filter_map(|b| line.feed(b)).collect();
        assert_eq!(found, [Bounds { low: 0x55d0, high: 0x55f0 }, Bounds { low: 0x7ffe00, high: 0x7fff00 }]);
    }
}
