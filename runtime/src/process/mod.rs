//! The number of the current process without a system call, for hooks with data that is invalid in a forked child.
//!
//! A page that the kernel wipes in a child (`MADV_WIPEONFORK`, Linux 4.14) holds the id of the process that stored it
//! last. Where it reads 0, the process is new and asks the kernel. A child of `vfork` shares the page with its parent,
//! as it shares the data that the number protects.

pub mod at_exit;
pub mod own_files;
pub mod private_file;
#[cfg(rtprof_supported)]
pub mod proc;

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::hook::Hook;
use crate::hook::own_process;
use crate::memory::mapping;

/// The page; null before the first call.
static NUMBER: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// Stands in for the page where it is not available: always 0, so that each call makes a system call.
static UNKNOWN: AtomicU32 = AtomicU32::new(0);

/// Returns the number of this process, never 0. Safe to call in a hook.
#[inline]
pub fn number() -> u32 {
    // SAFETY: the pointer is null or points to memory that lives as long as the process.
    match unsafe { NUMBER.load(Ordering::Acquire).as_ref() }.map(|number| number.load(Ordering::Relaxed)) {
        Some(known) if known != 0 => known,
        _ => ask(),
    }
}

/// Returns whether a child of `vfork`, which runs in its parent's memory, has its parent's number. Valid after a call
/// of [`number`]. Safe to call in a hook.
pub fn is_shared_with_vfork() -> bool {
    !ptr::eq(NUMBER.load(Ordering::Relaxed), &raw const UNKNOWN)
}

/// Returns whether the program runs with more rights than its caller has (set-uid, set-gid, file capabilities), so that what
/// the caller chooses, such as the environment, must not be followed.
pub fn is_secure() -> bool {
    #[cfg(rtprof_supported)]
    // SAFETY: the call reads what the kernel has given to the process.
    let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) != 0 };
    #[cfg(not(rtprof_supported))]
    let is_secure = false;
    is_secure
}

#[cold]
fn ask() -> u32 {
    // The guard restores `errno`.
    let _hook = Hook::enter();
    let number = own_process();
    // SAFETY: the pointer is null or points to memory that lives as long as the process.
    let known = unsafe { NUMBER.load(Ordering::Acquire).as_ref() }.unwrap_or_else(open);
    if !ptr::eq(known, &raw const UNKNOWN) {
        known.store(number, Ordering::Relaxed);
    }
    number
}

/// Makes the page, or returns the page that another thread has made first.
fn open() -> &'static AtomicU32 {
    let page = wiped_page();
    let wanted = page.map_or((&raw const UNKNOWN).cast_mut(), |page| page.as_ptr().cast());
    let installed = NUMBER.compare_exchange(ptr::null_mut(), wanted, Ordering::AcqRel, Ordering::Acquire);
    let used = installed.map_or_else(|other| other, |_| wanted);
    if let (Err(_), Some(page)) = (installed, page) {
        // SAFETY: the page was mapped above, and no other thread knows of it.
        unsafe { mapping::unmap(page, mapping::PAGE) };
    }
    // SAFETY: `used` is a zeroed and aligned page that is never unmapped, or the static.
    unsafe { &*used }
}

fn wiped_page() -> Option<NonNull<u8>> {
    let page = mapping::map(mapping::PAGE)?;
    // SAFETY: the page was mapped above, and no other thread knows of it.
    unsafe {
        if mapping::wipe_on_fork(page, mapping::PAGE) {
            return Some(page);
        }
        mapping::unmap(page, mapping::PAGE);
    }
    None
}

#[cfg(all(test, rtprof_supported))]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_another_number() {
        assert_eq!(number(), std::process::id());
        assert_eq!(number(), std::process::id(), "as it was noted");
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: a plain system call.
            let is_right = (0..2).all(|_| number() == unsafe { libc::getpid() } as u32);
            // SAFETY: ends the child here, without what the parent has set up.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = -1;
        // SAFETY: writes to a local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child knows its own number");
        assert_eq!(number(), std::process::id());
    }
}
