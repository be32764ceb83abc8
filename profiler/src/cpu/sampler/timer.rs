//! Timers of a thread's processor time (timer_create(2)), where the performance monitor is not available.
//!
//! The kernel checks them at its ticks, 100 to 1000 per second, so a thread has at most as many samples; each stands
//! for the time since the previous one.
//!
//! Made by system calls, because a C library has different timer ids.

use core::ffi::{c_int, c_long};
use core::mem;
use std::io;

use super::cpu_time::clock_of;

/// The kernel's `sigevent`.
#[repr(C)]
struct SignalEvent {
    value: u64,
    signal: c_int,
    notify: c_int,
    thread: c_int,
    _rest: [c_int; 11],
}

/// `SIGEV_THREAD_ID`, and `SIGEV_SIGNAL`, which is 0.
const TO_THREAD: c_int = 4;

const _: () = assert!(size_of::<SignalEvent>() == 64);

/// A timer of one thread. Deleted when dropped.
pub(super) struct Timer(c_int);

impl Timer {
    /// Starts a timer of thread `id` of this process, which receives `signal` with `value` after `first` nanoseconds of
    /// processor time, and then after each `period`.
    pub(super) fn start(id: u32, signal: c_int, value: u64, first: u64, period: u64) -> io::Result<Self> {
        let event = SignalEvent { value, signal, notify: TO_THREAD, thread: id as c_int, _rest: [0; 11] };
        let mut number: c_int = 0;
        // SAFETY: the kernel reads the structure and writes the number.
        let made = unsafe {
            libc::syscall(libc::SYS_timer_create, clock_of(id) as c_long, &raw const event, &raw mut number)
        };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        let timer = Self(number);
        match set(timer.0, 0, first, period) {
            true => Ok(timer),
            false => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the kernel's number of the timer, for [`from_raw`](Self::from_raw).
    pub(super) fn into_raw(self) -> c_int {
        let number = self.0;
        mem::forget(self);
        number
    }

    /// # Safety
    /// `number` comes from [`into_raw`](Self::into_raw), and is passed once.
    pub(super) unsafe fn from_raw(number: c_int) -> Self {
        Self(number)
    }
}

/// Makes the timer with this number expire now.
pub(super) fn fire(number: c_int, interval: u64) {
    // An absolute time in the past.
    set(number, libc::TIMER_ABSTIME, 1, interval);
}

fn set(number: c_int, flags: c_int, first: u64, period: u64) -> bool {
    let nanos = |nanos: u64| libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as _,
        tv_nsec: (nanos % 1_000_000_000) as _,
    };
    let times = libc::itimerspec { it_interval: nanos(period), it_value: nanos(first.max(1)) };
    let none: *mut libc::itimerspec = core::ptr::null_mut();
    // SAFETY: the kernel reads the structure.
    unsafe { libc::syscall(libc::SYS_timer_settime, number, flags, &raw const times, none) == 0 }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer is our own.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.0) };
    }
}
