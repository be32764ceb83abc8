//! Channels under many threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rtprof_hooks::sync::mpsc::{self, Receiver, RecvTimeoutError, SendError, TryRecvError, TrySendError};

use crate::channel::{BOUNDS, Sends, open};
use crate::watched::{Watched, start, stress};

const SENDERS: usize = 4;

/// A fifth of the time of a stress test for each bound.
fn part() -> Duration {
    stress() / BOUNDS.len() as u32
}

/// Receives in all ways until no sender is left; checks that each sender's messages come whole and in order.
fn receive_all(receiver: &Receiver<(usize, usize)>) -> [usize; SENDERS] {
    let mut next = [0; SENDERS];
    for turn in 0_u64.. {
        let received = match turn % 3 {
            0 => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            1 => receiver.recv_timeout(Duration::from_micros(turn % 40)),
            _ => receiver.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            }),
        };
        match received {
            Ok((sender, number)) => {
                assert_eq!(number, next[sender], "of sender {sender}");
                next[sender] += 1;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    next
}

#[test]
fn every_message_arrives_once_and_in_order() {
    for bound in BOUNDS {
        let (sender, receiver) = open(bound);
        let receives = start(move || receive_all(&receiver));
        let ends = Instant::now() + part();
        let sends: Vec<_> = (0..SENDERS)
            .map(|number| {
                let sender = sender.clone();
                start(move || {
                    let mut sent = 0;
                    while Instant::now() < ends {
                        for _ in 0..20 {
                            send(&sender, (number, sent));
                            sent += 1;
                        }
                        if number == 0 {
                            // So that the receiver sleeps now and then.
                            std::thread::sleep(Duration::from_micros(50));
                        }
                    }
                    sent
                })
            })
            .collect();
        drop(sender);
        let sent: Vec<_> = sends.into_iter().map(Watched::end).collect();
        assert_eq!(receives.end().to_vec(), sent, "{bound:?}");
    }
}

/// Waits for room in the one way or the other.
fn send(sender: &Sends<(usize, usize)>, message: (usize, usize)) {
    if let Sends::Bounded(sender) = sender
        && message.1.is_multiple_of(3)
    {
        while let Err(TrySendError::Full(_)) = sender.try_send(message) {
            std::thread::yield_now();
        }
    } else {
        sender.send(message).unwrap();
    }
}

/// A message that counts how many there are.
struct Live(Arc<AtomicUsize>);

impl Live {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count.clone())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The receiver goes at any moment: every message is received, comes back, or is dropped; once.
#[test]
fn the_receiver_may_go_at_any_moment() {
    for bound in BOUNDS {
        let ends = Instant::now() + part();
        let mut round = 0;
        while Instant::now() < ends || round < 4 {
            let live = Arc::new(AtomicUsize::new(0));
            let (sender, receiver) = open(bound);
            let sends = [(); 2].map(|()| {
                let (sender, live) = (sender.clone(), live.clone());
                std::thread::spawn(move || while let Ok(()) = sender.send(Live::new(&live)) {})
            });
            for _ in 0..round % 50 {
                receiver.recv().unwrap();
            }
            drop(receiver);
            drop(sender);
            sends.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(live.load(Relaxed), 0, "{bound:?}");
            round += 1;
        }
    }
}

/// The last sender goes while the receiver is about to sleep, or has slept: it never misses that.
#[test]
fn the_last_sender_may_go_at_any_moment() {
    for bound in BOUNDS {
        let (senders, threads) = mpsc::channel::<Sends<usize>>();
        let goes = start(move || {
            for (number, sender) in threads.iter().enumerate() {
                for _ in 0..number % 3 {
                    sender.send(number).unwrap();
                }
                for _ in 0..number % 100 {
                    std::hint::spin_loop();
                }
            }
        });
        let ends = Instant::now() + part();
        let mut number = 0;
        while Instant::now() < ends {
            let (sender, receiver) = open(bound);
            senders.send(sender).unwrap();
            assert_eq!(receiver.iter().count(), number % 3, "{bound:?}");
            number += 1;
        }
        drop(senders);
        goes.end();
    }
}

/// Timeouts so short that they meet the message: it is received then or later, never lost, and its sender never
/// forgotten.
#[test]
fn a_timeout_may_meet_the_message() {
    for bound in BOUNDS {
        let (sender, receiver) = open(bound);
        let (back, may_go_on) = mpsc::channel();
        let ends = Instant::now() + part();
        let receives = start(move || {
            let (mut received, mut timeouts) = (0, 0_u64);
            loop {
                match receiver.recv_timeout(Duration::from_nanos(timeouts % 30_000)) {
                    Ok(number) => {
                        assert_eq!(number, received);
                        received += 1;
                        back.send(()).unwrap();
                    }
                    Err(RecvTimeoutError::Timeout) => timeouts += 1,
                    Err(RecvTimeoutError::Disconnected) => return received,
                }
            }
        });
        let mut sent = 0;
        while Instant::now() < ends {
            sender.send(sent).unwrap();
            may_go_on.recv().unwrap();
            sent += 1;
        }
        drop(sender);
        assert_eq!(receives.end(), sent);
    }
}

/// Every handle of many is dropped by another thread, while others clone.
#[test]
fn senders_come_and_go() {
    let ends = Instant::now() + stress();
    while Instant::now() < ends {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..SENDERS {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for _ in 0..100 {
                    if let Err(SendError(())) = sender.clone().send(()) {
                        unreachable!("the receiver stays");
                    }
                }
            });
        }
        drop(sender);
        assert_eq!(receiver.iter().count(), SENDERS * 100);
    }
}
