//! The program's signal handlers wait, during snapshots.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rtprof::{goroutine_profile, thread};
use test_support::{Background, child, until};

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn waits(_: libc::c_int) {
    thread::sleep(Duration::from_nanos(1));
    HANDLED.fetch_add(1, Relaxed);
}

const SIGNALS: usize = 1000;

/// The handler interrupts a thread that takes snapshots, and a thread that waits.
#[test]
fn a_handler_that_waits_holds_up_nothing() {
    child::isolated("a_handler_that_waits_holds_up_nothing", || {
        let handler: extern "C" fn(libc::c_int) = waits;
        // SAFETY: the handler sleeps and counts.
        unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
        let background = Background::default();
        let taken = AtomicUsize::new(0);
        let (background, taken) = (&background, &taken);
        thread::scope(|scope| {
            let (send, threads) = std::sync::mpsc::channel();
            let other = send.clone();
            scope.spawn(move || {
                // SAFETY: the call has no effect.
                send.send(unsafe { libc::pthread_self() }).expect("it is waited for");
                background.repeat(|| {
                    assert!(goroutine_profile().len() >= 3);
                    taken.fetch_add(1, Relaxed);
                });
            });
            scope.spawn(move || {
                // SAFETY: the call has no effect.
                other.send(unsafe { libc::pthread_self() }).expect("it is waited for");
                background.repeat(|| thread::sleep(Duration::from_micros(20)));
            });
            let threads: Vec<libc::pthread_t> = threads.iter().take(2).collect();
            let _ends = background.ends_here();
            until("all signals are handled, and snapshots go on", || {
                for _ in 0..20 {
                    for &thread in &threads {
                        // SAFETY: both threads run until the end of the scope.
                        unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                    }
                    std::thread::sleep(Duration::from_micros(50));
                }
                HANDLED.load(Relaxed) >= SIGNALS && taken.load(Relaxed) >= 100
            });
        });
    });
}
