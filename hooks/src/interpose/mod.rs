//! Functions of the C library that this crate defines instead, so that a program's waits are recorded without a changed
//! line.
//!
//! Problem: a program has hundreds of locks, channels and threads in libraries that will not be changed for a profiler.
//! Scheme: they all call a few functions of the C library, and a program may define those itself: the linker takes the
//! first definition that it finds. The definitions here do what the C library's do, and report it to the profiler:
//!
//! ```text
//!   std, parking_lot, crossbeam, tokio ──► syscall(SYS_futex, ..) ──┐
//!   std::thread::spawn, C libraries ─────► pthread_create ──────────┼─► unwatched ─► as in the C library
//!   std::thread::sleep, JoinHandle::join ► nanosleep, pthread_join ─┘
//!                                                                   └─► InterposedWait ─► the call ─► its end is reported
//!   files, sockets, mio, processes ──────► read, recv, epoll_wait ──┬─► as in the C library
//!                                                                   └─► interposed_io ─► the call ─► recorded, if it was long
//! ```
//!
//! | file | functions | what is recorded |
//! |---|---|---|
//! | `futex` | `syscall`, of which only `SYS_futex` is looked at | a wait; who ended it is charged |
//! | `threads` | `pthread_create`, `pthread_join`, `pthread_setname_np` | threads, their creators and names; the wait for their end |
//! | `locks`, `conditions` | `pthread_mutex_lock`, `pthread_cond_wait` and similar | a wait; the unlocks that made it long are charged. `mutex` reads what a mutex says of itself |
//! | `sleeps` | `nanosleep`, `clock_nanosleep`, `usleep`, `sleep` | a wait that nothing can shorten |
//! | `files`, `processes` | `read`, `write`, `fsync`, `waitpid` and similar | a system call, if it was long |
//! | `sockets`, `messages`, `polls` | `recv`, `send`, `accept`, `poll`, `epoll_wait` and similar | a wait for the network, if it was one |
//! | `cancellation` | `pthread_setcanceltype` | nothing, and nothing of a thread that may be cancelled anywhere: `anywhere` |
//! | `yields` | `sched_yield` | nothing by itself: a lock that yields before it sleeps has waited since |
//!
//! While nothing is recorded a call costs a load, a branch and a jump more than before; a futex call two loads. The
//! creation of threads is always recorded, as with `rtprof::thread`.
//!
//! # Rules
//!
//! The rules of hooks hold here, and more: these functions are called before `main`, in signal handlers, in a forked
//! child, and by the C library itself. So they take no lock, allocate nothing, and leave `errno` as the call has left
//! it. POSIX cancellation points are forwarded to the C library, which cancels there, and nothing with a destructor
//! lives across the call, because a cancelled thread is unwound through it. (A static program has no other definition
//! to forward to: there they are system calls, and not cancellation points.)

mod anywhere;
mod calls;
#[cfg(not(target_feature = "crt-static"))]
mod cancellation;
#[cfg(not(target_feature = "crt-static"))]
mod conditions;
mod constructor;
mod define;
mod descriptors;
mod files;
mod forward;
mod futex;
#[cfg(not(target_feature = "crt-static"))]
mod locks;
#[cfg(not(all(target_env = "musl", target_feature = "crt-static")))]
mod messages;
#[cfg(not(target_feature = "crt-static"))]
mod mutex;
mod polls;
mod processes;
mod sleeps;
mod sockets;
mod threads;
mod wait;
mod watch;
mod yields;
