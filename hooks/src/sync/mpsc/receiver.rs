//! The receiving end.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shared::{Received, Shared};
use super::{IntoIter, Iter, RecvError, RecvTimeoutError, TryIter, TryRecvError};
use crate::frame;
use crate::inner::deadline;
use crate::inner::queue::Sleep;
use crate::inner::wait::{Wait, WaitReason};

/// A batch that has held more bytes than this is freed when it is empty.
const KEPT_BYTES: usize = 64 << 10;

/// The receiving end of a channel: one, used by one thread at a time.
///
/// ```compile_fail,E0277
/// fn shared_by_threads<T: Sync>(_: T) {}
/// shared_by_threads(rtprof_hooks::sync::mpsc::channel::<i32>().1);
/// ```
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// Messages that were taken out of the channel together; older than those in it. Not borrowed while the program's
    /// code runs.
    batch: RefCell<VecDeque<T>>,
}

impl<T> Receiver<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Self {
        Self { shared, batch: RefCell::default() }
    }

    /// Receives a message, and waits for it if there is none.
    ///
    /// # Errors
    /// If there is no message, and no sender that could send one.
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        if let Some(message) = self.next_of_batch() {
            return Ok(message);
        }
        // Without a deadline it does not time out.
        let received = self.recv_slow(None).map_err(|_| RecvError);
        frame::keep();
        received
    }

    /// Receives a message if there is one.
    ///
    /// # Errors
    /// If there is no message; the error shows whether there may be one later.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        if let Some(message) = self.next_of_batch() {
            return Ok(message);
        }
        // A check that does not contend with senders.
        if self.shared.is_idle() {
            return Err(TryRecvError::Empty);
        }
        let received = self.try_recv_slow();
        frame::keep();
        received
    }

    /// Receives a message, and waits for it no longer than `timeout`. A timeout of centuries never expires.
    ///
    /// # Errors
    /// If the wait timed out, or there is no sender that could send a message.
    #[inline]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        if let Some(message) = self.next_of_batch() {
            return Ok(message);
        }
        let received = self.recv_slow(Some(timeout));
        frame::keep();
        received
    }

    /// Iterates over the messages to come: waits for each, and ends when no sender is left.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter::new(self)
    }

    /// Iterates over the messages that have arrived: ends instead of waiting.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter::new(self)
    }

    #[inline]
    fn next_of_batch(&self) -> Option<T> {
        self.batch.borrow_mut().pop_front()
    }

    fn recv_slow(&self, timeout: Option<Duration>) -> Result<T, RecvTimeoutError> {
        match self.try_recv_slow() {
            Ok(message) => Ok(message),
            Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
            // A timeout of 0 is no wait, so no event.
            Err(TryRecvError::Empty) if timeout == Some(Duration::ZERO) => Err(RecvTimeoutError::Timeout),
            Err(TryRecvError::Empty) => self.wait(timeout.and_then(deadline::after)),
        }
    }

    /// Takes a message out of the channel, if there is one.
    fn try_recv_slow(&self) -> Result<T, TryRecvError> {
        if self.shared.is_idle() {
            return Err(TryRecvError::Empty);
        }
        if self.shared.is_over() {
            return Err(TryRecvError::Disconnected);
        }
        let mut batch = self.empty_batch();
        let mut state = self.shared.lock();
        let Received { message, unblocks } = self.shared.take(&mut state, &mut batch);
        let has_senders = state.has_senders();
        drop(state);
        if unblocks {
            self.shared.wake_sender();
        }
        message.ok_or(if has_senders { TryRecvError::Empty } else { TryRecvError::Disconnected })
    }

    /// The batch, which is empty, without the memory of a large backlog: the senders will use it next.
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
            // Usually one round. A sender that is about to wake this thread may be late because of the deadline, and
            // wake the next wait instead.
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
        taken.message.ok_or(if has_senders {
            RecvTimeoutError::Timeout
        } else {
            RecvTimeoutError::Disconnected
        })
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Senders see this before any message is dropped, because a drop may take long, panic, or send.
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

// As std's: a panic leaves no message half received.
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

#[cfg(test)]
mod tests {
    use super::super::channel;

    #[test]
    fn the_memory_of_a_large_backlog_is_given_back() {
        let (sender, receiver) = channel();
        let batch = || receiver.batch.borrow().capacity();
        let through = |count: usize| {
            (0..count).for_each(|number| sender.send(number).expect("the receiver is there"));
            assert!(receiver.try_iter().eq(0..count));
        };
        through(100_000);
        assert!(batch() >= 100_000, "it is the receiver's, as long as messages are in it");
        through(1);
        assert_eq!(batch(), 0, "before it becomes the senders'");
        through(1000);
        through(1000);
        let kept = batch();
        assert!(kept >= 1000, "little memory goes to and fro");
        through(1000);
        assert!(batch() >= 1000);
    }
}
