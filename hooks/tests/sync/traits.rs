//! What may go to other threads, and what was meant to look like std's.

use std::error::Error;
use std::panic::{RefUnwindSafe, UnwindSafe};

use rtprof_hooks::sync::mpsc::{self, IntoIter, Iter, Receiver, Sender, SyncSender, TryIter};
use rtprof_hooks::sync::{Barrier, BarrierWaitResult, Condvar, Once, Semaphore, SemaphoreGuard};

fn both<T: Send + Sync + UnwindSafe + RefUnwindSafe>() {}
fn send<T: Send + UnwindSafe + RefUnwindSafe>() {}

/// That a `Receiver` is not `Sync`, and that senders of what is not `Send` are neither, is in the documentation of
/// the types, as tests that must not compile.
#[test]
fn types_are_as_free_as_stds() {
    both::<Condvar>();
    both::<Once>();
    both::<Barrier>();
    both::<BarrierWaitResult>();
    both::<Semaphore>();
    both::<SemaphoreGuard<'_>>();
    both::<Sender<Box<i32>>>();
    both::<SyncSender<Box<i32>>>();
    // What is sent need not be shared.
    both::<Sender<std::cell::Cell<i32>>>();
    both::<SyncSender<std::cell::Cell<i32>>>();
    send::<Receiver<std::cell::Cell<i32>>>();
    send::<IntoIter<i32>>();
}

#[test]
fn they_show_themselves_as_stds_do() {
    fn shows<T: std::fmt::Debug>(ours: T, theirs: impl std::fmt::Debug) {
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }
    let (ours, theirs) = (mpsc::channel::<i32>(), std::sync::mpsc::channel::<i32>());
    shows(ours.0, theirs.0);
    shows(&ours.1, &theirs.1);
    let (ours, theirs) = (mpsc::sync_channel::<i32>(1), std::sync::mpsc::sync_channel::<i32>(1));
    shows(ours.0, theirs.0);
    shows(ours.1, theirs.1);
    shows(Barrier::new(1), std::sync::Barrier::new(1));
    shows(Barrier::new(1).wait(), std::sync::Barrier::new(1).wait());
    shows(Condvar::new(), std::sync::Condvar::new());
}

/// A program that names std's errors goes on as it was.
#[test]
fn errors_are_stds_own() {
    fn with_stds_errors() -> Result<(), Box<dyn Error>> {
        let (sender, receiver) = mpsc::sync_channel::<i32>(1);
        let sent: Result<(), std::sync::mpsc::SendError<i32>> = sender.send(1);
        sent?;
        let full: std::sync::mpsc::TrySendError<i32> = sender.try_send(2).unwrap_err();
        assert_eq!(full.to_string(), "sending on a full channel");
        let received: Result<i32, std::sync::mpsc::TryRecvError> = receiver.try_recv();
        assert_eq!(received?, 1);
        drop(sender);
        let closed: std::sync::mpsc::RecvError = receiver.recv().unwrap_err();
        assert_eq!(closed.to_string(), "receiving on a closed channel");
        Ok(())
    }
    with_stds_errors().unwrap();
}

#[test]
fn iterators_borrow_or_keep_the_receiver() {
    fn iterates<'a>(receiver: &'a Receiver<i32>) -> (Iter<'a, i32>, TryIter<'a, i32>) {
        (receiver.iter(), receiver.try_iter())
    }
    let (sender, receiver) = mpsc::channel();
    (0..6).for_each(|number| sender.send(number).unwrap());
    drop(sender);
    let (mut iter, mut try_iter) = iterates(&receiver);
    assert_eq!((iter.next(), try_iter.next()), (Some(0), Some(1)));
    let mut borrowed = Vec::new();
    for number in &receiver {
        borrowed.push(number);
        if number == 3 {
            break;
        }
    }
    assert_eq!(borrowed, [2, 3]);
    assert_eq!(Vec::from_iter(receiver), [4, 5]);
}
