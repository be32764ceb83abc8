//! Functions that replace the C library's: each does the same as the original, with the same result.

use std::mem::{size_of_val, zeroed};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rtprof::{BlockKinds, set_block_profile_kinds};
use test_support::child;
use test_support::contention::record_everything;
use test_support::recording::record;

/// A number that no call leaves in `errno`.
const UNTOUCHED: i32 = 4000;

/// Returns the result of a call, and the value that it leaves in `errno`.
fn outcome<R: TryInto<i64>>(call: impl FnOnce() -> R) -> (i64, i32) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = UNTOUCHED };
    let result = call().try_into().ok().expect("a small number");
    (result, std::io::Error::last_os_error().raw_os_error().expect("it is one of the system's"))
}

#[track_caller]
fn succeeds<R: TryInto<i64>>(expected: i64, call: impl FnOnce() -> R) {
    assert_eq!(outcome(call), (expected, UNTOUCHED));
}

#[track_caller]
fn fails<R: TryInto<i64>>(errno: i32, call: impl FnOnce() -> R) {
    assert_eq!(outcome(call), (-1, errno));
}

fn part(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// Writes and reads a file with every function, at different offsets.
fn files() {
    let path = std::env::temp_dir().join(format!("rtprof-results-{}", std::process::id()));
    let open = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let file = open.expect("there is a folder for such files");
    std::fs::remove_file(&path).expect("it is ours");
    let number = file.as_raw_fd();
    let (mut a, mut b, mut c) = (*b"ab", *b"cde", [0; 8]);
    // SAFETY: every pointer is to a local with the given length.
    unsafe {
        succeeds(2, || libc::write(number, a.as_ptr().cast(), 2));
        let parts = [part(&mut a), part(&mut b)];
        succeeds(5, || libc::writev(number, parts.as_ptr(), 2));
        succeeds(3, || libc::pwrite(number, b.as_ptr().cast(), 3, 10));
        succeeds(3, || libc::pwrite64(number, b.as_ptr().cast(), 3, 13));
        succeeds(5, || libc::pwritev(number, parts.as_ptr(), 2, 20));
        succeeds(5, || libc::pwritev64(number, parts.as_ptr(), 2, 25));
        let expected = b"ababcde\0\0\0cdecde\0\0\0\0abcdeabcde";
        let mut all = [1; 64];
        succeeds(30, || libc::pread(number, all.as_mut_ptr().cast(), 64, 0));
        assert_eq!(&all[..30], expected);
        succeeds(8, || libc::pread64(number, c.as_mut_ptr().cast(), 8, 22));
        assert_eq!(&c, b"cdeabcde");
        succeeds(2, || libc::lseek(number, 2, libc::SEEK_SET));
        succeeds(8, || libc::read(number, c.as_mut_ptr().cast(), 8));
        assert_eq!(c, expected[2..10]);
        let (mut d, mut e) = ([0; 3], [0; 4]);
        let parts = [part(&mut d), part(&mut e)];
        succeeds(7, || libc::readv(number, parts.as_ptr(), 2));
        assert_eq!([&d[..], &e[..]].concat(), expected[10..17]);
        succeeds(7, || libc::preadv(number, parts.as_ptr(), 2, 1));
        assert_eq!([&d[..], &e[..]].concat(), expected[1..8]);
        succeeds(7, || libc::preadv64(number, parts.as_ptr(), 2, 23));
        assert_eq!([&d[..], &e[..]].concat(), expected[23..30]);
        succeeds(0, || libc::fsync(number));
        succeeds(0, || libc::fdatasync(number));
        succeeds(0, || libc::flock(number, libc::LOCK_EX | libc::LOCK_NB));
        let (reads, writes) = std::io::pipe().expect("there are descriptors");
        let mut at = 10;
        succeeds(3, || libc::sendfile(writes.as_raw_fd(), number, &raw mut at, 3));
        succeeds(3, || libc::sendfile64(writes.as_raw_fd(), number, &raw mut at, 3));
        succeeds(6, || libc::read(reads.as_raw_fd(), c.as_mut_ptr().cast(), 8));
        assert_eq!((&c[..6], at), (&b"cdecde"[..], 16));
        fails(libc::EBADF, || libc::read(-1, c.as_mut_ptr().cast(), 8));
        fails(libc::EBADF, || libc::write(-1, c.as_ptr().cast(), 8));
        fails(libc::EINVAL, || libc::readv(number, parts.as_ptr(), -1));
        fails(libc::EINVAL, || libc::pread(number, c.as_mut_ptr().cast(), 8, -1));
        fails(libc::EBADF, || libc::fsync(-1));
        fails(libc::EINVAL, || libc::flock(number, 0));
    }
}

/// Sends and receives with every function.
fn sockets() {
    let (one, other) = UnixStream::pair().expect("there are descriptors");
    let (one_number, other_number) = (one.as_raw_fd(), other.as_raw_fd());
    let (mut bytes, mut taken) = (*b"abcd", [0; 8]);
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: every pointer is to a local with the given length, or null where that is allowed.
    unsafe {
        let mut parts = [part(&mut bytes)];
        let mut message: libc::msghdr = zeroed();
        (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), 1);
        let mut taken_parts = [part(&mut taken)];
        let mut taken_message: libc::msghdr = zeroed();
        (taken_message.msg_iov, taken_message.msg_iovlen) = (taken_parts.as_mut_ptr(), 1);
        succeeds(4, || libc::send(one_number, bytes.as_ptr().cast(), 4, 0));
        succeeds(4, || libc::recv(other_number, taken.as_mut_ptr().cast(), 8, libc::MSG_PEEK));
        succeeds(3, || libc::recv(other_number, taken.as_mut_ptr().cast(), 3, 0));
        succeeds(1, || libc::recvmsg(other_number, &raw mut taken_message, 0));
        assert_eq!(&taken, b"dbcd\0\0\0\0");
        succeeds(4, || libc::sendto(one_number, bytes.as_ptr().cast(), 4, 0, null(), 0));
        succeeds(4, || libc::recvfrom(other_number, taken.as_mut_ptr().cast(), 8, 0, null_mut(), null_mut()));
        succeeds(4, || libc::sendmsg(one_number, &raw const message, libc::MSG_NOSIGNAL));
        let mut several = [libc::mmsghdr { msg_hdr: message, msg_len: 0 }];
        succeeds(1, || libc::sendmmsg(one_number, several.as_mut_ptr(), 1, 0));
        let mut time = libc::timespec { tv_sec: 1, tv_nsec: 0 };
        let mut taken_several = [libc::mmsghdr { msg_hdr: taken_message, msg_len: 0 }];
        succeeds(1, || libc::recvmmsg(other_number, taken_several.as_mut_ptr(), 1, 0, &raw mut time));
        assert_eq!((several[0].msg_len, taken_several[0].msg_len, &taken), (4, 8, b"abcdabcd"));
        fails(libc::EAGAIN, || libc::recv(other_number, taken.as_mut_ptr().cast(), 8, flags));
        fails(libc::EAGAIN, || libc::recvmsg(other_number, &raw mut taken_message, flags));
        fails(libc::EBADF, || libc::send(-1, bytes.as_ptr().cast(), 4, 0));
        fails(libc::EBADF, || libc::accept(-1, null_mut(), null_mut()));
        fails(libc::EBADF, || libc::accept4(-1, null_mut(), null_mut(), 0));
        fails(libc::EBADF, || libc::connect(-1, null(), 0));
        drop(other);
        fails(libc::EPIPE, || libc::send(one_number, bytes.as_ptr().cast(), 4, libc::MSG_NOSIGNAL));
        succeeds(0, || libc::recv(one_number, taken.as_mut_ptr().cast(), 8, 0));
    }
    connections();
}

fn connections() {
    let path = std::env::temp_dir().join(format!("rtprof-socket-{}", std::process::id()));
    // Left by a test that was killed.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("there is a folder for such files");
    for with_flags in [false, true] {
        let client = UnixStream::connect(&path).expect("it listens");
        // SAFETY: every pointer is to a local with the given length.
        unsafe {
            let mut address: libc::sockaddr_un = zeroed();
            let mut length = size_of_val(&address) as u32;
            let to: *mut libc::sockaddr = (&raw mut address).cast();
            let number = listener.as_raw_fd();
            let accepted = if with_flags {
                libc::accept4(number, to, &raw mut length, libc::SOCK_NONBLOCK)
            } else {
                libc::accept(number, to, &raw mut length)
            };
            assert!(accepted >= 0 && length >= 2 && i32::from(address.sun_family) == libc::AF_UNIX);
            let is_nonblocking = libc::fcntl(accepted, libc::F_GETFL) & libc::O_NONBLOCK != 0;
            assert_eq!(is_nonblocking, with_flags);
            succeeds(0, || libc::close(accepted));
        }
        drop(client);
    }
    std::fs::remove_file(&path).expect("it is ours");
}

/// Polls with every function: ready, not ready, and invalid requests.
fn polls() {
    let (one, other) = UnixStream::pair().expect("there are descriptors");
    let number = one.as_raw_fd();
    let millisecond = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let never = libc::timespec { tv_sec: 0, tv_nsec: -1 };
    let signals = null();
    // SAFETY: every pointer is to a local, or null where that is allowed.
    unsafe {
        let set = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 77 };
        succeeds(0, || libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, number, &raw mut event));
        for ready in [0, 1] {
            let mut poll = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
            for timeout in [0, 1] {
                succeeds(ready, || libc::poll(&raw mut poll, 1, timeout));
                assert_eq!(i64::from(poll.revents), ready * i64::from(libc::POLLIN));
                succeeds(ready, || libc::epoll_wait(set, &raw mut event, 1, timeout));
                succeeds(ready, || libc::epoll_pwait(set, &raw mut event, 1, timeout, signals));
            }
            succeeds(ready, || libc::ppoll(&raw mut poll, 1, &raw const millisecond, signals));
            let with_set = |call: &dyn Fn(*mut libc::fd_set) -> i32| {
                let mut reads = zeroed();
                libc::FD_SET(number, &raw mut reads);
                succeeds(ready, || call(&raw mut reads));
                assert_eq!(i64::from(libc::FD_ISSET(number, &raw const reads)), ready);
            };
            with_set(&|reads| {
                let hour = libc::timeval { tv_sec: 3600, tv_usec: 5 };
                let mut time = if ready == 0 { libc::timeval { tv_sec: 0, tv_usec: 1500 } } else { hour };
                let found = libc::select(number + 1, reads, null_mut(), null_mut(), &raw mut time);
                // Linux writes the remaining time.
                match ready {
                    0 => assert_eq!((time.tv_sec, time.tv_usec), (0, 0)),
                    _ => assert!((3000..=3600).contains(&time.tv_sec), "{} s", time.tv_sec),
                }
                found
            });
            with_set(&|reads| {
                libc::pselect(number + 1, reads, null_mut(), null_mut(), &raw const millisecond, signals)
            });
            if ready == 0 {
                succeeds(1, || libc::write(other.as_raw_fd(), b"x".as_ptr().cast(), 1));
            }
        }
        assert_eq!({ event.u64 }, 77);
        fails(libc::EINVAL, || libc::ppoll(null_mut(), 0, &raw const never, signals));
        fails(libc::EINVAL, || {
            libc::pselect(0, null_mut(), null_mut(), null_mut(), &raw const never, signals)
        });
        fails(libc::EINVAL, || libc::select(-1, null_mut(), null_mut(), null_mut(), null_mut()));
        fails(libc::EBADF, || libc::epoll_wait(-1, &raw mut event, 1, 0));
        fails(libc::EINVAL, || libc::epoll_pwait(set, &raw mut event, 0, 0, signals));
        succeeds(0, || libc::close(set));
    }
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn counts(_: i32) {
    SIGNALS.fetch_add(1, Relaxed);
}

/// Checks that a signal that is unblocked only during the call interrupts it.
fn masks() {
    let second = libc::timespec { tv_sec: 60, tv_nsec: 0 };
    let (one, _other) = UnixStream::pair().expect("there are descriptors");
    let number = one.as_raw_fd();
    // SAFETY: the all-zero structures are valid; every pointer is to a local, or null where that is allowed.
    unsafe {
        let set = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = counts as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, null_mut()), 0);
        let (mut blocked, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigaddset(&raw mut blocked, libc::SIGUSR2);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before), 0);
        let during = &raw const before;
        let interrupted = |call: &mut dyn FnMut() -> i32| {
            let seen = SIGNALS.load(Relaxed);
            assert_eq!(libc::raise(libc::SIGUSR2), 0);
            assert_eq!(SIGNALS.load(Relaxed), seen, "it is blocked");
            fails(libc::EINTR, call);
            assert_eq!(SIGNALS.load(Relaxed), seen + 1);
        };
        let mut poll = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
        interrupted(&mut || libc::ppoll(&raw mut poll, 1, &raw const second, during));
        interrupted(&mut || libc::pselect(0, null_mut(), null_mut(), null_mut(), &raw const second, during));
        interrupted(&mut || libc::epoll_pwait(set, &raw mut event, 1, 60_000, during));
        interrupted(&mut || epoll_pwait2(set, &raw mut event, 1, &raw const second, during));
        assert_eq!(libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut()), 0);
        succeeds(0, || libc::close(set));
    }
}

unsafe extern "C" {
    /// The crate `libc` lacks this function for some C libraries.
    fn epoll_pwait2(
        set: i32,
        events: *mut libc::epoll_event,
        most: i32,
        time: *const libc::timespec,
        signals: *const libc::sigset_t,
    ) -> i32;
}

/// Waits for children with every function.
fn processes() {
    type Wait = fn(i32, &mut i32) -> i32;
    let ways: [Wait; 3] = [
        // SAFETY: the pointer is to the status, which outlives the call.
        |child, status| unsafe { libc::waitpid(child, status, 0) },
        |child, status| {
            // SAFETY: the pointers are to a local and to the status.
            let (ended, usage) = unsafe {
                let mut usage: libc::rusage = zeroed();
                (libc::wait4(child, status, 0, &raw mut usage), usage)
            };
            assert!(usage.ru_maxrss > 0);
            ended
        },
        |child, status| {
            let options = libc::WEXITED | libc::WNOWAIT;
            // SAFETY: the pointer is to a local; the kernel has filled the structure in for a child, so its fields are
            // valid.
            let (found, signal, exit) = unsafe {
                let mut info: libc::siginfo_t = zeroed();
                let found = libc::waitid(libc::P_PID, child as u32, &raw mut info, options);
                (found, info.si_signo, info.si_status())
            };
            assert_eq!((found, signal, exit), (0, libc::SIGCHLD, 7));
            // SAFETY: the pointer is to the status, which outlives the call.
            unsafe { libc::waitpid(child, status, libc::WNOHANG) }
        },
    ];
    for wait in ways {
        let child = std::process::Command::new("sh").args(["-c", "exit 7"]).spawn();
        let child = child.expect("every system has a shell").id() as i32;
        let mut status = 0;
        succeeds(child.into(), || wait(child, &mut status));
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7);
    }
    // SAFETY: null is allowed.
    unsafe {
        fails(libc::ECHILD, || libc::waitpid(-1, null_mut(), 0));
        fails(libc::ECHILD, || libc::wait4(-1, null_mut(), 0, null_mut()));
        fails(libc::ECHILD, || libc::waitid(libc::P_ALL, 0, null_mut(), libc::WEXITED));
    }
}

#[test]
fn every_function_does_what_it_is_for() {
    child::isolated("every_function_does_what_it_is_for", || {
        let all = || [files, sockets, polls, masks, processes].iter().for_each(|group| group());
        all();
        record_everything();
        all();
        set_block_profile_kinds(BlockKinds::ALL);
        all();
        record(all).assert_whole();
    });
}
