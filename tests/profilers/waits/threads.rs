//! Threads in profiles: their creators, their waiters, and that none is left behind.
//!
//! Counts are exact: at rate 1 every wait is recorded, and every creation always is. Times are at least the time that
//! certainly passed, and at most the time of the whole.
//!
//! The measured call is the last one in its function where possible, so that a compiler that makes tail calls does so
//! here.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rtprof::thread;
use rtprof_runtime::goroutine;
use test_support::child;
use test_support::profile::Profile;
use test_support::until;

/// The index of the first value of a sample of these profiles.
const COUNT: usize = 0;

fn profile(name: &str) -> Profile {
    let mut bytes = Vec::new();
    let profile = rtprof::pprof::lookup(name).expect("a profile of this name");
    profile.write_to(&mut bytes, 0).expect("a vector takes everything");
    Profile::read(&bytes)
}

/// Returns how many threads each stack of the records has created.
fn created() -> Vec<usize> {
    let mut counts: HashMap<Vec<usize>, usize> = HashMap::new();
    for record in rtprof::thread_create_profile() {
        *counts.entry(record.stack().to_vec()).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_values().collect();
    counts.sort_unstable();
    counts
}

#[inline(never)]
fn first_creator() -> thread::JoinHandle<()> {
    thread::spawn(|| ())
}

#[inline(never)]
fn second_creator(threads: usize) {
    thread::scope(|scope| {
        for number in 0..threads {
            let named = thread::Builder::new().name(format!("number {number}"));
            let handle = named.spawn_scoped(scope, move || black_box(number)).expect("there is room");
            assert_eq!(handle.join().expect("it ends well"), number);
        }
    });
}

#[test]
fn each_creation_is_counted_once() {
    child::isolated("each_creation_is_counted_once", || {
        assert!(rtprof::thread_create_profile().is_empty());
        std::thread::spawn(|| ()).join().expect("it ends well");
        std::thread::scope(|scope| {
            scope.spawn(|| (0..600).for_each(|_| first_creator().join().expect("it ends well")));
            scope.spawn(|| second_creator(400));
        });
        assert_eq!(created(), [400, 600]);
        let profile = profile("threadcreate");
        for (creator, threads) in [("first_creator", 600), ("second_creator", 400)] {
            assert_eq!(profile.totals_of(creator)[COUNT], threads);
            for sample in profile.samples_of(creator) {
                let leaf = &sample.frames[0].function;
                assert!(leaf.contains(creator), "{leaf} is on top, which is not the program's");
            }
        }
        assert_eq!(profile.samples().len(), 2, "and no others");
    });
}

#[test]
fn a_thread_that_was_not_made_is_not_counted() {
    child::isolated("a_thread_that_was_not_made_is_not_counted", || {
        for size in [usize::MAX, usize::MAX / 2] {
            let builder = || thread::Builder::new().stack_size(size);
            builder().spawn(|| ()).expect_err("no stack is as large as the address space");
            thread::scope(|scope| {
                builder().spawn_scoped(scope, || ()).expect_err("no stack is as large as the address space");
            });
        }
        let with_null = || thread::Builder::new().name("nu\0ll".into()).spawn(|| ());
        assert!(std::panic::catch_unwind(with_null).is_err());
        assert_eq!(created(), [0_usize; 0]);
        first_creator().join().expect("it ends well");
        assert_eq!(created(), [1]);
    });
}

const WAIT: Duration = Duration::from_millis(60);

/// Returns the id of the goroutine whose wait is measured.
fn waiter() -> u64 {
    goroutine::current().expect("there is memory").id()
}

/// Returns when that goroutine has waited for `WAIT`.
fn sleeps_beside(waiter: u64) {
    until("the wait", || goroutine::all().any(|live| live.id == waiter && live.waiting.is_some()));
    thread::sleep(WAIT);
}

#[inline(never)]
fn waits_for_a_thread() {
    let waiter = waiter();
    thread::spawn(move || sleeps_beside(waiter)).join().expect("it ends well");
}

#[inline(never)]
fn waits_for_a_scoped_thread() {
    let waiter = waiter();
    thread::scope(|scope| scope.spawn(|| sleeps_beside(waiter)).join()).expect("it ends well");
}

#[inline(never)]
fn waits_at_the_end_of_a_scope() {
    let waiter = waiter();
    thread::scope(|scope| {
        scope.spawn(|| sleeps_beside(waiter));
    });
}

#[inline(never)]
fn waits_in_a_panic() {
    let waiter = waiter();
    let panics = || {
        thread::scope(|scope| {
            scope.spawn(|| {
                sleeps_beside(waiter);
                std::panic::resume_unwind(Box::new(()));
            });
        });
    };
    std::panic::catch_unwind(panics).expect_err("the thread has panicked");
}

#[inline(never)]
fn waits_for_unpark() {
    let (waiter, waiting) = (waiter(), thread::current());
    thread::spawn(move || {
        sleeps_beside(waiter);
        waiting.unpark();
    });
    thread::park();
}

#[inline(never)]
fn waits_in_vain() {
    thread::park_timeout(WAIT);
}

#[inline(never)]
fn joins_what_has_finished() {
    let thread = thread::spawn(|| ());
    while !thread.is_finished() {
        thread::yield_now();
    }
    thread.join().expect("it ends well");
}

#[inline(never)]
fn only_sleeps() {
    thread::sleep(WAIT);
}

#[inline(never)]
fn parks_with_a_token(times: usize) {
    for _ in 0..times {
        thread::current().unpark();
        thread::park();
    }
}

#[inline(never)]
fn ends_scopes_with_nothing_running() {
    thread::scope(|_| ());
    thread::scope(|scope| {
        let thread = scope.spawn(|| ());
        while !thread.is_finished() {
            thread::yield_now();
        }
        let builder = thread::Builder::new().stack_size(usize::MAX);
        builder.spawn_scoped(scope, || ()).expect_err("no stack is as large as the address space");
    });
}

#[test]
fn waits_for_threads_are_in_the_block_profile() {
    child::isolated("waits_for_threads_are_in_the_block_profile", || {
        const TIMES: usize = 50;
        rtprof::set_block_profile_rate(1);
        let waits: [(&str, fn()); 6] = [
            ("waits_for_a_thread", waits_for_a_thread),
            ("waits_for_a_scoped_thread", waits_for_a_scoped_thread),
            ("waits_at_the_end_of_a_scope", waits_at_the_end_of_a_scope),
            ("waits_in_a_panic", waits_in_a_panic),
            ("waits_for_unpark", waits_for_unpark),
            ("waits_in_vain", waits_in_vain),
        ];
        let mut longest = HashMap::new();
        for (name, wait) in waits {
            let started = Instant::now();
            wait();
            longest.insert(name, started.elapsed());
        }
        joins_what_has_finished();
        only_sleeps();
        ends_scopes_with_nothing_running();
        parks_with_a_token(TIMES);
        rtprof::set_block_profile_rate(0);
        waits_in_vain();

        let profile = profile("block");
        for (name, longest) in longest {
            let [count, nanoseconds, ..] = profile.totals_of(name);
            println!("{name}: {count} in {nanoseconds} ns");
            assert_eq!(count, 1, "{name}");
            // The rate of ticks is a measurement, so lengths are within 2 %.
            let (least, most) = (WAIT.mul_f64(0.98).as_nanos(), longest.mul_f64(1.02).as_nanos());
            assert!(
                (least..=most).contains(&(nanoseconds as u128)),
                "{name} took {nanoseconds} of {longest:?}"
            );
            for sample in profile.samples_of(name) {
                let leaf = &sample.frames[0].function;
                assert!(leaf.contains(name), "{leaf} is on top, which is not the program's");
            }
        }
        for name in
            ["joins_what_has_finished", "ends_scopes_with_nothing_running", "only_sleeps", "sleeps_beside"]
        {
            assert_eq!(profile.totals_of(name)[COUNT], 0, "{name} is in the profile");
        }
        // A park that loses its core on the way, or runs code that is not in memory yet, appears to have slept: the
        // first one, and one in thousands.
        let count = profile.totals_of("parks_with_a_token")[COUNT];
        assert!(count < TIMES as i64 / 2, "{count} waits in {TIMES} parks that had none");
    });
}

/// Returns the names of live goroutines, without the unnamed ones of threads.
fn names() -> Vec<String> {
    goroutine::all().map(|goroutine| goroutine.name).filter(|name| !name.is_empty()).collect()
}

#[test]
fn goroutines_are_those_of_live_threads() {
    child::isolated("goroutines_are_those_of_live_threads", || {
        let main = goroutine::all().next().expect("the main thread is known");
        assert_eq!((main.id, &*main.name, main.thread_id), (1, "main", std::process::id()));
        assert!(main.created_by.is_none());
        let (stop, live) = (AtomicBool::new(false), AtomicUsize::new(0));
        let wait = |_: usize| {
            live.fetch_add(1, Relaxed);
            while !stop.load(Relaxed) {
                thread::park_timeout(Duration::from_millis(1));
            }
        };
        thread::scope(|scope| {
            for number in 0..3 {
                let builder = thread::Builder::new().name(format!("of rtprof {number}"));
                builder.spawn_scoped(scope, move || wait(number)).expect("there is room");
            }
            // Registered by its first wait.
            let foreign = std::thread::Builder::new().name("of std".into());
            let foreign = foreign.spawn(thread::park).expect("there is room");
            until("all are known", || live.load(Relaxed) == 3 && names().contains(&"of std".into()));
            foreign.thread().unpark();
            foreign.join().expect("it ends well");
            let names = names();
            for number in 0..3 {
                assert!(names.contains(&format!("of rtprof {number}")), "{names:?}");
            }
            assert!(!names.contains(&"of std".into()), "it has ended");
            let created = |live: &goroutine::LiveGoroutine| {
                live.name.starts_with("of rtprof") && live.created_by.is_some()
            };
            assert_eq!(goroutine::all().filter(created).count(), 3);
            stop.store(true, Relaxed);
        });
        assert!(names().iter().all(|name| !name.starts_with("of rtprof")));
    });
}

#[test]
fn slots_are_as_many_as_threads_at_one_time() {
    child::isolated("slots_are_as_many_as_threads_at_one_time", || {
        const AT_ONCE: usize = 4;
        thread::scope(|scope| {
            for starter in 0..AT_ONCE {
                scope.spawn(move || {
                    for round in 0..500 {
                        let panics = round % 50 == starter;
                        let body = move || {
                            thread::park_timeout(Duration::ZERO);
                            if panics {
                                std::panic::resume_unwind(Box::new(()));
                            }
                        };
                        let ended = match round % 2 {
                            0 => thread::spawn(body).join(),
                            _ => std::thread::spawn(body).join(),
                        };
                        assert_eq!(ended.is_err(), panics);
                    }
                });
            }
        });
        let made = goroutine::slots_made();
        // Main, the test, the starters, a thread of each, and for each starter one thread that executes its last
        // instructions.
        assert!(made <= 2 + 3 * AT_ONCE, "{made} slots for 2,000 threads, {AT_ONCE} at a time");
        assert_eq!(goroutine::all().filter(|live| live.created_by.is_some()).count(), 0);
    });
}

/// `fork` calls its handlers; the bare system call calls none.
#[test]
fn a_fork_that_nobody_is_told_of() {
    child::isolated("a_fork_that_nobody_is_told_of", || {
        let others: Vec<_> = (0..3).map(|_| thread::spawn(thread::park)).collect();
        until("their waits", || {
            goroutine::all().filter(|live| live.waiting.is_some()).count() >= others.len()
        });
        let own = goroutine::current().expect("there is memory");
        let (id, parents) = (own.id(), own.thread_id());
        // SAFETY: the child is a copy of this process, as after `fork`. The other threads sleep, so none of them holds
        // the allocator's lock.
        let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as i32;
        assert!(pid >= 0, "{}", std::io::Error::last_os_error());
        if pid == 0 {
            let live: Vec<_> = goroutine::all().map(|live| (live.id, live.thread_id)).collect();
            let is_right = live == [(id, std::process::id())] && own.thread_id() != parents;
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0, "the child saw threads that it does not have, or not its own");
        assert!(goroutine::all().count() > others.len(), "the parent's are as they were");
        for other in others {
            other.thread().unpark();
            other.join().expect("it ends well");
        }
    });
}
