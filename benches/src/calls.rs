//! Calls of the C library that do not wait, one after the other.

mod library;

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::mem::zeroed;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::{null, null_mut};

use crate::processor::Stopwatch;
use crate::statistics::median;
use library::Library;

/// The objects that the calls use.
pub struct Calls {
    zero: File,
    null: File,
    /// A file with one byte and without a name.
    own: OwnedFd,
    ends: [UnixStream; 2],
    /// A listener without clients, which does not block.
    listener: TcpListener,
    set: OwnedFd,
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    condition: UnsafeCell<libc::pthread_cond_t>,
    word: u32,
}

/// The number of turns in a measurement. Short ones, because the machine may be half as fast a millisecond later.
const TURNS: usize = 9;

/// A call, or two calls that go together.
type Call = fn(&Calls, &Library);

macro_rules! calls {
    ($($name:literal: |$calls:pat_param, $c:ident| $body:expr;)*) => {
        /// All measured calls, by their names.
        const CALLS: &[(&str, Call)] = &[$(
            // SAFETY: the arguments live until the C library returns, and the library keeps none of them; the mutex and
            // the condition do not move, since the calls borrow them.
            ($name, |$calls, $c| unsafe { $body }),
        )*];
    };
}

calls! {
    "syscall": |_, c| assert!((c.syscall)(libc::SYS_getppid) >= 0);
    "syscall-futex": |calls, c| is(0, {
        (c.syscall)(libc::SYS_futex, &raw const calls.word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1)
    });
    "read": |calls, c| is(1, (c.read)(calls.zero.as_raw_fd(), byte(&mut 0), 1));
    "write": |calls, c| is(1, (c.write)(calls.null.as_raw_fd(), byte(&mut 0), 1));
    "readv": |calls, c| is(1, (c.readv)(calls.zero.as_raw_fd(), &bytes(&mut 0), 1));
    "writev": |calls, c| is(1, (c.writev)(calls.null.as_raw_fd(), &bytes(&mut 0), 1));
    "pread": |calls, c| is(1, (c.pread)(calls.own.as_raw_fd(), byte(&mut 0), 1, 0));
    "pwrite": |calls, c| is(1, (c.pwrite)(calls.own.as_raw_fd(), byte(&mut 0), 1, 0));
    "sendfile": |calls, c| is(0, (c.sendfile)(calls.null.as_raw_fd(), calls.own.as_raw_fd(), &mut 1, 1));
    "fsync": |calls, c| is(-1, (c.fsync)(calls.null.as_raw_fd()));
    "fdatasync": |calls, c| is(-1, (c.fdatasync)(calls.null.as_raw_fd()));
    "flock": |calls, c| is(0, (c.flock)(calls.own.as_raw_fd(), libc::LOCK_UN));
    "send+recv": |calls, c| {
        let [to, from] = calls.ends();
        is(1, (c.send)(to, byte(&mut 0), 1, 0));
        is(1, (c.recv)(from, byte(&mut 0), 1, 0));
    };
    "sendto+recvfrom": |calls, c| {
        let [to, from] = calls.ends();
        is(1, (c.sendto)(to, byte(&mut 0), 1, 0, null(), 0));
        is(1, (c.recvfrom)(from, byte(&mut 0), 1, 0, null_mut(), null_mut()));
    };
    "sendmsg+recvmsg": |calls, c| {
        let [to, from] = calls.ends();
        let (mut value, mut message) = (0, zeroed::<libc::msghdr>());
        let mut part = bytes(&mut value);
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        is(1, (c.sendmsg)(to, &raw const message, 0));
        is(1, (c.recvmsg)(from, &raw mut message, 0));
    };
    "accept": |calls, c| is(-1, (c.accept)(calls.listener.as_raw_fd(), null_mut(), null_mut()));
    "accept4": |calls, c| is(-1, (c.accept4)(calls.listener.as_raw_fd(), null_mut(), null_mut(), 0));
    "connect": |calls, c| is(-1, (c.connect)(calls.ends()[0], &zeroed(), size_of::<libc::sockaddr>() as u32));
    "poll": |calls, c| is(0, (c.poll)(&mut calls.polled(), 1, 0));
    "ppoll": |calls, c| is(0, (c.ppoll)(&mut calls.polled(), 1, &time(0), null()));
    "select": |_, c| is(0, (c.select)(0, null_mut(), null_mut(), null_mut(), &mut zeroed()));
    "epoll_wait": |calls, c| is(0, (c.epoll_wait)(calls.set.as_raw_fd(), &mut zeroed(), 1, 0));
    "epoll_pwait": |calls, c| is(0, (c.epoll_pwait)(calls.set.as_raw_fd(), &mut zeroed(), 1, 0, null()));
    "waitpid": |_, c| is(-1, (c.waitpid)(-1, null_mut(), libc::WNOHANG));
    "wait4": |_, c| is(-1, (c.wait4)(-1, null_mut(), libc::WNOHANG, null_mut()));
    "waitid": |_, c| is(-1, (c.waitid)(libc::P_ALL, 0, &mut zeroed(), libc::WNOHANG | libc::WEXITED));
    "nanosleep": |_, c| is(-1, (c.nanosleep)(&time(-1), null_mut()));
    "clock_nanosleep": |_, c| {
        is(libc::EINVAL, (c.clock_nanosleep)(libc::CLOCK_MONOTONIC, 0, &time(-1), null_mut()));
    };
    "sched_yield": |_, c| is(0, (c.sched_yield)());
    "pthread_mutex_lock+unlock": |calls, c| {
        is(0, (c.pthread_mutex_lock)(calls.mutex.get()));
        is(0, (c.pthread_mutex_unlock)(calls.mutex.get()));
    };
    "pthread_mutex_timedlock+unlock": |calls, c| {
        is(0, (c.pthread_mutex_timedlock)(calls.mutex.get(), &time(0)));
        is(0, (c.pthread_mutex_unlock)(calls.mutex.get()));
    };
    "pthread_cond_signal": |calls, c| is(0, (c.pthread_cond_signal)(calls.condition.get()));
    "pthread_cond_broadcast": |calls, c| is(0, (c.pthread_cond_broadcast)(calls.condition.get()));
}

/// Asserts the result of a call: a call with another result has another cost.
#[inline(always)]
fn is<T: PartialEq + Debug>(expected: T, result: T) {
    assert_eq!(result, expected, "{}", std::io::Error::last_os_error());
}

fn byte(value: &mut u8) -> *mut c_void {
    (&raw mut *value).cast()
}

fn bytes(value: &mut u8) -> libc::iovec {
    libc::iovec { iov_base: byte(value), iov_len: 1 }
}

/// Returns a timeout of 0, or, if `nanos` is negative, an invalid one.
fn time(nanos: i64) -> libc::timespec {
    libc::timespec { tv_sec: 0, tv_nsec: nanos }
}

/// Returns the names of all measurements: one call, or two with a `+` between them.
pub fn names() -> impl Iterator<Item = &'static str> {
    CALLS.iter().map(|(name, _)| *name)
}

impl Default for Calls {
    fn default() -> Self {
        Self::new()
    }
}

impl Calls {
    /// Opens the objects that the calls use.
    ///
    /// # Panics
    /// When the system has no room for a few descriptors.
    pub fn new() -> Self {
        let open = |path| OpenOptions::new().read(true).write(true).open(path).expect("every Linux has it");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("sockets can");
        let (a, b) = UnixStream::pair().expect("there is room");
        // SAFETY: plain system calls; the new descriptors have no other owner.
        let [own, set] = unsafe {
            [libc::memfd_create(c"own".as_ptr(), 0), libc::epoll_create1(0)].map(|descriptor| {
                assert!(descriptor >= 0, "there is room");
                OwnedFd::from_raw_fd(descriptor)
            })
        };
        // SAFETY: a plain system call.
        assert_eq!(unsafe { libc::ftruncate(own.as_raw_fd(), 1) }, 0, "there is room");
        Self {
            zero: open("/dev/zero"),
            null: open("/dev/null"),
            own,
            ends: [a, b],
            listener,
            set,
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            condition: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
            word: 0,
        }
    }

    fn ends(&self) -> [i32; 2] {
        [self.ends[0].as_raw_fd(), self.ends[1].as_raw_fd()]
    }

    /// Returns the end to poll, at which no data arrives.
    fn polled(&self) -> libc::pollfd {
        libc::pollfd { fd: self.ends[0].as_raw_fd(), events: libc::POLLIN, revents: 0 }
    }

    /// Returns the nanoseconds for one of `count` calls of this name: of the C library's own function, of the same again,
    /// and of the function that the program is linked with. They take turns, and the medians are returned.
    ///
    /// # Panics
    /// When the name is unknown, or the call fails.
    pub fn measure(&self, name: &str, count: usize) -> [f64; 3] {
        let (_, call) = CALLS.iter().find(|(known, _)| *known == name).expect("driver and part agree");
        let libraries = [Library::own(), Library::own(), Library::linked()];
        let mut nanos = [const { vec![] }; 3];
        for turn in 0..TURNS {
            for step in 0..libraries.len() {
                let place = (turn + step) % libraries.len();
                nanos[place].push(self.timed(black_box(*call), libraries[place], count / TURNS));
            }
        }
        nanos.map(|nanos| median(&nanos))
    }

    #[inline(never)]
    fn timed(&self, call: Call, library: &Library, count: usize) -> f64 {
        (0..count / 8).for_each(|_| call(self, library));
        let watch = Stopwatch::start();
        (0..count).for_each(|_| call(self, library));
        watch.nanos_each(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_can_be_made_again_and_again() {
        let calls = Calls::new();
        for name in names() {
            assert!(calls.measure(name, 20 * TURNS).iter().all(|nanos| *nanos > 0.0), "{name}");
        }
    }
}
