//! Unusual but valid actions of programs, which must keep working.

use std::ffi::c_void;
use std::hint::black_box;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, mpsc};
use std::thread::{scope, spawn};
use std::time::{Duration, Instant};

use test_support::contention::{Seen, record_everything, record_nothing, thread_id, wait_until_asleep};
use test_support::recording::record;
use test_support::{Background, child, fork, stress, until};

fn futex(word: &AtomicU32, operation: i32, value: u32, timeout: Option<Duration>) -> i64 {
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(null(), |time| &raw const *time);
    // SAFETY: the word and the time outlive the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation | libc::FUTEX_PRIVATE_FLAG, value, time)
    }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().expect("it is one of the system's")
}

/// A number that no call leaves in `errno`.
const UNTOUCHED: i32 = 4000;

/// Returns the result of a call, and the value that it leaves in `errno`.
fn outcome(call: impl FnOnce() -> i64) -> (i64, i32) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = UNTOUCHED };
    let result = call();
    (result, errno())
}

fn sleep_for(nanos: i64) -> i64 {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanos };
    // SAFETY: the call reads a local.
    unsafe { libc::nanosleep(&raw const time, null_mut()) }.into()
}

fn clock_sleep_for(nanos: i64) -> i64 {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanos };
    // SAFETY: the call reads a local.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const time, null_mut()) }.into()
}

/// Joins the current thread, which glibc refuses; musl waits for ever.
fn join_oneself() -> i32 {
    if cfg!(target_env = "musl") {
        return libc::EDEADLK;
    }
    // SAFETY: the call writes nothing.
    unsafe { libc::pthread_join(libc::pthread_self(), null_mut()) }
}

/// Returns the outcomes of a wait in a new thread, and of the wake that ends it.
fn wait_that_is_ended() -> [(i64, i32); 2] {
    let word = AtomicU32::new(1);
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| outcome(|| futex(&word, libc::FUTEX_WAIT, 1, None)));
        let wake = || outcome(|| futex(&word, libc::FUTEX_WAKE, 1, None));
        let woken = std::iter::repeat_with(wake).find(|&(woken, _)| woken != 0).expect("it goes on for ever");
        [wait.join().expect("it is woken"), woken]
    })
}

/// Every function returns the same as the C library's function, and leaves the same `errno`.
#[test]
fn results_and_errors_are_those_of_the_c_library() {
    child::isolated("results_and_errors_are_those_of_the_c_library", || {
        let outcomes = || {
            let word = AtomicU32::new(1);
            let millisecond = Some(Duration::from_millis(1));
            // SAFETY: these calls access no memory of ours, or are made to fail.
            unsafe {
                [
                    outcome(|| futex(&word, libc::FUTEX_WAIT, 0, None)),
                    outcome(|| futex(&word, libc::FUTEX_WAIT, 1, millisecond)),
                    outcome(|| futex(&word, libc::FUTEX_WAKE, 1, None)),
                    outcome(|| libc::syscall(libc::SYS_futex, 1, libc::FUTEX_WAKE, 1)),
                    outcome(|| libc::syscall(libc::SYS_close, -1)),
                    outcome(|| libc::syscall(libc::SYS_mmap, 0, 4096, 0, libc::MAP_ANONYMOUS, -1, 1)),
                    outcome(|| i64::from(libc::syscall(libc::SYS_getppid) == i64::from(libc::getppid()))),
                    outcome(|| sleep_for(1000)),
                    outcome(|| sleep_for(-1)),
                    outcome(|| clock_sleep_for(1000)),
                    outcome(|| clock_sleep_for(-1)),
                    outcome(|| libc::usleep(100).into()),
                    outcome(|| libc::sleep(0).into()),
                    outcome(|| libc::sched_yield().into()),
                    outcome(|| join_oneself().into()),
                ]
            }
        };
        let expected = [
            (-1, libc::EAGAIN),
            (-1, libc::ETIMEDOUT),
            (0, UNTOUCHED),
            (-1, libc::EINVAL),
            (-1, libc::EBADF),
            // The offset, its sixth argument, is not a multiple of a page.
            (-1, libc::EINVAL),
            (1, UNTOUCHED),
            (0, UNTOUCHED),
            (-1, libc::EINVAL),
            (0, UNTOUCHED),
            (libc::EINVAL.into(), UNTOUCHED),
            (0, UNTOUCHED),
            (0, UNTOUCHED),
            (0, UNTOUCHED),
            (libc::EDEADLK.into(), UNTOUCHED),
        ];
        let ended = [(0, UNTOUCHED), (1, UNTOUCHED)];
        let check = |when| {
            assert_eq!(outcomes(), expected, "{when}");
            assert_eq!(wait_that_is_ended(), ended, "{when}");
        };
        check("while nothing is recorded");
        record_everything();
        check("while waits are");
        let trace = record(|| check("while a trace is too"));
        trace.assert_whole();
    });
}

extern "C" fn does_nothing(_: i32) {}

fn handle(signal: i32, handler: extern "C" fn(i32), flags: i32) {
    // SAFETY: an all-zero `sigaction` is valid; the handler is a function, so it is always valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &raw const action, null_mut()), 0);
    }
}

/// A signal ends a sleep, which returns the time left.
#[test]
fn a_signal_interrupts_as_ever() {
    child::isolated("a_signal_interrupts_as_ever", || {
        record_everything();
        handle(libc::SIGUSR1, does_nothing, 0);
        let interrupted = |sleep: fn() -> (i64, i32)| {
            let (tx, rx) = mpsc::channel();
            scope(|scope| {
                let thread = scope.spawn(move || {
                    tx.send(thread_id()).unwrap();
                    sleep()
                });
                let id = rx.recv().unwrap();
                wait_until_asleep(id);
                // SAFETY: a plain system call.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, libc::SIGUSR1) };
                thread.join().unwrap()
            })
        };
        let hour = || {
            let mut left = libc::timespec { tv_sec: 3600, tv_nsec: 0 };
            let (wanted, left) = (&raw const left, &raw mut left);
            // SAFETY: the call reads and then writes a local.
            let (result, error) = outcome(|| unsafe { libc::nanosleep(wanted, left) }.into());
            // SAFETY: the pointer is to a local.
            assert!((3500..3600).contains(unsafe { &(*left).tv_sec }));
            (result, error)
        };
        assert_eq!(interrupted(hour), (-1, libc::EINTR));
        let waits =
            || outcome(|| futex(&AtomicU32::new(1), libc::FUTEX_WAIT, 1, Some(Duration::from_secs(3600))));
        assert_eq!(interrupted(waits), (-1, libc::EINTR));
        // SAFETY: the call accesses no memory of ours.
        let (left, _) = interrupted(|| outcome(|| unsafe { libc::sleep(3600) }.into()));
        assert!((3500..3600).contains(&left), "{left} s are left");
    });
}

static WORD: AtomicU32 = AtomicU32::new(1);
static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn waits_and_wakes(_: i32) {
    let (result, error) = outcome(|| futex(&WORD, libc::FUTEX_WAIT, 1, Some(Duration::from_micros(20))));
    // The wait timed out, or another handler has ended it.
    assert!(result == 0 || [libc::ETIMEDOUT, libc::EINTR].contains(&error));
    futex(&WORD, libc::FUTEX_WAKE, 1, None);
    sleep_for(1000);
    // SAFETY: the call accesses no memory of ours.
    unsafe { libc::sched_yield() };
    SIGNALS.fetch_add(1, Relaxed);
}

#[inline(never)]
fn afterwards() {
    black_box("afterwards");
    futex(&AtomicU32::new(1), libc::FUTEX_WAIT, 1, Some(Duration::from_millis(1)));
}

/// Signal handlers wait, wake and sleep, wherever they interrupt their thread: in a wait, or in a hook.
#[test]
fn signal_handlers_wait() {
    child::isolated("signal_handlers_wait", || {
        handle(libc::SIGUSR1, waits_and_wakes, libc::SA_RESTART);
        record_everything();
        let (background, lock, ids) = (Background::default(), Mutex::new(0), Mutex::new(Vec::new()));
        let trace = record(|| {
            scope(|scope| {
                let ends = background.ends_here();
                for _ in 0..3 {
                    scope.spawn(|| {
                        ids.lock().unwrap().push(thread_id());
                        background.repeat(|| {
                            *lock.lock().unwrap() += 1;
                            sleep_for(1000);
                        });
                        afterwards();
                    });
                }
                let started = Instant::now();
                while started.elapsed() < stress() || SIGNALS.load(Relaxed) < 1000 {
                    for id in ids.lock().unwrap().iter() {
                        // SAFETY: a plain system call.
                        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), *id, libc::SIGUSR1) };
                    }
                    sleep_for(50_000);
                }
                drop(ends);
            });
        });
        trace.assert_in_order();
        assert_eq!(Seen::unmodified().blocked("afterwards").count, 3, "threads are seen as before");
    });
}

/// Children that were forked while other threads waited use their own locks; and programs are started.
#[test]
fn children_wait_and_programs_start() {
    fork::isolated("children_wait_and_programs_start", "", || {
        record_everything();
        let (background, lock) = (Background::default(), Mutex::new(0));
        let trace = record(|| {
            scope(|scope| {
                let _ends = background.ends_here();
                for _ in 0..2 {
                    scope.spawn(|| background.repeat(|| *lock.lock().unwrap() += 1));
                }
                for _ in 0..10 {
                    fork::in_a_child("waits for a thread of its own", || {
                        record_everything();
                        let (send, receive) = mpsc::channel();
                        let thread = spawn(move || send.send(()).unwrap());
                        receive.recv().unwrap();
                        thread.join().unwrap();
                    });
                    let status = Command::new("true").status().expect("every system has it");
                    assert!(status.success());
                }
            });
        });
        trace.assert_in_order();
    });
}

/// Many threads begin and end: each is counted, none is left.
#[test]
fn a_storm_of_threads() {
    child::isolated("a_storm_of_threads", || {
        record_everything();
        let made = AtomicUsize::new(0);
        let trace = record(|| {
            let started = Instant::now();
            scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        while made.load(Relaxed) < 200 || started.elapsed() < stress() {
                            spawn(|| ()).join().unwrap();
                            made.fetch_add(1, Relaxed);
                        }
                    });
                }
            });
        });
        trace.assert_in_order();
        let created: usize = rtprof::thread_create_profile().len();
        assert!(created >= 2, "of the threads, and of those that have made them");
        until("all have ended but the main thread and the test's", || rtprof::goroutine_profile().len() == 2);
        record_nothing();
    });
}

/// Threads of C end by `pthread_exit`, and are cancelled while they wait.
#[test]
fn threads_are_cancelled() {
    unsafe extern "C" {
        fn pthread_exit(value: *mut c_void) -> !;
    }
    extern "C" fn exits(value: *mut c_void) -> *mut c_void {
        // SAFETY: no frame of this thread has anything to drop.
        unsafe { pthread_exit(value) }
    }
    extern "C" fn sleeps(_: *mut c_void) -> *mut c_void {
        let hour = libc::timespec { tv_sec: 3600, tv_nsec: 0 };
        // SAFETY: the call reads a local.
        unsafe { libc::nanosleep(&raw const hour, null_mut()) };
        null_mut()
    }
    child::isolated("threads_are_cancelled", || {
        record_everything();
        let cancelled = without_provenance(usize::MAX);
        let trace = record(|| {
            // SAFETY: both threads are joined, and have nothing to drop.
            unsafe {
                let (mut thread, mut value) = (std::mem::zeroed(), null_mut());
                let seven = without_provenance(7);
                assert_eq!(libc::pthread_create(&raw mut thread, null(), exits, seven), 0);
                assert_eq!((libc::pthread_join(thread, &raw mut value), value), (0, seven));
                assert_eq!(libc::pthread_create(&raw mut thread, null(), sleeps, null_mut()), 0);
                assert_eq!(libc::pthread_cancel(thread), 0);
                assert_eq!((libc::pthread_join(thread, &raw mut value), value), (0, cancelled));
            }
        });
        trace.assert_in_order();
        // Only the main thread and the test's thread are left.
        until("both have ended", || rtprof::goroutine_profile().len() == 2);
    });
}

fn without_provenance(address: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(address)
}
