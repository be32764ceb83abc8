//! The sending ends.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use super::shared::Shared;
use super::{SendError, TrySendError};
use crate::frame;
use crate::inner::primitive::Ordering;

/// A counted reference to the channel. The channel is closed when the last one is dropped.
pub(super) struct Handle<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Handle<T> {
    /// The handle of the first sender, which the channel counts from the beginning.
    pub(super) fn first(shared: Arc<Shared<T>>) -> Self {
        Self { shared }
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        // First the `Arc`, which aborts the program before its count overflows.
        let shared = self.shared.clone();
        // Relaxed: this sender stays, so the count cannot reach 0 during the call.
        shared.senders.fetch_add(1, Ordering::Relaxed);
        Self { shared }
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // AcqRel: the last sender sees what the other senders did.
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.close();
        }
    }
}

/// The sending end of a [`channel`](super::channel). Clones send to the same receiver.
///
/// Threads may share it, if its messages may go to other threads:
///
/// ```compile_fail,E0277
/// fn used_by_threads<T: Send>(_: T) {}
/// used_by_threads(rtprof_hooks::sync::mpsc::channel::<std::rc::Rc<i32>>().0);
/// ```
pub struct Sender<T> {
    handle: Handle<T>,
}

/// The sending end of a [`sync_channel`](super::sync_channel). Clones send to the same receiver.
pub struct SyncSender<T> {
    handle: Handle<T>,
}

impl<T> SyncSender<T> {
    /// Sends a message if there is room for it; with a bound of 0, if a receiver waits.
    ///
    /// # Errors
    /// The error returns the message, and says whether there was no room or no receiver.
    #[inline]
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let sent = self.handle.shared.try_send(message);
        frame::keep();
        sent
    }
}

/// Implements what both senders have.
macro_rules! sender {
    ($sender:ident, #[doc = $sends:literal] #[doc = $errors:literal]) => {
        impl<T> $sender<T> {
            pub(super) fn new(handle: Handle<T>) -> Self {
                Self { handle }
            }

            #[doc = $sends]
            ///
            /// # Errors
            #[doc = $errors]
            #[inline]
            pub fn send(&self, message: T) -> Result<(), SendError<T>> {
                let sent = self.handle.shared.send(message);
                frame::keep();
                sent
            }
        }

        impl<T> Clone for $sender<T> {
            fn clone(&self) -> Self {
                Self::new(self.handle.clone())
            }
        }

        impl<T> fmt::Debug for $sender<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($sender)).finish_non_exhaustive()
            }
        }

        // As std's: a panic leaves no message half sent.
        impl<T> UnwindSafe for $sender<T> {}
        impl<T> RefUnwindSafe for $sender<T> {}
    };
}

sender!(
    Sender,
    /// Sends a message. A message that was sent may never be received.
    /// The error returns the message if the receiver is gone.
);
sender!(
    SyncSender,
    /// Sends a message, and waits for room if there is none. With a bound of 0 the receiver has it on return; otherwise it may never be received.
    /// The error returns the message if the receiver is gone, or is dropped while this thread waits.
);
