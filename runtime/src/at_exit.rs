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
/// `limit` has passed. A process that ends by a signal, `_exit` or `abort` runs nothing, nor does a forked child.
///
/// # Errors
/// This process has such work already; the system refuses a thread or the handler, or is not supported.
pub fn at_exit(limit: Duration, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    imp::at_exit(limit, work)
}

#[cfg(rtprof_supported)]
mod imp {
    use core::sync::atomic::{AtomicPtr, Ordering};
    use std::io::{self, Write};
    use std::ptr;
    use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
    use std::time::Duration;

    use crate::helper_thread;
    use crate::hook::{self, own_process};

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

    pub(super) fn at_exit(limit: Duration, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let process = own_process();
        let before = EXIT.load(Ordering::Acquire);
        if current().is_some_and(|exit| exit.process == process) {
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
        // Without its thread the work counts as done, and the process ends at once.
        helper_thread::spawn(c"rtprof-exit", Box::new(move || exit.work(work)))
            .inspect_err(|_| exit.set(Step::Done))?;
        // SAFETY: the handler takes nothing, and neither unwinds nor exits.
        match unsafe { libc::atexit(exiting) } {
            0 => Ok(()),
            _ => Err(io::Error::other("the system has no place for a handler of atexit")),
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
                let message = format!("rtprof: gave up the work at exit after {:?}\n", self.limit);
                let _ = io::stderr().write_all(message.as_bytes());
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
}
