//! Threads that rtprof has not started, while other threads begin and end.

use std::cell::Cell;
use std::collections::HashSet;
use std::hint::black_box;
use std::sync::Mutex as OtherMutex;
use std::sync::mpsc;
use std::time::Instant;

use rtprof::{goroutine_profile, num_goroutine, thread};
use test_support::{Background, child, rounds, stress, until};

use super::asked::start;
use super::names::{Names, find, wait_for_end_of_search};

/// Threads that live at one time.
const AT_ONCE: usize = 40;

/// Threads that exist before a snapshot begins and after it has ended are in it.
#[test]
fn none_is_lost_when_others_end() {
    child::isolated("none_is_lost_when_others_end", || {
        let background = &Background::default();
        let there = &OtherMutex::new(HashSet::new());
        let numbers = || there.lock().expect("nobody panics").clone();
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            for number in 0..AT_ONCE {
                // Threads of different lengths, one after the other.
                start(scope, "starts", move || {
                    background.repeat(|| {
                        let body = move || {
                            // SAFETY: the call has no effect.
                            let own = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
                            there.lock().expect("nobody panics").insert(own);
                            (0..number).for_each(|_| std::thread::yield_now());
                            there.lock().expect("nobody panics").remove(&own);
                        };
                        std::thread::scope(|scope| drop(scope.spawn(body)));
                    });
                });
            }
            let (started, mut snapshots, mut checked) = (Instant::now(), 0, 0);
            while snapshots < rounds(100, 300) || started.elapsed() < stress() || checked == 0 {
                let before = numbers();
                let all = goroutine_profile();
                let after = numbers();
                let found: HashSet<u32> = all.iter().map(|goroutine| goroutine.thread_id).collect();
                assert_eq!(found.len(), all.len(), "one is there twice: {all:#?}");
                for number in before.intersection(&after) {
                    assert!(found.contains(number), "{number} is missing among {} threads", all.len());
                    checked += 1;
                }
                snapshots += 1;
            }
        });
    });
}

struct WaitsAtTheEnd(Cell<Option<mpsc::Receiver<()>>>);

impl Drop for WaitsAtTheEnd {
    // If it were inlined, the test would not find it in the stack, as happened in one release build.
    #[inline(never)]
    fn drop(&mut self) {
        self.0.take().map(|ends| ends.recv());
        black_box(self);
    }
}

thread_local! {
    static WAITS_AT_THE_END: WaitsAtTheEnd = const { WaitsAtTheEnd(Cell::new(None)) };
}

/// The thread's goroutine has ended, but the thread has not.
#[test]
fn a_thread_that_waits_in_a_destructor_is_there() {
    child::isolated("a_thread_that_waits_in_a_destructor_is_there", || {
        let (end, ends) = mpsc::channel();
        let body = move || WAITS_AT_THE_END.with(|waits| waits.0.set(Some(ends)));
        let ending = thread::Builder::new().name("ending".into()).spawn(body).expect("a thread");
        let mut names = Names::default();
        let mut is_there = || {
            let ending = find("ending")?;
            names.of(&ending).iter().any(|name| name.contains("WaitsAtTheEnd")).then_some(())
        };
        until("it waits", || is_there().is_some());
        wait_for_end_of_search();
        assert_eq!(goroutine_profile().len(), num_goroutine());
        drop(end);
        ending.join().expect("it does not panic");
        until("it is over", || find("ending").is_none());
    });
}

/// A joined thread is no longer counted.
#[test]
fn a_thread_that_was_joined_is_not_counted() {
    child::isolated("a_thread_that_was_joined_is_not_counted", || {
        let before = num_goroutine();
        for _ in 0..200 {
            std::thread::spawn(|| ()).join().expect("it does not panic");
            assert_eq!(num_goroutine(), before);
            thread::spawn(|| ()).join().expect("it does not panic");
            assert_eq!(num_goroutine(), before);
            assert_eq!(goroutine_profile().len(), before);
        }
    });
}
