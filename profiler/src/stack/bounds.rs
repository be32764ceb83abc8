//! Where the current thread's stack ends, so that a stack walk never reads beyond it, and how much room is left on it,
//! so that a hook never overflows it.
//!
//! Problem: a walk without bounds faults as soon as a frame pointer holds anything else, and in code without frame
//! pointers it does. A hook without a guard turns the last kilobytes of a stack, which the program could have got by with,
//! into a crash.
//!
//! Scheme: of two kinds of stacks different things are known.
//!
//! - A *thread's own* stack stays where it is until the thread ends. Its mapping is asked of the kernel once per thread:
//!   by the `PROCMAP_QUERY` of Linux 6.11 where it exists (2 µs), else from /proc/thread-self/maps line by line (0.1 ms).
//!   (`pthread_getattr_np` knows it too, but allocates.) That of the main thread grows on demand, down to where its limit
//!   or another mapping stops it: only the kernel can tell, and is asked by [`is_readable`], which makes it grow.
//! - A *foreign* stack, one that the program switched to by itself (a coroutine, a signal handler's alternate stack), may
//!   be unmapped at any time and its addresses given to a smaller one. Nothing about it can be remembered. A walk begins
//!   in the page of the stack pointer, which is there, and asks about each further page when it gets there, 0.1 to 0.2 µs
//!   each.
//!
//! Without /proc every stack is treated as a foreign one.

use core::cell::Cell;

/// Addresses that belong to a stack: `low..high`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The lowest mapped address that is known.
    pub(super) low: usize,
    /// One past the highest address that may be read.
    pub(super) high: usize,
    /// Whether it is a foreign stack: the pages above `high` and below `low` may belong to it as well.
    pub(super) is_foreign: bool,
}

/// The unit in which the kernel is asked. Larger pages are asked about more than once.
const PAGE: usize = 4096;
/// The most that one step of a walk may leave unread on a foreign stack: a frame of this size. What seems to be a frame
/// further up is rather a frame pointer that holds something else, and each page would be asked about.
const LARGEST_STEP: usize = 256 << 10;
/// How far below its known end the main thread's stack is looked for. Coroutines' stacks lie further away: the kernel
/// keeps at least this much free below the main stack.
const LARGEST_GROWTH: usize = 128 << 20;

impl Bounds {
    /// No stack at all.
    pub(super) const NONE: Self = Self { low: 0, high: 0, is_foreign: false };
    /// A thread's own stack that the kernel does not tell about.
    const UNKNOWN: Self = Self { low: 1, high: 1, is_foreign: false };

    /// Those of a thread's own stack.
    pub(super) const fn new(low: usize, high: usize) -> Self {
        Self { low, high, is_foreign: false }
    }

    /// The page of a foreign stack that `sp` points into.
    fn foreign(sp: usize) -> Self {
        let low = sp & !(PAGE - 1);
        Self { low, high: low.saturating_add(PAGE), is_foreign: true }
    }

    /// Whether `address` lies inside.
    #[inline]
    pub(super) fn contains(self, address: usize) -> bool {
        self.low <= address && address < self.high
    }

    /// With `high` at least `end`, on a foreign stack that goes on so far. By value: what a walk reads in each step stays
    /// in registers.
    #[cold]
    pub(super) fn extended_to(mut self, end: usize) -> Option<Self> {
        if !self.is_foreign || end.saturating_sub(self.high) > LARGEST_STEP {
            return None;
        }
        while self.high < end {
            if !imp::is_readable(self.high) {
                return None;
            }
            self.high += PAGE;
        }
        Some(self)
    }

    /// Whether `need` bytes below `sp`, which lies inside, may be used.
    #[inline]
    pub(super) fn has_room(self, sp: usize, need: usize) -> bool {
        sp.wrapping_sub(self.low) >= need || self.may_be_given_room(sp, need)
    }

    #[cold]
    fn may_be_given_room(self, sp: usize, need: usize) -> bool {
        let Some(lowest) = sp.checked_sub(need) else { return false };
        if self.is_foreign {
            // From the top down, because there may be another stack below this one's guard page.
            let lowest = lowest & !(PAGE - 1);
            return (lowest..self.low).step_by(PAGE).rev().all(imp::is_readable);
        }
        if !self.contains(super::outermost::main_stack()) || !imp::is_readable(lowest) {
            return false;
        }
        // It has grown, and never shrinks.
        BOUNDS.with(|cell| cell.set(Self { low: lowest & !(PAGE - 1), ..self }));
        true
    }
}

thread_local! {
    // The thread's own stack. No destructor and no lazy initialisation: readable from the first to the last instruction
    // of a thread (rust#116390).
    static BOUNDS: Cell<Bounds> = const { Cell::new(Bounds::NONE) };
}

/// The bounds of this thread's own stack if `sp` points into it, as far as is known.
#[inline]
pub(super) fn own_stack_at(sp: usize) -> Option<Bounds> {
    let own = BOUNDS.with(Cell::get);
    own.contains(sp).then_some(own)
}

/// The bounds of the stack that `sp`, the stack pointer, points into.
#[inline]
pub(super) fn of_stack_at(sp: usize) -> Bounds {
    own_stack_at(sp).unwrap_or_else(|| look_up(sp))
}

#[cold]
fn look_up(sp: usize) -> Bounds {
    let known = BOUNDS.with(Cell::get);
    if known == Bounds::NONE || may_have_grown(known, sp) {
        let own = own_stack().unwrap_or(Bounds::UNKNOWN);
        BOUNDS.with(|cell| cell.set(own));
        if own.contains(sp) {
            return own;
        }
    }
    Bounds::foreign(sp)
}

/// Whether `sp` may lie on the main thread's stack, which has grown since its bounds were asked.
fn may_have_grown(known: Bounds, sp: usize) -> bool {
    sp < known.low && known.low - sp < LARGEST_GROWTH && known.contains(super::outermost::main_stack())
}

/// The stack that the thread was given when it was made. `None` when the kernel does not tell.
fn own_stack() -> Option<Bounds> {
    if imp::is_main_thread() {
        return imp::mapping_around(super::outermost::main_stack());
    }
    // glibc puts a thread's control block at the top of its stack. A neighbouring mapping that the kernel merged with
    // the stack is not part of it, and may go away: end at the control block.
    let block = imp::thread_pointer();
    Some(Bounds { high: block, ..imp::mapping_around(block)? })
}

#[cfg(rtprof_supported)]
mod imp {
    use super::{Bounds, PAGE};

    /// Bytes of text that are read at a time.
    const BUFFER: usize = 1024;

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

    /// Whether this is the thread that `main` runs in. In a forked child it is the one that forked.
    pub(super) fn is_main_thread() -> bool {
        // SAFETY: both calls only return a number. Raw: a C library may keep the parent's in a forked child.
        unsafe { libc::syscall(libc::SYS_gettid) == libc::syscall(libc::SYS_getpid) }
    }

    /// Whether the page of `address` may be read; a stack that grows on demand is made to grow down to it, if it may.
    ///
    /// The kernel reads the set of signals before it finds that there is no such way to change a mask: the well-known
    /// trick of Abseil's `AddressIsReadable`.
    pub(super) fn is_readable(address: usize) -> bool {
        const NO_SUCH_WAY: libc::c_int = -1;
        let none = core::ptr::null_mut::<u64>();
        let at = address & !7;
        // SAFETY: the kernel checks the address, and changes nothing. Callers keep `errno`.
        let n = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NO_SUCH_WAY, at, none, size_of::<u64>()) };
        // SAFETY: the location is this thread's own and always valid.
        n < 0 && unsafe { *libc::__errno_location() } == libc::EINVAL
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

    /// Reads the text form: `start-end perms …` a line. In a function of its own because of the buffer, with which a hook
    /// is not to begin where it is not needed.
    #[cold]
    #[inline(never)]
    fn scan(fd: libc::c_long, address: usize) -> Option<Bounds> {
        let mut buffer = [0u8; BUFFER];
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

    pub(super) fn is_main_thread() -> bool {
        false
    }

    pub(super) fn is_readable(_address: usize) -> bool {
        false
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
        assert_eq!(found, [Bounds::new(0x55d0, 0x55f0), Bounds::new(0x7ffe00, 0x7fff00)]);
    }
}
