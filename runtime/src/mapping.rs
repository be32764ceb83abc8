//! Anonymous memory mappings of our own: where every record lives, so that no hook ever asks the
//! allocator it runs inside for memory.
//!
//! All functions are plain system calls: no lock, no allocation, usable in a signal handler and in
//! a forked child. Failure is `None`, never a panic: a program under an address-space limit goes on,
//! and the caller counts what it could not keep.
#![cfg_attr(not(rtprof_supported), allow(unused_variables))]

use core::ptr::NonNull;

/// The granule of `mmap` and `madvise` that we assume. Larger pages only waste a little.
pub const PAGE: usize = 4096;

/// Mappings below this cannot be backed by huge pages.
#[cfg(rtprof_supported)]
const HUGE_PAGE: usize = 1 << 20;

#[cfg(rtprof_supported)]
fn mmap(len: usize, prot: i32, flags: i32) -> Option<NonNull<u8>> {
    // SAFETY: a new anonymous mapping touches no memory that anybody else owns.
    let p = unsafe {
        libc::mmap(core::ptr::null_mut(), len, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags, -1, 0)
    };
    if p == libc::MAP_FAILED {
        return None;
    }
    if len >= HUGE_PAGE {
        // Tables and the pool are touched here and there: backed by huge pages, a handful of samples
        // would cost megabytes.
        // SAFETY: advice on the mapping made above.
        unsafe { libc::madvise(p, len, libc::MADV_NOHUGEPAGE) };
    }
    NonNull::new(p.cast())
}

/// Maps `len` zeroed, readable and writable bytes. Pages cost memory only once written.
pub fn map(len: usize) -> Option<NonNull<u8>> {
    #[cfg(rtprof_supported)]
    return mmap(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_NORESERVE);
    #[cfg(not(rtprof_supported))]
    None
}

/// Reserves `len` bytes of address space that fault on any access until [`commit`] opens them.
pub fn reserve(len: usize) -> Option<NonNull<u8>> {
    #[cfg(rtprof_supported)]
    return mmap(len, libc::PROT_NONE, libc::MAP_NORESERVE);
    #[cfg(not(rtprof_supported))]
    None
}

/// Has the kernel wipe the range in each forked child. `false` when it cannot, before Linux 4.14.
///
/// # Safety
/// `start..start + len` is a mapping of the caller's, both multiples of [`PAGE`].
pub unsafe fn wipe_on_fork(start: NonNull<u8>, len: usize) -> bool {
    #[cfg(rtprof_supported)]
    // SAFETY: advice on the caller's mapping, of which this process sees nothing.
    return unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_WIPEONFORK) } == 0;
    #[cfg(not(rtprof_supported))]
    false
}

/// Opens a part of a reservation for reading and writing. `false` when the kernel refuses.
///
/// # Safety
/// `start..start + len` lies in a reservation of the caller's, both multiples of [`PAGE`].
pub unsafe fn commit(start: NonNull<u8>, len: usize) -> bool {
    #[cfg(rtprof_supported)]
    // SAFETY: the caller owns the range; widening its protection invalidates nothing.
    return unsafe { libc::mprotect(start.as_ptr().cast(), len, libc::PROT_READ | libc::PROT_WRITE) } == 0;
    #[cfg(not(rtprof_supported))]
    false
}

/// Gives the pages of a range back to the kernel; they read as zero afterwards. `false` when the kernel
/// refuses (locked memory), and then the contents are as they were.
///
/// # Safety
/// `start..start + len` lies in a mapping of the caller's, both multiples of [`PAGE`], and nobody
/// needs its contents or touches it during the call.
#[must_use]
pub unsafe fn discard(start: NonNull<u8>, len: usize) -> bool {
    #[cfg(rtprof_supported)]
    // SAFETY: by the caller's promise nobody needs the contents.
    return unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTNEED) } == 0;
    #[cfg(not(rtprof_supported))]
    false
}

/// The most address space this process may have (RLIMIT_AS), in bytes; `usize::MAX` when unlimited.
pub fn address_space_limit() -> usize {
    #[cfg(rtprof_supported)]
    {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
        // SAFETY: writes to the local alone.
        unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
        if limit.rlim_cur != libc::RLIM_INFINITY {
            return limit.rlim_cur as usize;
        }
    }
    usize::MAX
}

/// Removes a mapping made by [`map`] or [`reserve`].
///
/// # Safety
/// The range is exactly such a mapping and nobody uses it any more.
pub unsafe fn unmap(start: NonNull<u8>, len: usize) {
    #[cfg(rtprof_supported)]
    // SAFETY: by the caller's promise the mapping is his and unused.
    unsafe {
        libc::munmap(start.as_ptr().cast(), len);
    }
}

/// Closes a part of a reservation again, whose pages were given back: it does not count as memory that the program may
/// write to.
///
/// # Safety
/// `start..start + len` lies in a reservation of the caller's, both multiples of the page's size, and nobody touches it
/// before the next [`commit`].
pub unsafe fn close(start: NonNull<u8>, len: usize) {
    #[cfg(rtprof_supported)]
    // SAFETY: by the caller's promise nobody touches it.
    unsafe {
        libc::mprotect(start.as_ptr().cast(), len, libc::PROT_NONE);
    }
}

/// Tells LeakSanitizer, where it is in the program, that objects of the program lie in a part of a mapping that stays.
///
/// It looks for pointers in memory that its own allocator gave out, in static variables and on stacks: what is reachable
/// through a sampled object only, which lies in a mapping of ours, it would report as leaked. Only for objects of the
/// program: a table with their addresses would hide that they have leaked. Valgrind looks into every mapping.
pub fn add_leak_root(start: NonNull<u8>, len: usize) {
    #[cfg(rtprof_supported)]
    if let Some(register) = leak_sanitizer::register_root_region() {
        // SAFETY: the mapping stays; parts of it that cannot be read are left out there.
        unsafe { register(start.as_ptr(), len) }
    }
}

#[cfg(rtprof_supported)]
mod leak_sanitizer {
    use core::arch::asm;

    /// `__lsan_register_root_region` of `sanitizer/lsan_interface.h`.
    type Register = unsafe extern "C" fn(*const u8, usize);

    /// The function, in programs that have the sanitizer.
    ///
    /// Weak references of the language are not stable, and `dlsym` may allocate, which must not be here. The reference
    /// and the word that makes it weak stand in the same statement, so that no object file has the one without the other.
    pub(super) fn register_root_region() -> Option<Register> {
        let address: *const ();
        // SAFETY: reads the symbol's entry in the table of addresses, which the linker sets to null if there is none.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            asm!(
                ".weak __lsan_register_root_region",
                "mov {}, qword ptr [rip + __lsan_register_root_region@GOTPCREL]",
                out(reg) address,
                options(pure, readonly, preserves_flags, nostack)
            );
        }
        // SAFETY: as above.
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
        // SAFETY: an address of a function of this type, or null.
        unsafe { core::mem::transmute::<*const (), Option<Register>>(address) }
    }
}
