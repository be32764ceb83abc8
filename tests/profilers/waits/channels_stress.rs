//! Channels, semaphores and barriers at once, while the profiles' rates change.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::scope;
use std::time::Instant;

use rtprof::sync::mpsc::{self, SyncSender};
use rtprof::sync::{Barrier, Semaphore};
use test_support::contention::{Seen, record_everything, record_nothing};
use test_support::{Background, child, stress};

#[inline(never)]
fn sends_without_end(sender: &SyncSender<usize>) {
    while sender.send(1).is_ok() {}
    black_box(());
}

/// Meets at a barrier until `until`. The two threads agree on the end, so that none is left alone.
fn meets(barrier: &Barrier, is_over: &AtomicBool, until: Instant) {
    while !is_over.load(Relaxed) {
        if barrier.wait().is_leader() {
            is_over.store(Instant::now() >= until, Relaxed);
        }
        barrier.wait();
    }
}

/// All primitives at once while the rates change: nothing is lost, no thread hangs, and the records have the stacks of
/// the callers.
#[test]
fn rates_may_change_while_everything_waits() {
    child::isolated("rates_may_change_while_everything_waits", || {
        let background = Background::default();
        let (sender, receiver) = mpsc::sync_channel(2);
        let (free_sender, free_receiver) = mpsc::channel();
        let (semaphore, turns) = (Semaphore::new(1), AtomicUsize::new(0));
        let (barrier, is_over) = (Barrier::new(2), AtomicBool::new(false));
        let until = Instant::now() + stress();
        scope(|scope| {
            let ends = background.ends_here();
            for _ in 0..3 {
                let (sender, free_sender) = (sender.clone(), free_sender.clone());
                scope.spawn(move || sends_without_end(&sender));
                scope.spawn(|| {
                    background.repeat(|| {
                        let _one = semaphore.acquire();
                        free_sender.send(turns.fetch_add(1, Relaxed)).unwrap();
                    });
                    drop(free_sender);
                });
            }
            drop((sender, free_sender));
            for _ in 0..2 {
                scope.spawn(|| meets(&barrier, &is_over, until));
            }
            scope.spawn(|| {
                background.repeat(|| {
                    record_everything();
                    rtprof::set_block_profile_rate(1000);
                    rtprof::set_mutex_profile_fraction(3);
                    std::thread::yield_now();
                    record_nothing();
                });
            });
            while Instant::now() < until {
                receiver.iter().take(100).for_each(drop);
                free_receiver.try_iter().for_each(drop);
            }
            drop((ends, receiver));
            assert!(free_receiver.iter().count() <= turns.load(Relaxed));
        });
        assert!(turns.load(Relaxed) > 100);
        assert!(Seen::now().blocked("sends_without_end").count > 0);
    });
}
