//! Calls that are ended from outside: by a signal, by the end of their thread, by a fork.

use std::ffi::c_void;
use std::io::{Read, Write};
use std::mem::zeroed;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::scope;
use std::time::Instant;

use rtprof::{BlockKinds, set_block_profile_kinds};
use rtprof_trace_check::EventType;
use test_support::contention::{record_everything, thread_id, wait_until_asleep};
use test_support::recording::record;
use test_support::{Background, child, fork, stress, until};

fn handle(signal: i32, handler: extern "C" fn(i32), flags: i32) {
    // SAFETY: an all-zero `sigaction` is valid; the handler is a function, so it is always valid.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &raw const action, null_mut()), 0);
    }
}

fn signal(thread: i32) {
    // SAFETY: a plain system call.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1) };
}

extern "C" fn does_nothing(_: i32) {}

/// Returns calls that wait for ever.
fn endless() -> Vec<Box<dyn Fn() -> i64 + Send>> {
    let (local, far) = UnixStream::pair().expect("there are descriptors");
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let (number, listening) = (local.as_raw_fd(), listener.as_raw_fd());
    // SAFETY: a plain system call.
    let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    // The descriptors stay open, because the calls use their numbers.
    std::mem::forget((local, far, listener));
    vec![
        // SAFETY: the pointer is to a temporary of this length that outlives the call.
        Box::new(move || unsafe { libc::read(number, [0_u8; 8].as_mut_ptr().cast(), 8) } as i64),
        // SAFETY: the pointer is to a temporary of this length that outlives the call.
        Box::new(move || unsafe { libc::recv(number, [0_u8; 8].as_mut_ptr().cast(), 8, 0) } as i64),
        // SAFETY: null pointers are allowed.
        Box::new(move || unsafe { libc::accept(listening, null_mut(), null_mut()) }.into()),
        Box::new(move || {
            let mut poll = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
            // SAFETY: the pointer is to a local.
            unsafe { libc::poll(&raw mut poll, 1, -1) }.into()
        }),
        Box::new(move || {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: the pointer is to a local, with room for one event.
            unsafe { libc::epoll_wait(set, &raw mut event, 1, -1) }.into()
        }),
        // SAFETY: null pointers are allowed.
        Box::new(|| unsafe { libc::select(0, null_mut(), null_mut(), null_mut(), null_mut()) }.into()),
    ]
}

#[test]
fn a_signal_interrupts_calls_as_ever() {
    child::isolated("a_signal_interrupts_calls_as_ever", || {
        handle(libc::SIGUSR1, does_nothing, 0);
        record_everything();
        set_block_profile_kinds(BlockKinds::ALL);
        let trace = record(|| {
            for call in endless() {
                let (tx, rx) = mpsc::channel();
                let outcome = scope(|scope| {
                    let thread = scope.spawn(move || {
                        tx.send(thread_id()).unwrap();
                        (call(), std::io::Error::last_os_error().raw_os_error())
                    });
                    let id = rx.recv().unwrap();
                    wait_until_asleep(id);
                    signal(id);
                    thread.join().unwrap()
                });
                assert_eq!(outcome, (-1, Some(libc::EINTR)));
            }
        });
        trace.assert_whole();
        trace.assert_in_order();
    });
}

/// A thread that is cancelled in a call ends there, and the profiler goes on.
#[test]
#[cfg(not(target_feature = "crt-static"))]
fn threads_are_cancelled_in_calls() {
    static THREAD: AtomicI32 = AtomicI32::new(0);
    // The end of a cancelled thread unwinds its stack.
    extern "C-unwind" fn calls(call: *mut c_void) -> *mut c_void {
        THREAD.store(thread_id(), Relaxed);
        // SAFETY: the starter of the thread made the pointer with `Box::into_raw`, and passed it to this thread only.
        let call: Box<Box<dyn Fn() -> i64 + Send>> = unsafe { Box::from_raw(call.cast()) };
        // Leaked, because nothing is dropped when the thread is cancelled.
        let call = Box::leak(call);
        call();
        null_mut()
    }
    child::isolated("threads_are_cancelled_in_calls", || {
        record_everything();
        set_block_profile_kinds(BlockKinds::ALL);
        let mut count = 0;
        let trace = record(|| {
            for call in endless() {
                count += 1;
                THREAD.store(0, Relaxed);
                // SAFETY: the thread is joined, and has nothing to drop.
                unsafe {
                    let (mut thread, mut value) = (zeroed(), null_mut());
                    let call: *mut c_void = Box::into_raw(Box::new(call)).cast();
                    let function: extern "C-unwind" fn(*mut c_void) -> *mut c_void = calls;
                    let function: extern "C" fn(*mut c_void) -> *mut c_void = std::mem::transmute(function);
                    assert_eq!(libc::pthread_create(&raw mut thread, null(), function, call), 0);
                    until("the thread has begun", || THREAD.load(Relaxed) != 0);
                    wait_until_asleep(THREAD.load(Relaxed));
                    assert_eq!(libc::pthread_cancel(thread), 0);
                    assert_eq!(libc::pthread_join(thread, &raw mut value), 0);
                    assert_eq!(value.addr(), usize::MAX, "it was cancelled");
                }
            }
        });
        trace.assert_in_order();
        assert!(trace.parsed.events_of(EventType::GoEnd).count() >= count);
        until("all have ended", || rtprof::goroutine_profile().len() == 2);
    });
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn reads_and_writes(_: i32) {
    // SAFETY: these functions may be called in handlers, and `errno` is restored. The handler owns the descriptors.
    unsafe {
        let errno = *libc::__errno_location();
        let mut pipe = [0; 2];
        assert_eq!(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC), 0);
        let mut byte = [7_u8; 1];
        assert_eq!(libc::write(pipe[1], byte.as_ptr().cast(), 1), 1);
        let mut poll = libc::pollfd { fd: pipe[0], events: libc::POLLIN, revents: 0 };
        assert_eq!(libc::poll(&raw mut poll, 1, 1000), 1);
        assert_eq!(libc::read(pipe[0], byte.as_mut_ptr().cast(), 1), 1);
        // No data arrives, so the handler waits.
        poll.revents = 0;
        libc::poll(&raw mut poll, 1, 1);
        libc::close(pipe[0]);
        libc::close(pipe[1]);
        *libc::__errno_location() = errno;
    }
    SIGNALS.fetch_add(1, Relaxed);
}

/// Signal handlers make the same calls as the threads that they interrupt in calls.
#[test]
fn signal_handlers_make_calls() {
    child::isolated("signal_handlers_make_calls", || {
        handle(libc::SIGUSR1, reads_and_writes, libc::SA_RESTART);
        record_everything();
        set_block_profile_kinds(BlockKinds::ALL);
        let (background, ids) = (Background::default(), Mutex::new(Vec::new()));
        let trace = record(|| {
            scope(|scope| {
                let ends = background.ends_here();
                for _ in 0..2 {
                    let (one, other) = UnixStream::pair().expect("there are descriptors");
                    scope.spawn(|| {
                        ids.lock().unwrap().push(thread_id());
                        background.repeat(move || {
                            let mut bytes = [0; 4096];
                            (&one).write_all(&bytes).expect("the other end is open");
                            (&other).read_exact(&mut bytes).expect("they were written");
                        });
                    });
                }
                let started = Instant::now();
                while started.elapsed() < stress() || SIGNALS.load(Relaxed) < 200 {
                    ids.lock().unwrap().iter().copied().for_each(signal);
                    std::thread::yield_now();
                }
                drop(ends);
            });
        });
        trace.assert_in_order();
    });
}

extern "C" fn writes(_: i32) {
    // SAFETY: `write` may be called in a handler, and reads no bytes.
    unsafe { libc::write(libc::STDERR_FILENO, null(), 0) };
    SIGNALS.fetch_add(1, Relaxed);
}

/// A handler that makes a call leaves its thread in the call that the handler has interrupted.
#[test]
fn a_call_goes_on_after_a_handler() {
    child::isolated("a_call_goes_on_after_a_handler", || {
        handle(libc::SIGUSR1, writes, libc::SA_RESTART);
        let (mut one, mut other) = UnixStream::pair().expect("there are descriptors");
        let trace = scope(|scope| {
            let (tx, rx) = mpsc::channel();
            let trace = record(|| {
                let body = move || {
                    tx.send(thread_id()).unwrap();
                    other.read_exact(&mut [0]).expect("there will be a byte");
                };
                let builder = std::thread::Builder::new().name("receives".into());
                builder.spawn_scoped(scope, body).expect("there is a thread to be had");
                let id = rx.recv().unwrap();
                wait_until_asleep(id);
                signal(id);
                until("the handler has run", || SIGNALS.load(Relaxed) == 1);
                wait_until_asleep(id);
            });
            one.write_all(b"x").expect("the other end is open");
            trace
        });
        let story = trace.story(trace.goroutine("receives"));
        assert_eq!(story.last().unwrap().event_type(), EventType::GoBlockNet, "{story:#?}");
    });
}

/// Children that were forked while other threads were in calls make their own calls, and programs are run.
#[test]
fn children_make_calls() {
    fork::isolated("children_make_calls", "", || {
        record_everything();
        set_block_profile_kinds(BlockKinds::ALL);
        let background = Background::default();
        let trace = record(|| {
            scope(|scope| {
                let _ends = background.ends_here();
                let (one, other) = UnixStream::pair().expect("there are descriptors");
                let background = &background;
                scope.spawn(move || {
                    background.repeat(|| {
                        (&one).write_all(b"x").expect("the other end is open");
                        (&other).read_exact(&mut [0]).expect("it was written");
                    });
                });
                for _ in 0..10 {
                    fork::in_a_child("reads what it has written", || {
                        record_everything();
                        let (mut one, mut other) = UnixStream::pair().expect("there are descriptors");
                        let thread = std::thread::spawn(move || one.write_all(b"x").expect("it is open"));
                        other.read_exact(&mut [0]).expect("it is written");
                        thread.join().unwrap();
                    });
                    let mut cat = Command::new("cat");
                    let mut cat =
                        cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it is there");
                    cat.stdin.take().expect("it was asked for").write_all(b"text").expect("it reads");
                    assert_eq!(cat.wait_with_output().expect("it ends").stdout, b"text");
                }
            });
        });
        trace.assert_in_order();
    });
}
