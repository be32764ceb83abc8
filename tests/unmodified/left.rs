//! Calls that the program leaves without a return, from a signal handler: by C's `siglongjmp`, or by an unwinding as that of
//! a C++ exception. The thread is recorded afterwards as before.
#![cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::io::{Read, Write};
use std::mem::zeroed;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::panic::{catch_unwind, resume_unwind};
use std::ptr::{null, null_mut};
use std::sync::mpsc;
use std::thread::scope;

use rtprof::{BlockKinds, set_block_profile_kinds};
use test_support::child;
use test_support::contention::{Seen, record_everything, thread_id, wait_until_asleep};
use test_support::library::{Library, library, library_with};
use test_support::recording::record;
use test_support::signals::{set_of, unblock};

// As in libc, but an unwinding may leave them.
unsafe extern "C-unwind" {
    fn read(file: c_int, to: *mut c_void, size: usize) -> isize;
    fn recv(socket: c_int, to: *mut c_void, size: usize, flags: c_int) -> isize;
    fn accept(socket: c_int, address: *mut libc::sockaddr, length: *mut libc::socklen_t) -> c_int;
    fn poll(descriptors: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
    fn select(
        count: c_int,
        reads: *mut libc::fd_set,
        writes: *mut libc::fd_set,
        errors: *mut libc::fd_set,
        time: *mut libc::timeval,
    ) -> c_int;
    fn epoll_wait(set: c_int, events: *mut libc::epoll_event, most: c_int, timeout: c_int) -> c_int;
    fn nanosleep(wanted: *const libc::timespec, left: *mut libc::timespec) -> c_int;
    fn syscall(number: i64, ...) -> i64;
    fn pthread_cond_wait(condition: *mut libc::pthread_cond_t, mutex: *mut libc::pthread_mutex_t) -> c_int;
    fn pthread_mutex_lock(mutex: *mut libc::pthread_mutex_t) -> c_int;
}

/// What the calls use.
struct Used {
    /// Nothing arrives here.
    silent: UnixStream,
    _far: UnixStream,
    listener: TcpListener,
    events: c_int,
    word: u32,
    /// The main thread holds it.
    held: UnsafeCell<libc::pthread_mutex_t>,
    /// The caller holds it.
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    condition: UnsafeCell<libc::pthread_cond_t>,
}

// SAFETY: the cells are used by functions that any number of threads may call at the same time.
unsafe impl Sync for Used {}

impl Used {
    fn new() -> Self {
        let (silent, far) = UnixStream::pair().expect("there are descriptors");
        // SAFETY: plain system calls, and initialisers that are all zeros.
        unsafe {
            Self {
                silent,
                _far: far,
                listener: TcpListener::bind("127.0.0.1:0").expect("there is a port"),
                events: libc::epoll_create1(libc::EPOLL_CLOEXEC),
                word: 0,
                held: zeroed(),
                mutex: zeroed(),
                condition: zeroed(),
            }
        }
    }
}

type Call = extern "C-unwind" fn(&Used);

/// Calls that wait for ever. They have nothing to drop.
const CALLS: [(&str, Call); 10] = [
    ("read", {
        extern "C-unwind" fn call(used: &Used) {
            let mut bytes = [0_u8; 8];
            // SAFETY: writes to a local.
            unsafe { read(used.silent.as_raw_fd(), bytes.as_mut_ptr().cast(), 8) };
        }
        call
    }),
    ("recv", {
        extern "C-unwind" fn call(used: &Used) {
            let mut bytes = [0_u8; 8];
            // SAFETY: writes to a local.
            unsafe { recv(used.silent.as_raw_fd(), bytes.as_mut_ptr().cast(), 8, 0) };
        }
        call
    }),
    ("accept", {
        extern "C-unwind" fn call(used: &Used) {
            // SAFETY: null pointers are allowed.
            unsafe { accept(used.listener.as_raw_fd(), null_mut(), null_mut()) };
        }
        call
    }),
    ("poll", {
        extern "C-unwind" fn call(used: &Used) {
            let mut poll_for = libc::pollfd { fd: used.silent.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: writes to a local.
            unsafe { poll(&raw mut poll_for, 1, -1) };
        }
        call
    }),
    ("select", {
        extern "C-unwind" fn call(_: &Used) {
            // SAFETY: null pointers are allowed.
            unsafe { select(0, null_mut(), null_mut(), null_mut(), null_mut()) };
        }
        call
    }),
    ("epoll_wait", {
        extern "C-unwind" fn call(used: &Used) {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: writes to a local.
            unsafe { epoll_wait(used.events, &raw mut event, 1, -1) };
        }
        call
    }),
    ("nanosleep", {
        extern "C-unwind" fn call(_: &Used) {
            let wanted = libc::timespec { tv_sec: 1 << 20, tv_nsec: 0 };
            // SAFETY: reads a local.
            unsafe { nanosleep(&raw const wanted, null_mut()) };
        }
        call
    }),
    ("futex", {
        extern "C-unwind" fn call(used: &Used) {
            let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: the word outlives the call.
            unsafe { syscall(libc::SYS_futex, &raw const used.word, operation, 0, null::<libc::timespec>()) };
        }
        call
    }),
    ("pthread_cond_wait", {
        extern "C-unwind" fn call(used: &Used) {
            // SAFETY: both are valid. The mutex is unlocked in the call, and not locked again when the call is left.
            unsafe {
                pthread_mutex_lock(used.mutex.get());
                pthread_cond_wait(used.condition.get(), used.mutex.get());
            }
        }
        call
    }),
    ("pthread_mutex_lock", {
        extern "C-unwind" fn call(used: &Used) {
            // SAFETY: the mutex is valid.
            unsafe { pthread_mutex_lock(used.held.get()) };
        }
        call
    }),
];

#[inline(never)]
fn reads_afterwards(mut from: &UnixStream) {
    from.read_exact(&mut [0]).expect("a byte is written");
    black_box("a frame");
}

#[inline(never)]
fn receives_afterwards(from: &mpsc::Receiver<()>) {
    from.recv().expect("something is sent");
    black_box("a frame");
}

const ROUNDS: i64 = 3;

/// Lets a thread leave each call by a signal a few times, and wait in two ways after each. `leave` makes the call, and returns
/// when it was left.
fn recorded_as_before(leave: impl Fn(Call, &Used) + Sync) {
    record_everything();
    set_block_profile_kinds(BlockKinds::ALL);
    let mut count = 0;
    for (name, call) in CALLS {
        let used = Used::new();
        // SAFETY: the mutex is valid.
        unsafe { libc::pthread_mutex_lock(used.held.get()) };
        let trace = record(|| {
            scope(|scope| {
                let (near, mut far) = UnixStream::pair().expect("there are descriptors");
                let (send, receive) = mpsc::channel();
                let (tx, rx) = mpsc::channel();
                let (used, leave) = (&used, &leave);
                let thread = scope.spawn(move || {
                    tx.send(thread_id()).expect("the test listens");
                    for _ in 0..ROUNDS {
                        leave(call, used);
                        reads_afterwards(&near);
                        receives_afterwards(&receive);
                    }
                });
                let id = rx.recv().expect("it has begun");
                for _ in 0..ROUNDS {
                    wait_until_asleep(id);
                    // SAFETY: a plain system call.
                    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, libc::SIGUSR1) };
                    wait_until_asleep(id);
                    far.write_all(b"x").expect("the other end is open");
                    wait_until_asleep(id);
                    send.send(()).expect("the other end is open");
                }
                thread.join().expect("it ends well");
            });
        });
        trace.assert_whole();
        trace.assert_in_order();
        count += ROUNDS;
        let seen = Seen::unmodified();
        let afterwards = ["reads_afterwards", "receives_afterwards"].map(|name| seen.blocked(name).count);
        assert_eq!(afterwards, [count; 2], "after {name}");
    }
}

/// Installs a handler that leaves system calls interrupted.
fn on_signal(handler: usize) {
    // SAFETY: an all-zero `sigaction` is valid; the callers pass handlers.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, null_mut()), 0);
    }
}

#[test]
fn by_a_jump() {
    type IsLeft = unsafe extern "C" fn(Call, &Used) -> c_int;
    let path = library("left_by_a_jump", include_str!("jumps.c"));
    child::isolated("by_a_jump", || {
        let library = Library::open(&path);
        on_signal(library.symbol(c"jump").addr());
        // SAFETY: the library has this function, of this type.
        let is_left: IsLeft = unsafe { std::mem::transmute(library.symbol(c"is_left_by_jump")) };
        // SAFETY: what the call uses outlives it, and it has nothing to drop.
        recorded_as_before(|call, used| assert_eq!(unsafe { is_left(call, used) }, 1));
    });
}

/// The stack of code without unwind tables cannot be walked, so that no call there is certain to be outside the one that was
/// left. All but a few are taken for that.
#[test]
fn by_a_jump_in_code_without_tables() {
    const TIMES: c_int = 30;
    const MOST_MISSED: i64 = 8;
    type Reads = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
    let options = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fomit-frame-pointer"];
    let path = library_with("without_tables", include_str!("without_tables.c"), &options);
    child::isolated("by_a_jump_in_code_without_tables", || {
        let library = Library::open(&path);
        on_signal(library.symbol(c"jump").addr());
        // SAFETY: the library has this function, of this type.
        let reads: Reads = unsafe { std::mem::transmute(library.symbol(c"reads_after_jump")) };
        record_everything();
        set_block_profile_kinds(BlockKinds::NETWORK | BlockKinds::SYSCALL);
        let used = Used::new();
        scope(|scope| {
            let (near, mut far) = UnixStream::pair().expect("there are descriptors");
            let (tx, rx) = mpsc::channel();
            let silent = used.silent.as_raw_fd();
            let thread = scope.spawn(move || {
                tx.send(thread_id()).expect("the test listens");
                // SAFETY: the descriptors are open, and nothing is to be dropped where the call is left.
                unsafe { reads(silent, near.as_raw_fd(), TIMES) }
            });
            let id = rx.recv().expect("it has begun");
            wait_until_asleep(id);
            // SAFETY: a plain system call.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, libc::SIGUSR1) };
            for _ in 0..TIMES {
                wait_until_asleep(id);
                far.write_all(b"x").expect("the other end is open");
            }
            assert_eq!(thread.join().expect("it ends well"), TIMES);
        });
        let count = Seen::unmodified().blocked("reads").count;
        assert!(
            (i64::from(TIMES) - MOST_MISSED..=TIMES.into()).contains(&count),
            "{count} of {TIMES} are recorded"
        );
    });
}

#[test]
fn by_an_unwinding() {
    extern "C-unwind" fn throws(_: c_int) {
        resume_unwind(Box::new(()));
    }
    child::isolated("by_an_unwinding", || {
        on_signal(throws as *const () as usize);
        recorded_as_before(|call, used| {
            assert!(catch_unwind(std::panic::AssertUnwindSafe(|| call(used))).is_err());
            // The signal is blocked in its handler.
            unblock(&set_of(&[libc::SIGUSR1]));
        });
    });
}

#[inline(never)]
fn waits(call: Call, used: &Used) {
    call(used);
    black_box("a frame");
}

/// Waits in a pipe in which nothing arrives.
extern "C" fn handles(_: c_int) {
    // SAFETY: these functions may be called in handlers, and `errno` is restored. The handler owns the descriptors.
    unsafe {
        let errno = *libc::__errno_location();
        let mut pipe = [0; 2];
        assert_eq!(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC), 0);
        let mut poll_for = libc::pollfd { fd: pipe[0], events: libc::POLLIN, revents: 0 };
        libc::poll(&raw mut poll_for, 1, 2);
        libc::close(pipe[0]);
        libc::close(pipe[1]);
        *libc::__errno_location() = errno;
    }
}

/// A handler that waits and returns has left nothing: its calls are part of the wait that it has interrupted.
#[test]
fn not_by_a_handler_that_returns() {
    child::isolated("not_by_a_handler_that_returns", || {
        on_signal(handles as *const () as usize);
        record_everything();
        set_block_profile_kinds(BlockKinds::ALL);
        // The last two go on after a signal.
        let calls = &CALLS[..8];
        for (_, call) in calls {
            let used = &Used::new();
            scope(|scope| {
                let (tx, rx) = mpsc::channel();
                scope.spawn(move || {
                    tx.send(thread_id()).expect("the test listens");
                    waits(*call, used);
                });
                let id = rx.recv().expect("it has begun");
                wait_until_asleep(id);
                // SAFETY: a plain system call.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, libc::SIGUSR1) };
            });
        }
        let seen = Seen::unmodified();
        assert_eq!(seen.blocked("handles").count, 0);
        assert_eq!(seen.blocked("waits").count, calls.len() as i64);
    });
}
