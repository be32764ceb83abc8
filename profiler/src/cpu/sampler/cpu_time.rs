//! The processor time that threads have used.

use core::mem::MaybeUninit;

use rtprof_runtime::clock::NANOS;
use rtprof_runtime::hook::errno;

/// The kind of clock: of a thread, scheduled time (linux/posix-timers.h).
const THREAD: libc::clockid_t = 4;
const SCHEDULED: libc::clockid_t = 2;

/// Returns the clock of thread `id` of this process (`MAKE_THREAD_CPUCLOCK`).
pub(super) fn clock_of(id: u32) -> libc::clockid_t {
    !(id as libc::clockid_t) << 3 | THREAD | SCHEDULED
}

/// Returns the nanoseconds of the current thread. Safe to call in a signal handler.
pub(in crate::cpu) fn own() -> Option<u64> {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the nanoseconds of thread `id`; `None` if it has ended.
pub(super) fn of_thread(id: u32) -> Option<u64> {
    read(clock_of(id))
}

/// Returns the nanoseconds of all threads that the process has or had.
pub(super) fn of_process() -> Option<u64> {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> Option<u64> {
    errno::kept(|| {
        let mut time = MaybeUninit::<libc::timespec>::uninit();
        // SAFETY: the call writes to the local, which is initialised if the call returns 0.
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
    use rtprof_runtime::thread::kernel_thread::thread_id as kernel_thread_id;

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
