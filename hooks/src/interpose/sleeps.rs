//! Sleeps.

use core::ffi::{c_int, c_uint};

use libc::{clockid_t, timespec};

use super::anywhere::unless_anywhere;
use super::forward::{returned, system_call};
use super::watch::watch;
use crate::inner::wait::WaitReason;

#[cfg(not(target_feature = "crt-static"))]
pub(super) mod next {
    use super::super::forward::Next;

    pub(in super::super) static NANOSLEEP: Next = Next::new();
    pub(in super::super) static CLOCK_NANOSLEEP: Next = Next::new();
    pub(in super::super) static USLEEP: Next = Next::new();
    pub(in super::super) static SLEEP: Next = Next::new();
}

#[cfg(not(target_feature = "crt-static"))]
type Nanosleep = unsafe extern "C-unwind" fn(*const timespec, *mut timespec) -> c_int;
#[cfg(not(target_feature = "crt-static"))]
type ClockNanosleep = unsafe extern "C-unwind" fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int;

/// # Safety
/// As `nanosleep`.
#[inline(always)]
unsafe fn next_nanosleep(wanted: *const timespec, left: *mut timespec) -> c_int {
    #[cfg(not(target_feature = "crt-static"))]
    if let Some(next) = next::NANOSLEEP.address() {
        // SAFETY: the address is that of the C library's function of this name; the caller keeps its contract.
        return unsafe { core::mem::transmute::<*mut (), Nanosleep>(next)(wanted, left) };
    }
    // SAFETY: the caller keeps the contract of the C library's function.
    let result = unsafe { system_call(libc::SYS_nanosleep, [wanted.addr(), left.addr(), 0, 0, 0, 0]) };
    returned(result) as c_int
}

/// # Safety
/// As `clock_nanosleep`.
#[inline(always)]
unsafe fn next_clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    wanted: *const timespec,
    left: *mut timespec,
) -> c_int {
    #[cfg(not(target_feature = "crt-static"))]
    if let Some(next) = next::CLOCK_NANOSLEEP.address() {
        // SAFETY: the address is that of the C library's function of this name; the caller keeps its contract.
        return unsafe { core::mem::transmute::<*mut (), ClockNanosleep>(next)(clock, flags, wanted, left) };
    }
    let arguments = [clock as usize, flags as usize, wanted.addr(), left.addr(), 0, 0];
    // It returns the error number, and leaves `errno` alone.
    // SAFETY: the caller keeps the contract of the C library's function.
    -unsafe { system_call(libc::SYS_clock_nanosleep, arguments) } as c_int
}

unless_anywhere! {
    /// `int nanosleep(const struct timespec *, struct timespec *)`
    fn nanosleep(wanted: *const timespec, left: *mut timespec) -> c_int: watched::nanosleep, next::NANOSLEEP;
    /// `int clock_nanosleep(clockid_t, int, const struct timespec *, struct timespec *)`
    fn clock_nanosleep(clock: clockid_t, flags: c_int, wanted: *const timespec, left: *mut timespec) -> c_int:
        watched::clock_nanosleep, next::CLOCK_NANOSLEEP;
    /// `int usleep(useconds_t)`
    fn usleep(micros: c_uint) -> c_int: watched::usleep, next::USLEEP;
    /// `unsigned sleep(unsigned)`
    fn sleep(seconds: c_uint) -> c_uint: watched::sleep, next::SLEEP;
}

/// What these functions do for all other threads.
mod watched {
    use super::{
        WaitReason, c_int, c_uint, clockid_t, next_clock_nanosleep, next_nanosleep, timespec, watch,
    };

    /// # Safety
    /// As for the C library's function.
    pub(super) unsafe extern "C-unwind" fn nanosleep(wanted: *const timespec, left: *mut timespec) -> c_int {
        // SAFETY: the caller keeps the contract of the C library's function.
        watch(WaitReason::Sleep, || unsafe { next_nanosleep(wanted, left) })
    }

    /// # Safety
    /// As for the C library's function.
    pub(super) unsafe extern "C-unwind" fn clock_nanosleep(
        clock: clockid_t,
        flags: c_int,
        wanted: *const timespec,
        left: *mut timespec,
    ) -> c_int {
        // SAFETY: the caller keeps the contract of the C library's function.
        watch(WaitReason::Sleep, || unsafe { next_clock_nanosleep(clock, flags, wanted, left) })
    }

    pub(super) extern "C-unwind" fn usleep(micros: c_uint) -> c_int {
        let wanted =
            timespec { tv_sec: (micros / 1_000_000).into(), tv_nsec: (micros % 1_000_000 * 1000).into() };
        // SAFETY: the call reads a local, and the remaining time is not requested.
        watch(WaitReason::Sleep, || unsafe { next_nanosleep(&raw const wanted, core::ptr::null_mut()) })
    }

    pub(super) extern "C-unwind" fn sleep(seconds: c_uint) -> c_uint {
        let mut left = timespec { tv_sec: seconds.into(), tv_nsec: 0 };
        let (wanted, left) = (&raw const left, &raw mut left);
        // SAFETY: the call reads and writes a local; the kernel reads it before it writes.
        match watch(WaitReason::Sleep, || unsafe { next_nanosleep(wanted, left) }) {
            0 => 0,
            // Interrupted: what is left, in whole seconds. SAFETY: the kernel has written the local.
            _ => unsafe { (*left).tv_sec as c_uint },
        }
    }
}
