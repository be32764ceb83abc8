//! The functions of the C library that are measured, reached in two ways.

use std::ffi::{c_int, c_long, c_void};
use std::mem::transmute_copy;
use std::sync::OnceLock;

use libc::{
    clockid_t, epoll_event, fd_set, id_t, idtype_t, iovec, msghdr, nfds_t, off_t, pid_t, pollfd,
    pthread_cond_t, pthread_mutex_t, rusage, siginfo_t, sigset_t, sockaddr, socklen_t, timespec, timeval,
};

macro_rules! library {
    ($($name:ident: $type:ty;)*) => {
        /// Pointers to the functions, so that both ways are the same code for the caller.
        pub(super) struct Library {
            $(pub(super) $name: $type,)*
        }

        impl Library {
            /// The functions that the program calls: those that it defines itself, if it does.
            pub(super) fn linked() -> &'static Self {
                static LIBRARY: Library = Library { $($name: libc::$name,)* };
                &LIBRARY
            }

            /// The C library's own functions.
            pub(super) fn own() -> &'static Self {
                static LIBRARY: OnceLock<Library> = OnceLock::new();
                LIBRARY.get_or_init(|| Library {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the name is a C string. The program comes first, so the next object that has the
                        // name is a library.
                        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
                        assert!(!found.is_null(), "the C library has {name}");
                        // SAFETY: a function of this name has this type, and its pointer this size.
                        unsafe { transmute_copy::<*mut c_void, $type>(&found) }
                    },)*
                })
            }
        }
    };
}

library! {
    syscall: unsafe extern "C" fn(c_long, ...) -> c_long;
    read: unsafe extern "C" fn(c_int, *mut c_void, usize) -> isize;
    write: unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
    readv: unsafe extern "C" fn(c_int, *const iovec, c_int) -> isize;
    writev: unsafe extern "C" fn(c_int, *const iovec, c_int) -> isize;
    pread: unsafe extern "C" fn(c_int, *mut c_void, usize, off_t) -> isize;
    pwrite: unsafe extern "C" fn(c_int, *const c_void, usize, off_t) -> isize;
    sendfile: unsafe extern "C" fn(c_int, c_int, *mut off_t, usize) -> isize;
    fsync: unsafe extern "C" fn(c_int) -> c_int;
    fdatasync: unsafe extern "C" fn(c_int) -> c_int;
    flock: unsafe extern "C" fn(c_int, c_int) -> c_int;
    send: unsafe extern "C" fn(c_int, *const c_void, usize, c_int) -> isize;
    recv: unsafe extern "C" fn(c_int, *mut c_void, usize, c_int) -> isize;
    sendto: unsafe extern "C" fn(c_int, *const c_void, usize, c_int, *const sockaddr, socklen_t) -> isize;
    recvfrom: unsafe extern "C" fn(c_int, *mut c_void, usize, c_int, *mut sockaddr, *mut socklen_t) -> isize;
    sendmsg: unsafe extern "C" fn(c_int, *const msghdr, c_int) -> isize;
    recvmsg: unsafe extern "C" fn(c_int, *mut msghdr, c_int) -> isize;
    accept: unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    accept4: unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;
    connect: unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
    poll: unsafe extern "C" fn(*mut pollfd, nfds_t, c_int) -> c_int;
    ppoll: unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    select: unsafe extern "C" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;
    epoll_wait: unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int) -> c_int;
    epoll_pwait: unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
    waitpid: unsafe extern "C" fn(pid_t, *mut c_int, c_int) -> pid_t;
    wait4: unsafe extern "C" fn(pid_t, *mut c_int, c_int, *mut rusage) -> pid_t;
    waitid: unsafe extern "C" fn(idtype_t, id_t, *mut siginfo_t, c_int) -> c_int;
    nanosleep: unsafe extern "C" fn(*const timespec, *mut timespec) -> c_int;
    clock_nanosleep: unsafe extern "C" fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int;
    sched_yield: unsafe extern "C" fn() -> c_int;
    pthread_mutex_lock: unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int;
    pthread_mutex_unlock: unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int;
    pthread_mutex_timedlock: unsafe extern "C" fn(*mut pthread_mutex_t, *const timespec) -> c_int;
    pthread_cond_signal: unsafe extern "C" fn(*mut pthread_cond_t) -> c_int;
    pthread_cond_broadcast: unsafe extern "C" fn(*mut pthread_cond_t) -> c_int;
}
