//! What the kernel knows of threads.

/// The kernel's number of the current thread.
pub fn thread_id() -> u32 {
    #[cfg(rtprof_supported)]
    // SAFETY: the call has no effect.
    return unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    #[cfg(not(rtprof_supported))]
    0
}

/// Whether thread `id` of the current process has not ended yet.
///
/// Asked by a signal that is not sent. It is the same answer as whether /proc/self/task has the thread, at
/// a quarter of the cost, and is there without /proc.
pub fn is_alive(process: u32, id: u32) -> bool {
    #[cfg(rtprof_supported)]
    {
        // SAFETY: signal 0 is none: the call only looks.
        let found = unsafe { libc::syscall(libc::SYS_tgkill, process, id, 0) } == 0;
        found || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
    }
    #[cfg(not(rtprof_supported))]
    {
        let _ = (process, id);
        true
    }
}

/// Whether thread `id` of the current process waits in the kernel, neither running nor ready to run. `None` where that
/// cannot be told, as without /proc. Not for hooks: it allocates.
pub fn is_waiting(id: u32) -> Option<bool> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")).ok()?;
    // After the name, which may hold anything. 1 is the end.
    let state = stat.rsplit_once(") ")?.1.chars().next()?;
    Some(state != 'R')
}

/// Has the current thread give way to the program's for good (nice 10, a tenth of what an ordinary thread gets of a
/// processor that both want). For threads of ours alone; where even that is forbidden the thread goes on as it is.
pub fn give_way() {
    #[cfg(rtprof_supported)]
    // SAFETY: plain system calls, which change the calling thread only, on Linux.
    unsafe {
        // Inherited from the thread that started this one, a real-time policy would go before everything.
        if matches!(libc::sched_getscheduler(0), libc::SCHED_FIFO | libc::SCHED_RR) {
            let ordinary: libc::sched_param = core::mem::zeroed();
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary);
        }
        libc::nice(10);
    }
}

/// Processor time that the current thread has used; zero where that cannot be told.
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

    /// Up to the first byte that is no character's: the kernel cuts where it likes.
    pub(crate) fn as_str(&self) -> &str {
        let len = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        let name = &self.0[..len];
        match core::str::from_utf8(name) {
            Ok(name) => name,
            Err(error) => core::str::from_utf8(&name[..error.valid_up_to()]).unwrap_or_default(),
        }
    }
}

/// A thread can be joined a moment before the kernel has done with it.
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
        // Process 1 exists, but is no thread of ours.
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
