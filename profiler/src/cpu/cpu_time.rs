//! How much processor time threads have used.

use core::mem::MaybeUninit;

use rtprof_runtime::clock::NANOS;
use rtprof_runtime::errno;

/// Which clock it is: of a thread, scheduled time (linux/posix-timers.h).
const THREAD: libc::clockid_t = 4;
const SCHEDULED: libc::clockid_t = 2;

/// The clock of thread `id` of this process (`MAKE_THREAD_CPUCLOCK`).
pub(super) fn clock_of(id: u32) -> libc::clockid_t {
    !(id as libc::clockid_t) << 3 | THREAD | SCHEDULED
}

/// Nanoseconds of the current thread. In a handler too.
pub(super) fn own() -> Option<u64> {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Nanoseconds of thread `id`; `None` if there is none any more.
pub(super) fn of_thread(id: u32) -> Option<u64> {
    read(clock_of(id))
}

/// Nanoseconds of all threads that the process has or had.
pub(super) fn of_process() -> Option<u64> {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> Option<u64> {
    errno::kept(|| {
        let mut time = MaybeUninit::<libc::timespec>::uninit();
        // SAFETY: writes to the local, and has if it returns 0.
        let time = unsafe {
            if libc::clock_gettime(clock, time.as_mut_ptr()) != 0 {
                return None;
            }
            time.assume_init()
        };
        Some(time.tv_sec as u64 * NANOS + time.tv_nsec as u64)
    })
}

#[cfg(test)]
mod tests {
    use rtprof_runtime::kernel_thread::thread_id as kernel_thread_id;

    use super::*;

    #[test]
    fn a_thread_is_read_from_outside_as_from_inside() {
        let (before, id) = (own().unwrap(), kernel_thread_id());
        let outside = std::thread::spawn(move || of_thread(id).unwrap()).join().unwrap();
        let after = own().unwrap();
        assert!(before <= outside && outside <= after, "{before} {outside} {after}");
        assert!(of_process().unwrap() >= after);
        assert_eq!(of_thread(u32::MAX >> 4), None);
    }
}
