//! The wait for a thread to end.

use core::fmt;
use std::thread::Result;

use super::Thread;
use crate::frame;
use crate::inner::wait::{Wait, WaitReason};

/// A handle to wait for a thread. When it is dropped, the thread runs on. As `std::thread::JoinHandle`.
pub struct JoinHandle<T>(pub(super) std::thread::JoinHandle<T>);

impl<T> JoinHandle<T> {
    /// The thread itself.
    #[must_use]
    pub fn thread(&self) -> &Thread {
        Thread::of(self.0.thread())
    }

    /// Waits for the thread to end, and returns its result, or the payload of its panic. The block profile counts a
    /// wait, unless the thread had finished.
    #[inline(always)]
    pub fn join(self) -> Result<T> {
        join(self.0.is_finished(), || self.0.join())
    }

    /// Whether the thread has run to its end, so that [`JoinHandle::join`] would not wait for long.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

/// Runs `join` as a wait, unless the thread is finished and only its last few instructions are left. Inlined into the
/// program's function, whose frame must be on the stack when it is captured.
#[inline(always)]
pub(super) fn join<R>(is_finished: bool, join: impl FnOnce() -> R) -> R {
    if is_finished {
        return join();
    }
    let wait = Wait::begin(WaitReason::Join);
    let result = join();
    wait.end_now();
    frame::keep();
    result
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(unix)]
impl<T> std::os::unix::thread::JoinHandleExt for JoinHandle<T> {
    fn as_pthread_t(&self) -> std::os::unix::thread::RawPthread {
        self.0.as_pthread_t()
    }

    fn into_pthread_t(self) -> std::os::unix::thread::RawPthread {
        self.0.into_pthread_t()
    }
}
