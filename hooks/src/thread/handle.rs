//! The handle of a thread.

use core::fmt;
use core::ops::Deref;

use super::parked;

/// The handle of a thread, from [`current`] or [`JoinHandle::thread`](super::JoinHandle::thread). It replaces
/// `std::thread::Thread`: it has the same methods, and [`From`] converts each of the two types to the other.
///
/// In addition a trace shows which thread [`unpark`](Thread::unpark) has woken, and where it was called. std's `unpark`
/// wakes the thread as well, but then the trace does not show the waker.
#[derive(Clone)]
#[repr(transparent)]
pub struct Thread(std::thread::Thread);

/// The handle of the current thread. As `std::thread::current`.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "that is what is asked for")]
pub fn current() -> Thread {
    Thread(std::thread::current())
}

impl Thread {
    pub(super) fn of(thread: &std::thread::Thread) -> &Self {
        // SAFETY: `Thread` is a transparent wrapper of std's type, and the reference has the same lifetime.
        unsafe { &*(&raw const *thread).cast::<Self>() }
    }

    /// Wakes the thread if it is [parked](super::park), or lets its next `park` return at once.
    #[inline]
    pub fn unpark(&self) {
        parked::wake(|| self.0.id());
        self.0.unpark();
    }
}

impl Deref for Thread {
    type Target = std::thread::Thread;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl From<std::thread::Thread> for Thread {
    fn from(thread: std::thread::Thread) -> Self {
        Self(thread)
    }
}

impl From<Thread> for std::thread::Thread {
    fn from(thread: Thread) -> Self {
        thread.0
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
