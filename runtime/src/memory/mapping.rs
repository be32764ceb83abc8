//! Anonymous memory mappings for all records, so that no hook calls the allocator inside which it runs.
//!
//! All functions are plain system calls: no lock, no allocation, usable in a signal handler and in a forked child.
//! Failure is `None`, never a panic: a program under an address-space limit continues, and the caller counts what it
//! could not record.
#![cfg_attr(not(rtprof_supported), allow(unused_variables))]

use core::ptr::NonNull;

/// The assumed granule of `mmap` and `madvise`. Larger pages only waste a little.
pub const PAGE: usize = 4096;

/// Mappings below this cannot be backed by huge pages.
#[cfg(rtprof_supported)]
const HUGE_PAGE: usize = 1 << 20;

#[cfg(rtprof_supported)]
fn mmap(len: usize, prot: i32, flags: i32) -> Option<NonNull<u8>> {
    // SAFETY: a new anonymous mapping affects no existing memory.
    let p = unsafe {
        libc::mmap(core::ptr::null_mut(), len, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags, -1, 0)
    };
    if p == libc::MAP_FAILED {
        return None;
    }
    if len >= HUGE_PAGE && !cfg!(miri) {
        // Tables and the pool are accessed sparsely: backed by huge pages, a handful of samples would cost megabytes.
        // SAFETY: advice on the mapping made above.
        unsafe { libc::madvise(p, len, libc::MADV_NOHUGEPAGE) };
    }
    NonNull::new(p.cast())
}

/// Reserves no swap for mappings of which most is never touched. Miri knows neither this flag nor `madvise`.
#[cfg(rtprof_supported)]
const LAZY: libc::c_int = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };

/// Maps `len` zeroed, readable and writable bytes. Pages cost memory only once written.
pub fn map(len: usize) -> Option<NonNull<u8>> {
    #[cfg(rtprof_supported)]
    return mmap(len, libc::PROT_READ | libc::PROT_WRITE, LAZY);
    #[cfg(not(rtprof_supported))]
    None
}

/// Reserves `len` bytes of address space that fault on any access until [`commit`] makes them accessible.
pub fn reserve(len: usize) -> Option<NonNull<u8>> {
    #[cfg(rtprof_supported)]
    return mmap(len, libc::PROT_NONE, LAZY);
    #[cfg(not(rtprof_supported))]
    None
}

/// As [`map`], at this address. `false` when other memory is mapped there, or the kernel refuses.
pub fn map_at(start: NonNull<u8>, len: usize) -> bool {
    #[cfg(rtprof_supported)]
    return mmap_at(start, len, libc::PROT_READ | libc::PROT_WRITE);
    #[cfg(not(rtprof_supported))]
    false
}

/// As [`reserve`], at this address. `false` when other memory is mapped there, or the kernel refuses.
pub fn reserve_at(start: NonNull<u8>, len: usize) -> bool {
    #[cfg(rtprof_supported)]
    return mmap_at(start, len, libc::PROT_NONE);
    #[cfg(not(rtprof_supported))]
    false
}

#[cfg(rtprof_supported)]
fn mmap_at(start: NonNull<u8>, len: usize, prot: i32) -> bool {
    if cfg!(miri) {
        return false;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | LAZY | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: with the last flag, a new anonymous mapping replaces no other.
    let p = unsafe { libc::mmap(start.as_ptr().cast(), len, prot, flags, -1, 0) };
    if p == libc::MAP_FAILED {
        return false;
    }
    if p.addr() != start.addr().get() {
        // To kernels before 4.17, which do not know the flag, the address is a hint.
        // SAFETY: the mapping was just made, and nothing uses it.
        unsafe { libc::munmap(p, len) };
        return false;
    }
    // However short it is, because the kernel joins neighbours: see `mmap`.
    // SAFETY: advice on the mapping made above.
    unsafe { libc::madvise(p, len, libc::MADV_NOHUGEPAGE) };
    true
}

/// Makes the kernel wipe the range in each forked child. Returns `false` when it cannot, before Linux 4.14.
///
/// # Safety
/// The caller owns the mapping `start..start + len`, both multiples of [`PAGE`].
pub(crate) unsafe fn wipe_on_fork(start: NonNull<u8>, len: usize) -> bool {
    #[cfg(rtprof_supported)]
    // SAFETY: advice on the caller's mapping, without effect in this process.
    return unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_WIPEONFORK) } == 0;
    #[cfg(not(rtprof_supported))]
    false
}

/// Makes a part of a reservation readable and writable. Returns `false` when the kernel refuses.
///
/// # Safety
/// `start..start + len` lies in a reservation that the caller owns, both multiples of [`PAGE`].
pub unsafe fn commit(start: NonNull<u8>, len: usize) -> bool {
    #[cfg(rtprof_supported)]
    // SAFETY: the caller owns the range; widening its protection invalidates nothing.
    return unsafe { libc::mprotect(start.as_ptr().cast(), len, libc::PROT_READ | libc::PROT_WRITE) } == 0;
    #[cfg(not(rtprof_supported))]
    false
}

/// Returns the pages of a range to the kernel; they read as zero afterwards. Returns `false` when the kernel refuses
/// (locked memory); then the contents do not change.
///
/// # Safety
/// `start..start + len` lies in a mapping that the caller owns, both multiples of [`PAGE`]. The contents are not needed
/// any more, and no thread accesses them during the call.
#[must_use]
pub unsafe fn discard(start: NonNull<u8>, len: usize) -> bool {
    #[cfg(rtprof_supported)]
    // SAFETY: the caller guarantees that the contents are not needed.
    return unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTNEED) } == 0;
    #[cfg(not(rtprof_supported))]
    false
}

/// Returns the limit of this process's address space (RLIMIT_AS), in bytes; `usize::MAX` when unlimited.
pub fn address_space_limit() -> usize {
    #[cfg(rtprof_supported)]
    {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
        // SAFETY: writes only to the local.
        unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
        if limit.rlim_cur != libc::RLIM_INFINITY {
            return limit.rlim_cur as usize;
        }
    }
    usize::MAX
}

/// Removes mappings that were made here.
///
/// # Safety
/// The caller owns the range, and no thread uses it any more.
pub unsafe fn unmap(start: NonNull<u8>, len: usize) {
    #[cfg(rtprof_supported)]
    // SAFETY: the caller owns the mapping and guarantees that it is unused.
    unsafe {
        libc::munmap(start.as_ptr().cast(), len);
    }
}

/// Makes a part of a reservation inaccessible again, after its pages were discarded: it no longer counts as memory that
/// the program may write to.
///
/// # Safety
/// `start..start + len` lies in a reservation that the caller owns, both multiples of the page size, and no thread
/// accesses it before the next [`commit`].
pub unsafe fn close(start: NonNull<u8>, len: usize) {
    #[cfg(rtprof_supported)]
    // SAFETY: the caller guarantees that no thread accesses the range.
    unsafe {
        libc::mprotect(start.as_ptr().cast(), len, libc::PROT_NONE);
    }
}

/// Registers, for LeakSanitizer, a part of a permanent mapping that contains objects of the program.
///
/// LeakSanitizer searches for pointers in memory from its own allocator, in static variables and on stacks. It would
/// report memory as leaked that is reachable only through a sampled object, because that object lies in our own
/// mapping. Only for objects of the program: registering a table with their addresses would hide leaks of them.
/// Valgrind searches every mapping.
pub fn add_leak_root(start: NonNull<u8>, len: usize) {
    #[cfg(rtprof_supported)]
    if let Some(register) = leak_sanitizer::register_root_region() {
        // SAFETY: the mapping is permanent; the sanitizer skips parts of it that cannot be read.
        unsafe { register(start.as_ptr(), len) }
    }
}

#[cfg(rtprof_supported)]
mod leak_sanitizer {
    use core::arch::asm;

    /// `__lsan_register_root_region` of `sanitizer/lsan_interface.h`.
    type Register = unsafe extern "C" fn(*const u8, usize);

    /// Returns the function, in programs that contain the sanitizer.
    ///
    /// Rust's weak references are not stable, and `dlsym` may allocate, which is forbidden here. The reference and the
    /// directive that makes it weak are in the same statement, so that every object file has both.
    pub(super) fn register_root_region() -> Option<Register> {
        let address: *const ();
        // SAFETY: reads the symbol's entry in the global offset table, which the linker sets to null if the symbol is
        // missing.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            asm!(
                ".weak __lsan_register_root_region",
                "mov {}, qword ptr [rip + __lsan_register_root_region@GOTPCREL]",
                out(reg) address,
                options(pure, readonly, preserves_flags, nostack)
            );
        }
        // SAFETY: reads the symbol's entry in the global offset table, which the linker sets to null if the symbol is
        // missing.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            asm!(
                ".weak __lsan_register_root_region",
                "adrp {0}, :got:__lsan_register_root_region",
                "ldr {0}, [{0}, #:got_lo12:__lsan_register_root_region]",
                out(reg) address,
                options(pure, readonly, preserves_flags, nostack)
            );
        }
        // SAFETY: the address is null or that of a function of this type.
        unsafe { core::mem::transmute::<*const (), Option<Register>>(address) }
    }
}
