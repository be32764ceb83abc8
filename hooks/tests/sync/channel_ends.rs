//! Ends that go: who learns it, and what becomes of the messages.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rtprof_hooks::sync::mpsc::{
    self, Receiver, RecvError, SendError, Sender, SyncSender, TryRecvError, TrySendError,
};
use rtprof_runtime::goroutine::wait_reason::WaitReason::{ChanReceive, ChanSend};

use crate::channel::{BOUNDS, open};
use crate::watched::{Watched, start};

/// A message that is counted when it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn without_a_receiver_the_message_comes_back() {
    for bound in BOUNDS {
        let (sender, receiver) = open(bound);
        drop(receiver);
        let SendError(message) = sender.send(String::from("back")).unwrap_err();
        assert_eq!(message, "back", "{bound:?}");
        assert!(sender.clone().send(message).is_err());
    }
    for bound in [0, 1] {
        let (sender, receiver) = mpsc::sync_channel(bound);
        drop(receiver);
        assert_eq!(sender.try_send(7), Err(TrySendError::Disconnected(7)));
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    sender.send(1).unwrap();
    drop(receiver);
    assert_eq!(sender.try_send(7), Err(TrySendError::Disconnected(7)), "not that it is full");
}

#[test]
fn senders_that_wait_learn_that_the_receiver_goes() {
    for bound in [0, 2] {
        let (sender, receiver) = mpsc::sync_channel(bound);
        (0..bound).for_each(|number| sender.send(Box::new(number)).unwrap());
        let threads = [(); 3].map(|()| {
            let sender = sender.clone();
            let thread = start(move || sender.send(Box::new(9)));
            thread.until_it_waits(ChanSend);
            thread
        });
        drop(receiver);
        assert_eq!(threads.map(Watched::end), [(); 3].map(|()| Err(SendError(Box::new(9)))));
    }
}

#[test]
fn a_receiver_that_waits_learns_that_the_last_sender_goes() {
    for bound in BOUNDS {
        let (sender, receiver) = open::<i32>(bound);
        let other = sender.clone();
        let thread = start(move || receiver.recv());
        thread.until_it_waits(ChanReceive);
        drop(sender);
        assert!(!thread.has_ended(), "one is left");
        drop(other);
        assert_eq!(thread.end(), Err(RecvError));
    }
}

#[test]
fn a_panic_drops_its_end_as_anything_does() {
    let (sender, receiver) = mpsc::channel::<i32>();
    let panics = start(move || {
        sender.send(1).unwrap();
        panic!("on purpose");
    });
    assert_eq!((receiver.recv(), receiver.recv()), (Ok(1), Err(RecvError)));
    assert!(panics.result().is_err());

    let (sender, receiver) = mpsc::sync_channel(0);
    let panics = start(move || {
        let first: i32 = receiver.recv().unwrap();
        assert_eq!(first, 2, "on purpose");
    });
    sender.send(1).unwrap();
    assert_eq!(sender.send(2), Err(SendError(2)));
    assert!(panics.result().is_err());
}

#[test]
fn what_was_not_received_is_dropped_with_the_receiver() {
    for bound in [None, Some(10)] {
        let count = Arc::new(AtomicUsize::new(0));
        let dropped = || count.load(Relaxed);
        let (sender, receiver) = open(bound);
        (0..5).for_each(|_| assert!(sender.send(Counted(count.clone())).is_ok()));
        // The others of a batch are with the receiver now; two more are in the channel.
        drop(receiver.recv());
        (0..2).for_each(|_| assert!(sender.send(Counted(count.clone())).is_ok()));
        assert_eq!(dropped(), 1);
        drop(receiver);
        assert_eq!(dropped(), 7, "{bound:?}: the sender does not keep them");
        drop(sender.send(Counted(count.clone())));
        assert_eq!(dropped(), 8);
        drop(sender);
        assert_eq!(dropped(), 8);
    }
}

#[test]
fn what_was_sent_is_kept_for_the_receiver() {
    let count = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = mpsc::channel();
    (0..3).for_each(|_| assert!(sender.send(Counted(count.clone())).is_ok()));
    drop(sender);
    assert_eq!(count.load(Relaxed), 0);
    drop(receiver.recv());
    assert_eq!(count.load(Relaxed), 1);
    drop(receiver);
    assert_eq!(count.load(Relaxed), 3);
}

#[test]
fn a_blocked_message_is_dropped_by_its_sender() {
    let count = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = mpsc::sync_channel(0);
    let thread = start({
        let message = Counted(count.clone());
        move || sender.send(message).is_err()
    });
    thread.until_it_waits(ChanSend);
    drop(receiver);
    assert!(thread.end());
    assert_eq!(count.load(Relaxed), 1);
}

/// A message that uses its own channel when it is dropped.
struct Meddler {
    sender: Option<SyncSender<Meddler>>,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Meddler {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Relaxed);
        if let Some(sender) = self.sender.take() {
            let another = Meddler { sender: None, dropped: self.dropped.clone() };
            // The receiver is about to go or has gone; what comes back is dropped here.
            assert!(sender.try_send(another).is_err());
        }
    }
}

#[test]
fn a_message_may_use_its_channel_when_it_is_dropped() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = mpsc::sync_channel(3);
    for _ in 0..3 {
        let message = Meddler { sender: Some(sender.clone()), dropped: dropped.clone() };
        assert!(sender.send(message).is_ok());
    }
    drop(receiver);
    assert_eq!(dropped.load(Relaxed), 6);
}

/// The last sender is itself a message.
#[test]
fn a_message_may_be_the_last_sender() {
    struct Holds(#[expect(dead_code, reason = "held, not used")] Sender<Holds>);
    let (sender, receiver) = mpsc::channel();
    sender.send(Holds(sender.clone())).unwrap();
    sender.send(Holds(sender.clone())).unwrap();
    drop(sender);
    assert!(matches!(receiver.try_recv(), Ok(Holds(_))));
    assert!(matches!(receiver.recv(), Ok(Holds(_))));
    assert!(matches!(receiver.try_recv(), Err(TryRecvError::Disconnected)));

    let (sender, receiver) = mpsc::channel();
    sender.send(Holds(sender.clone())).unwrap();
    drop(sender);
    drop(receiver);
}

/// Senders that wait must not depend on what `Drop` of a message does.
#[test]
fn a_message_may_panic_when_it_is_dropped() {
    struct Panics(bool);
    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(!self.0, "on purpose");
        }
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    assert!(sender.send(Panics(true)).is_ok());
    let waits = start({
        let sender = sender.clone();
        move || sender.send(Panics(false)).is_err()
    });
    waits.until_it_waits(ChanSend);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(receiver))).is_err());
    assert!(waits.end());
    assert!(sender.send(Panics(false)).is_err());
}

/// A channel whose ends are both gone is freed with all that was in it, whichever went first.
#[test]
fn nothing_outlives_both_ends() {
    for bound in [None, Some(4)] {
        for sender_first in [false, true] {
            let count = Arc::new(AtomicUsize::new(0));
            let (sender, receiver): (_, Receiver<_>) = open(bound);
            (0..4).for_each(|_| assert!(sender.send(Counted(count.clone())).is_ok()));
            if sender_first {
                drop(sender);
                drop(receiver);
            } else {
                drop(receiver);
                drop(sender);
            }
            assert_eq!((count.load(Relaxed), Arc::strong_count(&count)), (4, 1));
        }
    }
}
