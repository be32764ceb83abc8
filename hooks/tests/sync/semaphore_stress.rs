//! Semaphores under many threads, some of which give up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rtprof_hooks::sync::{Semaphore, SemaphoreGuard};

use crate::watched::{PATIENCE, Watched, start, stress};

const PERMITS: usize = 6;

struct Shared {
    semaphore: Semaphore,
    held: AtomicUsize,
    served: AtomicUsize,
    given_up: AtomicUsize,
}

impl Shared {
    fn new() -> Self {
        let count = AtomicUsize::default;
        Self { semaphore: Semaphore::new(PERMITS), held: count(), served: count(), given_up: count() }
    }

    /// Whether each outcome was seen often enough to prove something.
    fn has_seen_both(&self) -> bool {
        self.served.load(Relaxed) > 100 && self.given_up.load(Relaxed) > 0
    }
}

/// Whether a stress test that began at `started` is over: its time has passed and it has done enough, or patience ends.
fn is_over(started: Instant, has_enough: bool) -> bool {
    let elapsed = started.elapsed();
    elapsed >= PATIENCE || (elapsed >= stress() && has_enough)
}

/// Never more are held than there are, none is lost, and nobody sleeps for ever.
#[test]
fn permits_are_neither_lost_nor_made() {
    let shared = Arc::new(Shared::new());
    let started = Instant::now();
    let threads: Vec<Watched<()>> = (0..6_usize)
        .map(|thread| {
            let shared = shared.clone();
            start(move || {
                let mut turn = thread;
                while !is_over(started, shared.has_seen_both()) {
                    turn += 1;
                    let permits = 1 + (turn * (thread + 3)) % PERMITS;
                    match acquire(&shared.semaphore, permits, turn) {
                        Some(guard) => {
                            shared.served.fetch_add(1, Relaxed);
                            hold(&shared, guard);
                        }
                        None => drop(shared.given_up.fetch_add(1, Relaxed)),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(Watched::end);
    let (served, given_up) = (shared.served.load(Relaxed), shared.given_up.load(Relaxed));
    assert!(shared.has_seen_both(), "{served} were served, {given_up} gave up");
    assert_eq!(shared.semaphore.available_permits(), PERMITS);
    assert_eq!(shared.semaphore.acquire_many(PERMITS).permits(), PERMITS);
    assert!(shared.semaphore.try_acquire_many(PERMITS).is_some(), "nobody is left in the queue");
}

fn acquire(semaphore: &Semaphore, permits: usize, turn: usize) -> Option<SemaphoreGuard<'_>> {
    match turn % 4 {
        0 => Some(semaphore.acquire_many(permits)),
        1 => semaphore.try_acquire_many(permits),
        2 => semaphore.try_acquire_many_for(permits, Duration::from_micros(turn as u64 % 80)),
        _ => semaphore.try_acquire_many_until(permits, Instant::now() + Duration::from_micros(50)),
    }
}

fn hold(shared: &Shared, guard: SemaphoreGuard<'_>) {
    let permits = guard.permits();
    let held = shared.held.fetch_add(permits, Relaxed) + permits;
    assert!(held <= PERMITS, "{held} are held");
    if permits.is_multiple_of(2) {
        std::thread::yield_now();
    }
    shared.held.fetch_sub(permits, Relaxed);
    if permits == 3 {
        // The long way round.
        guard.forget();
        shared.semaphore.add_permits(1);
        shared.semaphore.add_permits(2);
    }
}

/// Each wake is for one thread, as in a ping-pong: one that is lost stops both.
#[test]
fn no_wake_is_lost() {
    let pair = Arc::new((Semaphore::new(0), Semaphore::new(0)));
    let rounds = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let other = start({
        let (pair, rounds) = (pair.clone(), rounds.clone());
        move || {
            loop {
                pair.0.acquire().forget();
                let is_over = is_over(started, rounds.load(Relaxed) > 100);
                if !is_over {
                    rounds.fetch_add(1, Relaxed);
                }
                pair.1.add_permits(if is_over { 2 } else { 1 });
                if is_over {
                    return;
                }
            }
        }
    });
    let this = start({
        let pair = pair.clone();
        move || {
            loop {
                pair.0.add_permits(1);
                pair.1.acquire().forget();
                if pair.1.try_acquire().map(SemaphoreGuard::forget).is_some() {
                    return;
                }
            }
        }
    });
    other.end();
    this.end();
    assert!(rounds.load(Relaxed) > 100);
}
