//! Forwarding of interposed calls to the C library or the kernel.

use core::arch::asm;
use core::ffi::{c_int, c_long};

/// Makes a system call, and returns what the kernel returns: from -4095 to -1 it is a negated error number.
///
/// # Safety
/// As the system call.
#[inline(always)]
pub(super) unsafe fn system_call(number: c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the registers are the kernel's convention; the caller answers for the effect of the call.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: the registers are the kernel's convention; the caller answers for the effect of the call.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}

/// The lowest of the kernel's negated error numbers.
const LEAST_ERROR: isize = -4095;

/// Converts the kernel's `result` into the C library's, and sets `errno` on an error.
pub(super) extern "C" fn returned(result: isize) -> c_long {
    if (LEAST_ERROR..0).contains(&result) {
        set_errno(-result as c_int);
        return -1;
    }
    result as c_long
}

pub(super) fn errno() -> c_int {
    // SAFETY: the location belongs to this thread and is always valid.
    unsafe { *libc::__errno_location() }
}

pub(super) fn set_errno(value: c_int) {
    // SAFETY: the location belongs to this thread and is always valid.
    unsafe { *libc::__errno_location() = value };
}

/// The C library's own definition of a function that this crate defines.
///
/// The constructor looks all of them up, because a lookup takes a lock of the loader; a hook only loads an address.
/// `None` before the constructor has run, and in static programs, which have no other definition of that name.
#[cfg(not(target_feature = "crt-static"))]
pub(super) struct Next {
    address: core::sync::atomic::AtomicPtr<()>,
    /// The symbol version to prefer, if it exists.
    version: Option<&'static core::ffi::CStr>,
}

#[cfg(not(target_feature = "crt-static"))]
impl Next {
    pub(super) const fn new() -> Self {
        Self::versioned(None)
    }

    pub(super) const fn versioned(version: Option<&'static core::ffi::CStr>) -> Self {
        Self { address: core::sync::atomic::AtomicPtr::new(core::ptr::null_mut()), version }
    }

    /// The address, once it was looked up.
    #[inline(always)]
    pub(super) fn address(&self) -> Option<*mut ()> {
        let address = self.address.load(core::sync::atomic::Ordering::Acquire);
        (!address.is_null()).then_some(address)
    }

    /// Looks the address up. Must not be called in a hook.
    #[cold]
    pub(super) fn find(&self, name: &core::ffi::CStr) -> Option<*mut ()> {
        // SAFETY: the name ends in a zero.
        let any = || unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        let found = match self.version.map(|version| versioned(name, version)) {
            Some(found) if !found.is_null() => found,
            _ => any(),
        };
        self.address.store(found.cast(), core::sync::atomic::Ordering::Release);
        self.address()
    }
}

/// Null if the C library has no symbol versions, or not this one.
#[cfg(not(target_feature = "crt-static"))]
fn versioned(name: &core::ffi::CStr, version: &core::ffi::CStr) -> *mut core::ffi::c_void {
    #[cfg(target_env = "gnu")]
    // SAFETY: both strings end in a NUL byte.
    return unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) };
    #[cfg(not(target_env = "gnu"))]
    {
        let _ = (name, version);
        core::ptr::null_mut()
    }
}

/// The C library's function of a [`Next`], with this type. A constructor of the program may run before ours has looked
/// it up.
#[cfg(not(target_feature = "crt-static"))]
macro_rules! function {
    ($next:expr, $name:literal, $type:ty) => {{
        let address = $next.address().or_else(|| $next.find($name));
        // SAFETY: the C library's function of that name has this type.
        address.map(|address| unsafe { core::mem::transmute::<*mut (), $type>(address) })
    }};
}

#[cfg(not(target_feature = "crt-static"))]
pub(super) use function;
