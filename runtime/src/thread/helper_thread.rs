//! rtprof's helper threads, which run none of the program's code.
//!
//! Problem: each thread of std takes a lock of std when it starts. In a child that was forked while another thread held
//! that lock, no thread of std ever starts. Scheme: the C library makes the thread; it resets its own locks at a fork.
//! All signals are blocked in the thread, so that the program's handlers run on the program's threads. (`sigfillset` leaves out
//! those that the C library keeps for itself, and so must this: `setuid` waits until each thread has handled one.)

/// Runs `work` on a new thread with this name (15 bytes at most). Nothing waits for its end. If `work` panics, only the
/// thread ends.
///
/// # Errors
/// No thread is available; `work` is dropped then.
pub fn spawn(name: &'static core::ffi::CStr, work: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
    imp::spawn(name, work)
}

#[cfg(rtprof_supported)]
mod imp {
    use core::ffi::{CStr, c_void};
    use core::{mem, ptr};
    use std::io;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use crate::goroutine::{self, Origin};
    use crate::hook::hidden::{self, Calls};
    use crate::labels;

    /// The stack size of std's threads.
    const STACK: usize = 2 << 20;

    struct Start {
        name: &'static CStr,
        work: Box<dyn FnOnce() + Send>,
    }

    extern "C" fn run(start: *mut c_void) -> *mut c_void {
        // SAFETY: `spawn` made the box for this call.
        let Start { name, work } = *unsafe { Box::from_raw(start.cast::<Start>()) };
        // SAFETY: the name ends in a zero byte.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        // Registered, because it appears in the goroutine profile and blocks the signal by which it would be asked.
        let _goroutine = goroutine::register(name.to_str().ok(), Origin::default());
        let _labels = labels::set_own("helper");
        // The panic hook has printed the panic.
        let _ = catch_unwind(AssertUnwindSafe(work));
        ptr::null_mut()
    }

    pub(super) fn spawn(name: &'static CStr, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let start = Box::into_raw(Box::new(Start { name, work }));
        // SAFETY: the calls write to these locals, which are initialised before they are read.
        let error = unsafe {
            let mut attributes: libc::pthread_attr_t = mem::zeroed();
            let mut thread = mem::zeroed();
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (mem::zeroed(), mem::zeroed());
            libc::pthread_attr_init(&raw mut attributes);
            libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
            libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
            libc::sigfillset(&raw mut all);
            // The thread inherits the mask.
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let (thread, attributes) = (&raw mut thread, &raw mut attributes);
            let create = || libc::pthread_create(thread, attributes, run, start.cast::<c_void>());
            let error = hidden::hiding(Calls::THREADS, create);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
            libc::pthread_attr_destroy(attributes);
            error
        };
        if error != 0 {
            // SAFETY: the box was made above, and no thread exists that would take it.
            drop(unsafe { Box::from_raw(start) });
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(())
    }
}

#[cfg(not(rtprof_supported))]
mod imp {
    pub(super) fn spawn(
        name: &'static core::ffi::CStr,
        work: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<()> {
        let name = name.to_string_lossy().into_owned();
        std::thread::Builder::new().name(name).spawn(work).map(drop)
    }
}

#[cfg(all(test, rtprof_supported, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn it_runs_by_its_name_and_a_panic_ends_it_alone() {
        let (send, receive) = mpsc::channel();
        let sender = send.clone();
        spawn(
            c"rtprof-test",
            Box::new(move || sender.send(std::fs::read_to_string("/proc/thread-self/comm")).unwrap()),
        )
        .unwrap();
        assert_eq!(receive.recv().unwrap().unwrap(), "rtprof-test\n");
        let panics = move || {
            let _held = send;
            panic!("on purpose");
        };
        spawn(c"rtprof-test", Box::new(panics)).unwrap();
        assert!(receive.recv().is_err(), "what it had is dropped");
    }
}
