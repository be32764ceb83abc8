//! Waiting until one of several descriptors is ready. With a timeout of 0 such a call does not wait; without a
//! descriptor it is a sleep.

use core::ffi::c_int;
use core::ptr::{null, null_mut};

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use super::calls::Call;
use super::define::interposed;
use super::forward::system_call;

fn poll_call(waits: bool, descriptors: u64) -> Call {
    match (waits, descriptors) {
        (false, _) => Call::Immediate,
        (true, 0) => Call::Sleep,
        (true, _) => Call::Poll,
    }
}

/// # Safety
/// The pointer is null or valid.
unsafe fn is_no_time(time: *const timespec) -> bool {
    // SAFETY: the caller keeps the contract of the C library's function.
    unsafe { time.as_ref() }.is_some_and(|time| time.tv_sec == 0 && time.tv_nsec == 0)
}

/// # Safety
/// The pointer is null or valid.
unsafe fn is_no_time_of_day(time: *const timeval) -> bool {
    // SAFETY: the caller keeps the contract of the C library's function.
    unsafe { time.as_ref() }.is_some_and(|time| time.tv_sec == 0 && time.tv_usec == 0)
}

/// The size of the kernel's signal set, in bytes.
const SIGNALS: usize = 8;

/// `epoll_pwait`, which exists on all architectures.
///
/// # Safety
/// As `epoll_pwait`.
unsafe fn epoll_in_kernel(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    signals: *const sigset_t,
) -> isize {
    let arguments = [
        set as usize,
        events.expose_provenance(),
        most as usize,
        timeout as usize,
        signals.expose_provenance(),
        SIGNALS,
    ];
    // SAFETY: the caller keeps the contract of the C library's function.
    unsafe { system_call(libc::SYS_epoll_pwait, arguments) }
}

/// # Safety
/// As `ppoll`.
unsafe fn poll_in_kernel(
    descriptors: *mut pollfd,
    count: nfds_t,
    time: Option<timespec>,
    signals: *const sigset_t,
) -> isize {
    // A copy, because the kernel changes it.
    let mut time = time;
    let time = time.as_mut().map_or(null_mut(), |time| &raw mut *time);
    let arguments = [
        descriptors.expose_provenance(),
        count as usize,
        time.expose_provenance(),
        signals.expose_provenance(),
        SIGNALS,
        0,
    ];
    // SAFETY: the caller keeps the contract of the C library's function; the time is a local.
    unsafe { system_call(libc::SYS_ppoll, arguments) }
}

/// # Safety
/// As `pselect`.
unsafe fn select_in_kernel(
    count: c_int,
    sets: [*mut fd_set; 3],
    time: *mut timespec,
    signals: *const sigset_t,
) -> isize {
    let signals = [signals.expose_provenance(), SIGNALS];
    let [reads, writes, errors] = sets.map(|set| set.expose_provenance());
    let arguments = [
        count as usize,
        reads,
        writes,
        errors,
        time.expose_provenance(),
        (&raw const signals).expose_provenance(),
    ];
    // SAFETY: the caller keeps the contract of the C library's function; the pair is a local.
    unsafe { system_call(libc::SYS_pselect6, arguments) }
}

/// `select`, which stores the remaining time in its timeout.
///
/// # Safety
/// As `select`.
unsafe fn select_with_time_of_day(count: c_int, sets: [*mut fd_set; 3], time: *mut timeval) -> isize {
    // SAFETY: the caller keeps the contract of the C library's function.
    let Some(given) = (unsafe { time.as_mut() }) else {
        // SAFETY: the caller keeps the contract of the C library's function.
        return unsafe { select_in_kernel(count, sets, null_mut(), null()) };
    };
    if given.tv_sec < 0 || given.tv_usec < 0 {
        return -(libc::EINVAL as isize);
    }
    let mut left = timespec {
        tv_sec: given.tv_sec.saturating_add(given.tv_usec / 1_000_000),
        tv_nsec: given.tv_usec % 1_000_000 * 1000,
    };
    // SAFETY: the caller keeps the contract of the C library's function; the time is a local.
    let result = unsafe { select_in_kernel(count, sets, &raw mut left, null()) };
    *given = timeval { tv_sec: left.tv_sec, tv_usec: left.tv_nsec / 1000 };
    result
}

fn of_millis(timeout: c_int) -> Option<timespec> {
    let timeout = i64::from(u32::try_from(timeout).ok()?);
    Some(timespec { tv_sec: timeout / 1000, tv_nsec: timeout % 1000 * 1_000_000 })
}

interposed! {
    fn poll(descriptors: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int:
        poll_call(timeout != 0, count), => poll_in_kernel(descriptors, count, of_millis(timeout), null());
    fn ppoll(
        descriptors: *mut pollfd,
        count: nfds_t,
        time: *const timespec,
        signals: *const sigset_t,
    ) -> c_int:
        poll_call(!is_no_time(time), count),
        => poll_in_kernel(descriptors, count, time.as_ref().copied(), signals);
    fn select(
        count: c_int,
        reads: *mut fd_set,
        writes: *mut fd_set,
        errors: *mut fd_set,
        time: *mut timeval,
    ) -> c_int:
        poll_call(!is_no_time_of_day(time), count as u64),
        => select_with_time_of_day(count, [reads, writes, errors], time);
    fn pselect(
        count: c_int,
        reads: *mut fd_set,
        writes: *mut fd_set,
        errors: *mut fd_set,
        time: *const timespec,
        signals: *const sigset_t,
    ) -> c_int:
        poll_call(!is_no_time(time), count as u64),
        => {
            let mut left = time.as_ref().copied();
            let left = left.as_mut().map_or(null_mut(), |left| &raw mut *left);
            select_in_kernel(count, [reads, writes, errors], left, signals)
        };
    fn epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int:
        poll_call(timeout != 0, 1), => epoll_in_kernel(set, events, most, timeout, null());
    fn epoll_pwait(
        set: c_int,
        events: *mut epoll_event,
        most: c_int,
        timeout: c_int,
        signals: *const sigset_t,
    ) -> c_int:
        poll_call(timeout != 0, 1), => epoll_in_kernel(set, events, most, timeout, signals);
    fn epoll_pwait2(
        set: c_int,
        events: *mut epoll_event,
        most: c_int,
        time: *const timespec,
        signals: *const sigset_t,
    ) -> c_int:
        poll_call(!is_no_time(time), 1),
        => {
            let (set, most) = (set as usize, most as usize);
            let arguments = [set, events.expose_provenance(), most, time.expose_provenance(), signals.expose_provenance(), SIGNALS];
            system_call(libc::SYS_epoll_pwait2, arguments)
        };
}

/// A static musl has these in one object with the two above: a program that uses one of them would have duplicate
/// definitions.
#[cfg(all(target_env = "musl", target_feature = "crt-static"))]
mod beside {
    use super::*;
    use crate::interpose::forward::returned;

    /// `int epoll_create(int)`
    #[unsafe(no_mangle)]
    pub(crate) extern "C" fn epoll_create(size: c_int) -> c_int {
        if size <= 0 {
            return returned(-(libc::EINVAL as isize)) as c_int;
        }
        epoll_create1(0)
    }

    /// `int epoll_create1(int)`
    #[unsafe(no_mangle)]
    pub(crate) extern "C" fn epoll_create1(flags: c_int) -> c_int {
        // SAFETY: the call makes a descriptor, and touches no memory.
        returned(unsafe { system_call(libc::SYS_epoll_create1, [flags as usize, 0, 0, 0, 0, 0]) }) as c_int
    }

    /// `int epoll_ctl(int, int, int, struct epoll_event *)`
    ///
    /// # Safety
    /// As for the C library's function.
    #[unsafe(no_mangle)]
    pub(crate) unsafe extern "C" fn epoll_ctl(
        set: c_int,
        operation: c_int,
        descriptor: c_int,
        event: *mut epoll_event,
    ) -> c_int {
        let arguments =
            [set as usize, operation as usize, descriptor as usize, event.expose_provenance(), 0, 0];
        // SAFETY: the caller keeps the contract of the C library's function.
        returned(unsafe { system_call(libc::SYS_epoll_ctl, arguments) }) as c_int
    }
}
