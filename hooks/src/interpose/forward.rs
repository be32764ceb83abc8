//! Forwarding of interposed calls to the C library or the kernel.

use core::arch::asm;
use core::ffi::{c_int, c_long};

pub(super) use rtprof_runtime::hook::errno::{get as errno, set as set_errno};

/// Makes a system call, and returns what the kernel returns: from -4095 to -1 it is a negated error number.
///
/// A thread in the kernel is found at the next instruction. The `nop` sees to it that this is one of this function, by whose
/// name a profile knows the kernel's time; the compiler would place an instruction of the caller there.
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
            "nop",
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
            "nop",
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
#[inline]
pub(super) extern "C" fn returned(result: isize) -> c_long {
    if (LEAST_ERROR..0).contains(&result) { failed(result) } else { result as c_long }
}

#[cold]
#[inline(never)]
fn failed(result: isize) -> c_long {
    set_errno(-result as c_int);
    -1
}

/// The next definition of a function that this crate defines, in the order in which the loader searches: the C library's, or
/// that of a library of `LD_PRELOAD`.
///
/// The constructor looks all of them up, because a lookup takes a lock of the loader; a hook only loads an address.
/// `None` before the constructor has run, and in static programs, which have no other definition of that name.
///
/// Assembly code reads the address, which comes first; it is null for `None`.
#[cfg(not(target_feature = "crt-static"))]
#[repr(C)]
pub(super) struct Next {
    address: core::sync::atomic::AtomicPtr<()>,
    versions: Option<Versions>,
}

/// The versions of a function that the C library has in two.
#[cfg(not(target_feature = "crt-static"))]
#[derive(Clone, Copy)]
pub(super) struct Versions {
    /// The version that a plain lookup finds.
    pub(super) old: &'static core::ffi::CStr,
    /// The version that programs are linked with.
    pub(super) new: &'static core::ffi::CStr,
}

#[cfg(not(target_feature = "crt-static"))]
impl Next {
    pub(super) const fn new() -> Self {
        Self::versioned(None)
    }

    pub(super) const fn versioned(versions: Option<Versions>) -> Self {
        Self { address: core::sync::atomic::AtomicPtr::new(core::ptr::null_mut()), versions }
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
        let mut found = next(name);
        if let Some(Versions { old, new }) = self.versions
            // Otherwise it is the definition of another library.
            && found == versioned(name, old)
        {
            let new = versioned(name, new);
            found = if new.is_null() { found } else { new };
        }
        self.address.store(found.cast(), core::sync::atomic::Ordering::Release);
        self.address()
    }
}

#[cfg(not(target_feature = "crt-static"))]
fn next(name: &core::ffi::CStr) -> *mut core::ffi::c_void {
    // SAFETY: the name ends in a zero.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// Whether the next definition of this function of threads is the C library's. Must not be called in a hook.
#[cfg(not(target_feature = "crt-static"))]
pub(super) fn is_of_c_library(name: &core::ffi::CStr) -> bool {
    let object_of = |function: *mut core::ffi::c_void| {
        // SAFETY: all zeros are a valid value of the structure, and `dladdr` accepts any address.
        unsafe {
            let mut found: libc::Dl_info = core::mem::zeroed();
            (libc::dladdr(function, &raw mut found) != 0).then_some(found.dli_fbase)
        }
    };
    // A function that no tool defines. (Before 2.34 glibc had the functions of threads in a library of their own.)
    let of_c = object_of(next(c"pthread_attr_setguardsize"));
    of_c.is_some() && object_of(next(name)) == of_c
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
