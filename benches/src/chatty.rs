//! Programs whose threads talk a lot: through channels that hardly ever hold a message, and through a lock that is
//! hardly ever free.

use std::hint::black_box;
use std::sync::mpsc;
use std::sync::{Barrier, Mutex};
use std::thread::scope;

use crate::processor::used_by_all;
use crate::work::steps;

/// Pairs of a sender and a receiver.
const PAIRS: usize = 2;
/// Threads that share a lock.
const SHARERS: usize = 4;
/// Steps of work before a message is sent: on two cores of 2.5 GHz the pairs send about 200,000 messages a second.
const BEFORE: usize = 4_000;
/// Steps of work with a message that has come.
const AFTER: usize = 500;
/// Steps of work with the lock held, and without.
const INSIDE: usize = 500;
const OUTSIDE: usize = 1_500;

/// What the threads talk through.
#[derive(Clone, Copy, Debug)]
pub enum Chat {
    /// `std::sync::mpsc::channel`
    StdChannel,
    /// `crossbeam_channel::unbounded`
    CrossbeamChannel,
    /// `std::sync::Mutex`
    StdMutex,
}

impl Chat {
    /// Returns the chat that a request names.
    ///
    /// # Panics
    /// When the name is unknown.
    pub fn named(name: &str) -> Self {
        match name {
            "std-channel" => Self::StdChannel,
            "crossbeam-channel" => Self::CrossbeamChannel,
            "std-mutex" => Self::StdMutex,
            other => panic!("unknown chat {other}"),
        }
    }

    /// Returns the nanoseconds of processor time for a message or lock, of `count`.
    ///
    /// # Panics
    /// Does not: no thread ends before the others.
    pub fn nanos(self, count: usize) -> f64 {
        let used = used_by_all();
        match self {
            Self::StdChannel => exchange(
                count,
                mpsc::channel,
                |sender, n| sender.send(n).is_ok(),
                |receiver| receiver.recv().ok(),
            ),
            Self::CrossbeamChannel => exchange(
                count,
                crossbeam_channel::unbounded,
                |sender, n| sender.send(n).is_ok(),
                |receiver| receiver.recv().ok(),
            ),
            Self::StdMutex => share(count),
        }
        (used_by_all() - used).as_nanos() as f64 / count as f64
    }
}

fn exchange<S: Send, R: Send>(
    count: usize,
    channel: impl Fn() -> (S, R),
    send: impl Fn(&S, usize) -> bool + Sync,
    receive: impl Fn(&R) -> Option<usize> + Sync,
) {
    let (send, receive) = (&send, &receive);
    scope(|scope| {
        for _ in 0..PAIRS {
            let (sender, receiver) = channel();
            scope.spawn(move || {
                for n in 0..count / PAIRS {
                    black_box(steps(n as u64, BEFORE));
                    assert!(send(&sender, n), "the receiver is there until the end");
                }
            });
            scope.spawn(move || {
                while let Some(n) = receive(&receiver) {
                    black_box(steps(n as u64, AFTER));
                }
            });
        }
    });
}

fn share(count: usize) {
    let (lock, start) = (&Mutex::new(0), &Barrier::new(SHARERS));
    scope(|scope| {
        for _ in 0..SHARERS {
            scope.spawn(move || {
                start.wait();
                for n in 0..count / SHARERS {
                    {
                        let mut count = lock.lock().expect("no holder panics");
                        *count = black_box(steps(*count, INSIDE));
                    }
                    black_box(steps(n as u64, OUTSIDE));
                }
            });
        }
    });
}
