//! Channels from many senders to one receiver, with the interface and the guarantees of [`std::sync::mpsc`].
//!
//! ```
//! # use rtprof_hooks as rtprof;
//! use rtprof::sync::mpsc;
//!
//! let (sender, receiver) = mpsc::sync_channel(10);
//! std::thread::spawn(move || (0..100).for_each(|number| sender.send(number).unwrap()));
//! assert_eq!(receiver.iter().sum::<i32>(), 4950);
//! ```
//!
//! # What is recorded
//! A receiver that waits for a message is one event of the block profile (Go: `chan receive`), and a sender that waits
//! for room (`chan send`). Senders of a busy channel contend for its mutex: those waits, and the unlocks that end them,
//! are in the block and mutex profiles as for any other mutex, with the stack that called `send`.
//!
//! # How
//! Messages are in a queue behind a mutex. The receiver of an unbounded channel takes all of them at once, so that it
//! contends with the senders once per batch. No thread is woken while the mutex is held, and only threads that sleep
//! are woken. The program's code (`Drop` of a message) never runs with the mutex held, so it may use the channel.

mod iter;
mod receiver;
mod sender;
mod shared;

pub use iter::{IntoIter, Iter, TryIter};
pub use receiver::Receiver;
pub use sender::{Sender, SyncSender};
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

use shared::{Shared, UNBOUNDED};

/// A channel without a bound: sending never waits, except for another sender.
///
/// Memory grows with the messages that were sent and not received. The memory of a large backlog is freed when it has
/// been received.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (handle, shared) = Shared::open(UNBOUNDED);
    (Sender::new(handle), Receiver::new(shared))
}

/// A channel that holds up to `bound` messages. Senders of further messages wait for room, in the order of arrival.
/// With a bound of 0 each message is handed to a waiting receiver (a *rendezvous*), and sending waits for one.
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let (handle, shared) = Shared::open(bound);
    (SyncSender::new(handle), Receiver::new(shared))
}
