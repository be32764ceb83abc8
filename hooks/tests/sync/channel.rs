//! Sending and receiving, bounds, timeouts.

use std::time::{Duration, Instant};

use rtprof_hooks::sync::mpsc::{
    self, Receiver, RecvError, RecvTimeoutError, SendError, Sender, SyncSender, TryRecvError, TrySendError,
};
use rtprof_runtime::goroutine::wait_reason::WaitReason::{ChanReceive, ChanSend};

use crate::watched::{Watched, a_moment, start, until};

/// A sender of either kind.
pub(crate) enum Sends<T> {
    Freely(Sender<T>),
    Bounded(SyncSender<T>),
}

impl<T> Sends<T> {
    pub(crate) fn send(&self, message: T) -> Result<(), SendError<T>> {
        match self {
            Self::Freely(sender) => sender.send(message),
            Self::Bounded(sender) => sender.send(message),
        }
    }
}

impl<T> Clone for Sends<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Freely(sender) => Self::Freely(sender.clone()),
            Self::Bounded(sender) => Self::Bounded(sender.clone()),
        }
    }
}

/// Channels without a bound (`None`) and with several.
pub(crate) const BOUNDS: [Option<usize>; 5] = [None, Some(0), Some(1), Some(3), Some(usize::MAX)];

pub(crate) fn open<T>(bound: Option<usize>) -> (Sends<T>, Receiver<T>) {
    match bound {
        None => {
            let (sender, receiver) = mpsc::channel();
            (Sends::Freely(sender), receiver)
        }
        Some(bound) => {
            let (sender, receiver) = mpsc::sync_channel(bound);
            (Sends::Bounded(sender), receiver)
        }
    }
}

#[test]
fn messages_arrive_in_order() {
    for bound in BOUNDS {
        let (sender, receiver) = open(bound);
        let thread = start(move || (0..1000).for_each(|number| sender.send(number).unwrap()));
        for number in 0..1000 {
            assert_eq!(receiver.recv(), Ok(number), "{bound:?}");
        }
        assert_eq!(receiver.recv(), Err(RecvError));
        thread.end();
    }
}

#[test]
fn a_receiver_waits_for_a_message() {
    for bound in BOUNDS {
        let (sender, receiver) = open(bound);
        let thread = start(move || receiver.recv());
        thread.until_it_waits(ChanReceive);
        sender.send(String::from("hello")).unwrap();
        assert_eq!(thread.end(), Ok(String::from("hello")));
    }
}

#[test]
fn messages_of_no_size_and_of_much_arrive() {
    let (sender, receiver) = mpsc::channel();
    (0..10).for_each(|_| sender.send(()).unwrap());
    assert_eq!(receiver.try_iter().count(), 10);
    let (sender, receiver) = mpsc::sync_channel(2);
    sender.send([7_u64; 2000]).unwrap();
    sender.send([8; 2000]).unwrap();
    assert_eq!(receiver.recv().unwrap()[1999], 7);
    assert_eq!(receiver.recv().unwrap()[0], 8);
}

#[test]
fn try_recv_tells_empty_from_closed() {
    for bound in [None, Some(2)] {
        let (sender, receiver) = open(bound);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        sender.send(1).unwrap();
        sender.send(2).unwrap();
        assert_eq!(receiver.try_recv(), Ok(1));
        drop(sender);
        assert_eq!(receiver.try_recv(), Ok(2), "what was sent before the end is received");
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    }
}

#[test]
fn a_full_channel_gives_the_message_back_or_makes_wait() {
    let (sender, receiver) = mpsc::sync_channel(2);
    sender.try_send(1).unwrap();
    sender.send(2).unwrap();
    assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
    let thread = start({
        let sender = sender.clone();
        move || sender.send(4)
    });
    thread.until_it_waits(ChanSend);
    assert_eq!(sender.try_send(5), Err(TrySendError::Full(5)));
    assert_eq!(receiver.recv(), Ok(1));
    assert_eq!(thread.end(), Ok(()));
    assert_eq!(sender.try_send(6), Err(TrySendError::Full(6)), "the one that waited had the room");
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [2, 4]);
    sender.try_send(7).unwrap();
}

#[test]
fn senders_that_wait_are_served_in_order() {
    for bound in [0, 1, 3] {
        let (sender, receiver) = mpsc::sync_channel(bound);
        (0..bound).for_each(|number| sender.send(number).unwrap());
        let threads = [0, 1, 2, 3].map(|number| {
            let sender = sender.clone();
            let thread = start(move || sender.send(bound + number));
            thread.until_it_waits(ChanSend);
            thread
        });
        for number in 0..4 {
            assert!(threads[number..].iter().all(|thread| !thread.has_ended()));
            assert_eq!(receiver.recv(), Ok(number));
            until("the sender's end", || threads[number].has_ended());
        }
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), (4..4 + bound).collect::<Vec<_>>());
        assert!(threads.map(Watched::end).iter().all(Result::is_ok));
    }
}

#[test]
fn at_a_rendezvous_each_waits_for_the_other() {
    let (sender, receiver) = mpsc::sync_channel(0);
    assert_eq!(sender.try_send(1), Err(TrySendError::Full(1)), "nobody asks for it");
    let sends = start({
        let sender = sender.clone();
        move || sender.send(2)
    });
    sends.until_it_waits(ChanSend);
    a_moment();
    assert!(!sends.has_ended());
    assert_eq!(receiver.try_recv(), Ok(2), "somebody offers it");
    assert_eq!(sends.end(), Ok(()));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));

    let receives = start(move || (receiver.recv(), receiver));
    receives.until_it_waits(ChanReceive);
    assert_eq!(sender.try_send(3), Ok(()), "somebody asks for it");
    assert_eq!(sender.try_send(4), Err(TrySendError::Full(4)), "for one");
    let (received, receiver) = receives.end();
    assert_eq!(received, Ok(3));

    let receives = start(move || (receiver.recv(), receiver.recv()));
    receives.until_it_waits(ChanReceive);
    sender.send(5).unwrap();
    sender.send(6).unwrap();
    assert_eq!(receives.end(), (Ok(5), Ok(6)));
}

#[test]
fn at_a_rendezvous_a_receiver_may_give_up() {
    let (sender, receiver) = mpsc::sync_channel(0);
    assert_eq!(receiver.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
    assert_eq!(sender.try_send(1), Err(TrySendError::Full(1)), "nobody asks any more");
    let sends = start(move || sender.send(2));
    assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(2));
    assert_eq!(sends.end(), Ok(()));
}

#[test]
fn a_receive_gives_up_in_time() {
    for bound in BOUNDS {
        let (sender, receiver) = open(bound);
        for timeout in [Duration::ZERO, Duration::from_micros(1), Duration::from_millis(10)] {
            let started = Instant::now();
            assert_eq!(receiver.recv_timeout(timeout), Err(RecvTimeoutError::Timeout));
            assert!(started.elapsed() >= timeout);
        }
        let thread = start(move || (sender.send(1), sender));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(1));
        let (_, sender) = thread.end();
        drop(sender);
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected));
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Disconnected));
    }
}

#[test]
fn a_message_that_is_there_is_received_whatever_the_timeout() {
    for timeout in [Duration::ZERO, Duration::from_millis(1), Duration::MAX] {
        let (sender, receiver) = mpsc::channel();
        sender.send(1).unwrap();
        assert_eq!(receiver.recv_timeout(timeout), Ok(1));
    }
}

#[test]
fn a_receive_may_wait_for_centuries() {
    for timeout in [Duration::MAX, Duration::from_secs(1 << 60), Duration::from_secs(1 << 33)] {
        let (sender, receiver) = mpsc::channel();
        let thread = start(move || receiver.recv_timeout(timeout));
        thread.until_it_waits(ChanReceive);
        sender.send(1).unwrap();
        assert_eq!(thread.end(), Ok(1));
    }
}

#[test]
fn iterators_end_with_the_messages() {
    for bound in BOUNDS {
        let (sender, receiver) = open(bound);
        assert_eq!(receiver.try_iter().count(), 0);
        let thread = start(move || {
            let sum: i32 = receiver.iter().take(3).sum();
            (sum, receiver.into_iter().sum::<i32>())
        });
        (1..=10).for_each(|number| sender.send(number).unwrap());
        drop(sender);
        assert_eq!(thread.end(), (6, 49));
    }
}

#[test]
fn senders_clone_and_move() {
    for bound in BOUNDS {
        let (sender, receiver) = open(bound);
        let threads = [10, 20, 30].map(|number| {
            let sender = sender.clone();
            start(move || {
                let again = sender.clone();
                drop(sender);
                again.send(number).unwrap();
            })
        });
        drop(sender);
        let mut received: Vec<_> = receiver.iter().collect();
        received.sort();
        assert_eq!(received, [10, 20, 30], "and then none is left");
        threads.into_iter().for_each(Watched::end);
    }
}

/// A receiver of a receiver of a receiver: an end may be a message.
#[test]
fn ends_travel_through_channels() {
    let (outer, receivers) = mpsc::channel();
    let thread = start(move || {
        let inner: Receiver<i32> = receivers.recv().unwrap();
        inner.iter().sum::<i32>()
    });
    let (sender, inner) = mpsc::channel();
    sender.send(1).unwrap();
    sender.send(2).unwrap();
    sender.send(3).unwrap();
    // Part of a batch is with it.
    assert_eq!(inner.recv(), Ok(1));
    outer.send(inner).unwrap();
    sender.send(4).unwrap();
    drop(sender);
    assert_eq!(thread.end(), 9);
}
