//! Events of the kernel's performance monitor: its software clock of a thread's processor time, which sends the thread
//! a signal each time a period is over (perf_event_open(2)).
//!
//! The clock is a timer of high resolution, which the kernel stops while the thread does not run. So a thread that runs
//! for a millisecond now and then is sampled in proportion, at any frequency.
//!
//! Each thread gets a separate event. With `inherit` new threads would have an event at once, but all signals would go
//! to the thread for which the first event was made.
//!
//! A program may close descriptors that it has not opened, as a daemon does at its start. Then the kernel ends the event, and
//! the number may be that of a file of the program, which is left alone: an event is known by the number that the kernel gives
//! no other one.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use core::ffi::c_int;
use core::mem::{self, ManuallyDrop};

/// The first version of `perf_event_attr`, which every kernel accepts.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint: u32,
    config1: u64,
}

const SOFTWARE: u32 = 1;
const TASK_CLOCK: u64 = 1;

const DISABLED: u64 = 1 << 0;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// `_IO('$', 0)` and the following numbers.
const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;
const REFRESH: libc::c_ulong = 0x2402;
/// `_IOW('$', 4, __u64)`.
const PERIOD: libc::c_ulong = 0x4008_2404;
/// `_IOR('$', 7, __u64 *)`.
const ID: libc::c_ulong = 0x8008_2407;

const SET_SIGNAL: c_int = 10;
const SET_OWNER: c_int = 15;
const OWNER_THREAD: c_int = 0;

#[repr(C)]
struct Owner {
    kind: c_int,
    id: libc::pid_t,
}

/// The shortest period that the kernel allows, in nanoseconds.
pub(super) const SHORTEST: u64 = 10_000;

/// An event of one thread. Closed when dropped, unless the program has closed it.
pub(super) struct PerfEvent {
    fd: ManuallyDrop<OwnedFd>,
    number: u64,
}

/// Returns the kernel's number of an event; `None` if the descriptor is not that of an event.
fn number(fd: RawFd) -> Option<u64> {
    let mut number = 0_u64;
    // SAFETY: the kernel writes eight bytes, to the local.
    (unsafe { libc::ioctl(fd, ID as _, &raw mut number) } == 0).then_some(number)
}

/// Whether the descriptor is still that of the event with this number.
pub(super) fn is_event(fd: RawFd, number: u64) -> bool {
    self::number(fd) == Some(number)
}

impl PerfEvent {
    /// Opens an event for thread `id` of this process, not enabled. It will fire once after `first` nanoseconds of
    /// processor time. With `user_only` it does not fire while the thread is in the kernel, whose time the kernel may
    /// forbid to observe.
    pub(super) fn open(id: u32, first: u64, user_only: bool) -> io::Result<Self> {
        let kernel = if user_only { EXCLUDE_KERNEL } else { 0 };
        let attributes = Attributes {
            kind: SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: TASK_CLOCK,
            sample_period: first.max(SHORTEST),
            flags: DISABLED | kernel | EXCLUDE_HYPERVISOR,
            ..Attributes::default()
        };
        const ANY_CPU: c_int = -1;
        const NO_GROUP: c_int = -1;
        // SAFETY: the kernel reads the structure, which contains its size.
        let fd = unsafe {
            let attributes = &raw const attributes;
            libc::syscall(libc::SYS_perf_event_open, attributes, id, ANY_CPU, NO_GROUP, CLOSE_ON_EXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was made just now, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        let number = number(fd.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { fd: ManuallyDrop::new(fd), number })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Returns the kernel's number of the event.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns its descriptor and its number, for [`from_raw`](Self::from_raw).
    pub(super) fn into_raw(self) -> (RawFd, u64) {
        let raw = (self.fd(), self.number);
        mem::forget(self);
        raw
    }

    /// # Safety
    /// Both come from [`into_raw`](Self::into_raw), and are passed once.
    pub(super) unsafe fn from_raw(fd: RawFd, number: u64) -> Self {
        // SAFETY: the caller passes a descriptor from `into_raw`, once, so nothing else of ours owns it. If the program has
        // closed it, it is never closed here.
        Self { fd: ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) }), number }
    }

    /// Routes its signals to thread `id` as `signal`.
    pub(super) fn route(&self, id: u32, signal: c_int) -> io::Result<()> {
        let owner = Owner { kind: OWNER_THREAD, id: id as libc::pid_t };
        // SAFETY: the calls use our own descriptor; the structure is a local that the kernel reads.
        let results = unsafe {
            [
                libc::fcntl(self.fd(), SET_OWNER, &raw const owner),
                libc::fcntl(self.fd(), SET_SIGNAL, signal),
                libc::fcntl(self.fd(), libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK),
            ]
        };
        if results.contains(&-1) { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Lets it fire once.
    pub(super) fn enable_once(&self) -> io::Result<()> {
        // SAFETY: the call uses our own descriptor.
        match unsafe { libc::ioctl(self.fd(), REFRESH as _, 1) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Stops it from firing, and returns whether the program has left it open. Closing it is not enough, because a forked child
    /// has the descriptor too.
    pub(super) fn disable(&self) -> bool {
        if !is_event(self.fd(), self.number) {
            return false;
        }
        // SAFETY: the calls use our own descriptor.
        unsafe {
            libc::ioctl(self.fd(), DISABLE as _, 0);
            libc::fcntl(self.fd(), libc::F_SETFL, libc::O_NONBLOCK);
        }
        true
    }
}

impl Drop for PerfEvent {
    fn drop(&mut self) {
        if self.disable() {
            // SAFETY: the descriptor is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

/// Lets the event with this number fire after each `interval` nanoseconds from now on, unless the program has closed it. Called
/// in a handler, by its thread.
pub(super) fn go_on(fd: RawFd, number: u64, interval: u64) {
    if !is_event(fd, number) {
        return;
    }
    // SAFETY: the descriptor belongs to one of our events. We close it only when no handler is running.
    unsafe {
        libc::ioctl(fd, PERIOD as _, &raw const interval);
        libc::ioctl(fd, ENABLE as _, 0);
    }
}
