//! The receiving end.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shared::{Shared, Taken};
use super::{IntoIter, Iter, RecvError, RecvTimeoutError, TryIter, TryRecvError};
use crate::deadline;
use crate::queue::Sleep;
use crate::wait::{Wait, WaitReason};

/// A batch that has held more bytes than this is given back when it is empty.
const KEPT_BYTES: usize = 64 << 10;

/// The receiving end of a channel. There is one, for one thread at a time.
///
/// ```compile_fail,E0277
/// fn shared_by_threads<T: Sync>(_: T) {}
/// shared_by_threads(rtprof_hooks::sync::mpsc::channel::<i32>().1);
/// ```
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// Messages that were taken out of the channel together; older than those in it. Borrowed only in here, never
    /// while the program's code runs.
    batch: RefCell<VecDeque<T>>,
}

impl<T> Receiver<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Self {
        Self { shared, batch: RefCell::default() }
    }

    /// Receives a message, and waits for it if there is none.
    ///
    /// # Errors
    /// If there is none, and no sender that could send one.
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        match self.try_recv() {
            Ok(message) => Ok(message),
            Err(TryRecvError::Disconnected) => Err(RecvError),
            // Without a deadline it does not time out.
            Err(TryRecvError::Empty) => self.wait(None).map_err(|_| RecvError),
        }
    }

    /// Receives a message if there is one.
    ///
    /// # Errors
    /// If there is none; whether there may be one later.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        if let Some(message) = self.batch.borrow_mut().pop_front() {
            return Ok(message);
        }
        // A look that disturbs no sender. Relaxed: what was sent before, as far as this thread can know, is seen.
        if self.shared.is_idle() {
            return Err(TryRecvError::Empty);
        }
        self.try_take()
    }

    /// Receives a message, and waits for it no longer than `timeout`; one of centuries never ends.
    ///
    /// # Errors
    /// If the time was over first, or there is no sender that could send one.
    #[inline]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        match self.try_recv() {
            Ok(message) => Ok(message),
            Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
            // No wait, so no event.
            Err(TryRecvError::Empty) if timeout.is_zero() => Err(RecvTimeoutError::Timeout),
            Err(TryRecvError::Empty) => self.wait(deadline::after(timeout)),
        }
    }

    /// The messages to come: waits for each, and ends when no sender is left.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter::new(self)
    }

    /// The messages that are there: ends instead of waiting.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter::new(self)
    }

    fn try_take(&self) -> Result<T, TryRecvError> {
        if self.shared.is_over() {
            return Err(TryRecvError::Disconnected);
        }
        let mut batch = self.empty_batch();
        let mut state = self.shared.lock();
        let Taken { message, unblocks } = self.shared.take(&mut state, &mut batch);
        let has_senders = state.has_senders();
        drop(state);
        if unblocks {
            self.shared.wake_sender();
        }
        message.ok_or(if has_senders { TryRecvError::Empty } else { TryRecvError::Disconnected })
    }

    /// The batch, which is empty, with no more memory than is worth keeping: it will be the senders' next.
    fn empty_batch(&self) -> std::cell::RefMut<'_, VecDeque<T>> {
        let mut batch = self.batch.borrow_mut();
        if batch.capacity().saturating_mul(size_of::<T>()) > KEPT_BYTES {
            *batch = VecDeque::new();
        }
        batch
    }

    #[cold]
    fn wait(&self, deadline: Option<Instant>) -> Result<T, RecvTimeoutError> {
        let mut wait = Wait::prepare(WaitReason::ChanReceive);
        let mut batch = self.empty_batch();
        let mut sleep = Sleep::Refused;
        let mut state = self.shared.lock();
        let taken = loop {
            let taken = self.shared.take(&mut state, &mut batch);
            if taken.message.is_some() || !state.has_senders() || sleep == Sleep::TimedOut {
                break taken;
            }
            state.set_receiver_waiting(true);
            // Mostly once. Who is about to wake it may find it gone because of its deadline, and wake the next wait
            // instead.
            sleep = self.shared.sleep_as_receiver(state, &mut wait, deadline);
            state = self.shared.lock();
        };
        state.set_receiver_waiting(false);
        let has_senders = state.has_senders();
        drop(state);
        drop(batch);
        if taken.unblocks {
            self.shared.wake_sender();
        }
        if sleep == Sleep::TimedOut {
            wait.end_now();
        } else {
            wait.end();
        }
        taken.message.ok_or(if has_senders { RecvTimeoutError::Timeout } else { RecvTimeoutError::Disconnected })
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Senders learn it before any message is dropped, which may take long, panic, or send.
        let messages = self.shared.abandon();
        drop(self.batch.take());
        drop(messages);
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter::new(self)
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

// As that of std: a panic leaves no message half received.
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}
