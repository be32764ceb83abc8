//! Queries to the kernel about threads.

use crate::hook;

/// Returns the kernel's id of the current thread.
pub fn thread_id() -> u32 {
    #[cfg(rtprof_supported)]
    // SAFETY: the call has no effect.
    return unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    #[cfg(not(rtprof_supported))]
    0
}

/// Returns whether the current thread is the one with which the process began.
pub(crate) fn is_main() -> bool {
    thread_id() == hook::own_process()
}

/// Returns whether thread `id` of the current process has not ended yet.
///
/// Checks with signal 0, which is not delivered. The answer is the same as whether /proc/self/task lists the thread, at
/// a quarter of the cost, and is available without /proc.
pub fn is_alive(process: u32, id: u32) -> bool {
    #[cfg(rtprof_supported)]
    {
        // SAFETY: signal 0 is not delivered: the call only checks.
        let found = unsafe { libc::syscall(libc::SYS_tgkill, process, id, 0) } == 0;
        found || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
    }
    #[cfg(not(rtprof_supported))]
    {
        let _ = (process, id);
        true
    }
}

/// Returns whether thread `id` of the current process waits in the kernel, neither running nor ready to run. Returns
/// `None` where that is not known, as without /proc. Must not be called in a hook: it allocates.
pub fn is_waiting(id: u32) -> Option<bool> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")).ok()?;
    // The state follows the name, which may contain any bytes.
    let state = stat.rsplit_once(") ")?.1.chars().next()?;
    Some(state != 'R')
}

/// Lowers the priority of the current thread permanently (nice 10, a tenth of an ordinary thread's share of a processor
/// that both want). For rtprof's threads only; where this is forbidden the priority does not change.
pub fn give_way() {
    #[cfg(rtprof_supported)]
    // SAFETY: plain system calls, which on Linux change only the calling thread.
    unsafe {
        // A real-time policy inherited from the thread that started this one would take precedence over everything.
        if matches!(libc::sched_getscheduler(0), libc::SCHED_FIFO | libc::SCHED_RR) {
            let ordinary: libc::sched_param = core::mem::zeroed();
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary);
        }
        libc::nice(10);
    }
}

/// Returns the processor time that the current thread has used; zero where that is not known.
pub fn thread_time() -> core::time::Duration {
    #[cfg(rtprof_supported)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes to a local.
        if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } == 0 {
            return core::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        }
    }
    core::time::Duration::ZERO
}

/// The kernel's name of the current thread: at most 15 bytes, set by `pthread_setname_np`, which std calls
/// for its named threads.
pub(crate) struct ThreadName([u8; 16]);

impl ThreadName {
    pub(crate) fn current() -> Self {
        #[allow(unused_mut)]
        let mut name = [0; 16];
        #[cfg(rtprof_supported)]
        // SAFETY: the call writes at most 16 bytes to a local of that size.
        unsafe {
            libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        }
        Self(name)
    }

    /// Returns the name up to the first incomplete character: the kernel cuts at any byte.
    pub(crate) fn as_str(&self) -> &str {
        let len = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        let name = &self.0[..len];
        match core::str::from_utf8(name) {
            Ok(name) => name,
            Err(error) => core::str::from_utf8(&name[..error.valid_up_to()]).unwrap_or_default(),
        }
    }
}

/// Waits until the kernel has removed the thread, which can be joined a moment earlier.
#[cfg(all(test, rtprof_supported, not(loom)))]
pub(crate) fn wait_until_gone(id: u32) {
    let started = std::time::Instant::now();
    while is_alive(crate::hook::own_process(), id) {
        assert!(started.elapsed().as_secs() < 20, "thread {id} lives on");
        std::thread::yield_now();
    }
}

#[cfg(all(test, rtprof_supported, not(loom)))]
mod tests {
    use super::*;
    use crate::hook::own_process;
    use std::sync::mpsc;

    #[test]
    fn a_thread_is_alive_until_it_has_ended() {
        let (send, receive) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(thread_id()).unwrap();
            ends.recv().ok();
        });
        let id = receive.recv().unwrap();
        assert_ne!(id, thread_id());
        assert!(is_alive(own_process(), id) && is_alive(own_process(), thread_id()));
        if let Some(waits) = is_waiting(thread_id()) {
            assert!(!waits, "this one runs");
            while is_waiting(id) != Some(true) {
                std::thread::yield_now();
            }
        }
        drop(end);
        thread.join().unwrap();
        wait_until_gone(id);
        // Process 1 exists, but is not a thread of this process.
        assert!(!is_alive(own_process(), 1) || own_process() == 1);
    }

    #[test]
    fn names_are_whole_characters() {
        for (set, read) in [
            ("worker", "worker"),
            ("fifteen-letters", "fifteen-letters"),
            ("123456789-1234ö", "123456789-1234"),
        ] {
            std::thread::Builder::new()
                .name(set.into())
                .spawn(move || assert_eq!(ThreadName::current().as_str(), read))
                .unwrap()
                .join()
                .unwrap();
        }
    }
}
