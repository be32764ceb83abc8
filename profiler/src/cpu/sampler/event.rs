//! The cause of a signal, as the kernel reports it to the handler.

use core::ffi::c_int;

/// The cause of one of our signals: an event or a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The event with this descriptor.
    Event(c_int),
    /// The timer of the slot with this number.
    Timer(u32),
}

/// Marks the values of our timers.
const MARK: u64 = 0x7274_7066_0000_0000;
const MARKED: u64 = 0xffff_ffff_0000_0000;

/// Returns the value of the timer of the slot with this number.
pub(super) fn value_of(slot: u32) -> u64 {
    MARK | u64::from(slot)
}

/// The beginning of the kernel's `siginfo_t`, for signals that descriptors send.
#[repr(C)]
struct OfDescriptor {
    head: Head,
    band: i64,
    fd: c_int,
}

/// The beginning of the kernel's `siginfo_t`, for signals that timers send.
#[repr(C)]
struct OfTimer {
    head: Head,
    timer: c_int,
    overrun: c_int,
    value: u64,
}

#[repr(C)]
struct Head {
    signal: c_int,
    errno: c_int,
    code: c_int,
    _pad: c_int,
}

/// `POLL_IN` to `POLL_HUP`.
const OF_DESCRIPTOR: core::ops::RangeInclusive<c_int> = 1..=6;

impl Cause {
    /// Reads the cause from the handler's argument. Returns `None` for a signal of another kind, which another process
    /// or the program itself has sent.
    pub(super) fn of(info: &libc::siginfo_t) -> Option<Self> {
        const { assert!(size_of::<OfTimer>() <= size_of::<libc::siginfo_t>()) };
        let at = &raw const *info;
        // SAFETY: `siginfo_t` is at least as large and as aligned as each of these; their fields are numbers, for which
        // any bytes are valid.
        let (descriptor, timer) = unsafe { (&*at.cast::<OfDescriptor>(), &*at.cast::<OfTimer>()) };
        match descriptor.head.code {
            code if OF_DESCRIPTOR.contains(&code) => Some(Self::Event(descriptor.fd)),
            libc::SI_TIMER if timer.value & MARKED == MARK => Some(Self::Timer(timer.value as u32)),
            _ => None,
        }
    }
}
