//! Work at the end of the process: when it calls `exit`, or `main` returns.
//!
//! Problem: handlers of `atexit` run on a thread whose thread-locals are destroyed. Much of std panics there, and a panic
//! in a handler aborts the process. Scheme: a helper thread waits from the beginning. The handler only wakes it, and waits
//! for the end of its work.
//!
//! ```text
//!   thread that exits        helper thread
//!                            Idle: waits
//!   exit ── Working ───────> works
//!   waits, to the limit <─── Done
//!   the process ends
//! ```
//!
//! | lock | guards | held |
//! |---|---|---|
//! | `Exit::step` | how far the work is | for an assignment, and by `Condvar` |

use std::io;
use std::time::Duration;

/// Runs `work` on a thread of rtprof when the process ends by `exit` or by the return of `main`, which wait for it until
/// `limit` has passed. A process that ends by a signal, `_exit` or `abort` runs nothing, nor does a forked child. If a
/// second thread calls C's `exit` during that time, the process may end before the work does: the C library runs each
/// handler once, and lets the second thread go on. (Rust's `exit` does not.)
///
/// `work` must not wait for locks that the thread which exits may hold, such as that of standard error ([`tell`]).
///
/// # Errors
/// This process has such work already; the system refuses a thread or the handler, or is not supported.
pub fn at_exit(limit: Duration, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    imp::at_exit(limit, work)
}

/// Whether this process has such work.
pub fn is_set() -> bool {
    imp::is_set()
}

/// Writes a message to standard error, without its lock, which the thread that exits may hold, and without waiting for a
/// reader. Loses what a pipe has no room for.
pub fn tell(message: &str) {
    imp::tell(message);
}

#[cfg(rtprof_supported)]
mod imp {
    use core::sync::atomic::{AtomicPtr, Ordering};
    use std::io;
    use std::ptr;
    use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
    use std::time::Duration;

    use crate::hook::{self, own_process};
    use crate::thread::helper_thread;

    struct Exit {
        process: u32,
        limit: Duration,
        step: Mutex<Step>,
        changed: Condvar,
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Step {
        Idle,
        Working,
        Done,
    }

    /// What the last process that asked has to do. Never freed: a forked child reads its parent's.
    static EXIT: AtomicPtr<Exit> = AtomicPtr::new(ptr::null_mut());

    fn current() -> Option<&'static Exit> {
        // SAFETY: only leaked boxes are stored, and nothing changes them but through their locks.
        unsafe { EXIT.load(Ordering::Acquire).as_ref() }
    }

    pub(super) fn is_set() -> bool {
        current().is_some_and(|exit| exit.process == own_process())
    }

    pub(super) fn at_exit(limit: Duration, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let process = own_process();
        let before = EXIT.load(Ordering::Acquire);
        if is_set() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "this process has work at its end already",
            ));
        }
        let exit: &'static Exit = Box::leak(Box::new(Exit {
            process,
            limit,
            step: Mutex::new(Step::Idle),
            changed: Condvar::new(),
        }));
        let place = ptr::from_ref(exit).cast_mut();
        if EXIT.compare_exchange(before, place, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another thread asks at the same time"));
        }
        let started =
            helper_thread::spawn(c"rtprof-exit", Box::new(move || exit.work(work))).and_then(|()| {
                // SAFETY: the handler takes nothing, and neither unwinds nor exits.
                match unsafe { libc::atexit(exiting) } {
                    0 => Ok(()),
                    _ => Err(io::Error::other("the system has no place for a handler of atexit")),
                }
            });
        started.inspect_err(|_| {
            exit.set(Step::Done);
            EXIT.store(ptr::null_mut(), Ordering::Release);
        })
    }

    pub(super) fn tell(message: &str) {
        // A pipe that is ready has room for so much.
        for part in message.as_bytes().chunks(libc::PIPE_BUF) {
            let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
            // SAFETY: the calls read and write these locals.
            unsafe {
                if libc::poll(&raw mut stderr, 1, 0) != 1 || stderr.revents & libc::POLLOUT == 0 {
                    return;
                }
                libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len());
            }
        }
    }

    extern "C" fn exiting() {
        if let Some(exit) = current().filter(|exit| exit.process == own_process()) {
            exit.run();
        }
    }

    impl Exit {
        /// Has the work done, on the thread that exits. Does nothing if it was begun before: by a second thread that
        /// exits, or if the work itself exits.
        fn run(&self) {
            // The wait is rtprof's and not the program's.
            let _untracked = hook::untracked();
            let mut step = self.step();
            if *step != Step::Idle {
                return;
            }
            *step = Step::Working;
            self.changed.notify_all();
            let waited = self.changed.wait_timeout_while(step, self.limit, |step| *step == Step::Working);
            if waited.is_ok_and(|(_, waited)| waited.timed_out()) {
                super::tell("rtprof: the work at exit takes too long, and is given up\n");
            }
        }

        /// Waits for the end of the process, on the helper thread.
        fn work(&self, work: Box<dyn FnOnce() + Send>) {
            struct AtEnd<'a>(&'a Exit);
            impl Drop for AtEnd<'_> {
                fn drop(&mut self) {
                    self.0.set(Step::Done);
                }
            }
            // Also when the work panics.
            let _done = AtEnd(self);
            let idle = self.changed.wait_while(self.step(), |step| *step == Step::Idle);
            drop(idle);
            work();
        }

        fn set(&self, step: Step) {
            *self.step() = step;
            self.changed.notify_all();
        }

        fn step(&self) -> MutexGuard<'_, Step> {
            self.step.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

#[cfg(not(rtprof_supported))]
mod imp {
    use std::io;
    use std::time::Duration;

    pub(super) fn at_exit(_: Duration, _: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn is_set() -> bool {
        false
    }

    pub(super) fn tell(message: &str) {
        let _ = std::io::Write::write_all(&mut io::stderr(), message.as_bytes());
    }
}
