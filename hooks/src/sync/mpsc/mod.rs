//! Channels from many senders to one receiver, with the interface and the promises of [`std::sync::mpsc`].
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
//! for room (`chan send`). Senders of a busy channel meet at its mutex: who waits there, and who makes them wait, is
//! in the block and mutex profiles as for any other mutex, with the stack that called `send`.
//!
//! # How
//! Messages are in a queue behind a mutex. The receiver of an unbounded channel takes all of them at once, so that it
//! meets the senders once a batch. Nobody is woken while the mutex is held, and nobody who is not asleep. The program's
//! code (`Drop` of a message) never runs with the mutex held, so it may use the channel.

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
/// Memory grows with the messages that were sent and not received; that of a large backlog is given back when it was
/// received.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (handle, shared) = Shared::open(UNBOUNDED);
    (Sender::new(handle), Receiver::new(shared))
}

/// A channel that holds up to `bound` messages: who sends one more waits until there is room, in the order of their
/// coming. With a bound of 0 each message is handed to a receiver that asks for it (a *rendezvous*): sending waits for
/// one.
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let (handle, shared) = Shared::open(bound);
    (SyncSender::new(handle), Receiver::new(shared))
}
