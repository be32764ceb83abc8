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
pub(crate) mod within;
mod yields;

#[cfg(not(target_feature = "crt-static"))]
use core::ffi::c_void;

use rtprof_runtime::goroutine::observer::{self, EndObserver};
use rtprof_runtime::listeners;
use rtprof_runtime::stack::frame_mark::FrameMark;

/// Whether a call that may wait could be recorded.
#[inline(always)]
fn is_watched() -> bool {
    listeners::are_any() && !within::is_hidden(&FrameMark::new())
}

/// Looks up the functions that the hooks forward to. The loader calls it before `main`, and when a library that
/// contains it is loaded.
extern "C" fn construct() {
    #[cfg(not(target_feature = "crt-static"))]
    for (next, name) in [
        (&threads::next::CREATE, c"pthread_create"),
        (&threads::next::JOIN, c"pthread_join"),
        (&threads::next::SETNAME, c"pthread_setname_np"),
        (&sleeps::next::NANOSLEEP, c"nanosleep"),
        (&sleeps::next::CLOCK_NANOSLEEP, c"clock_nanosleep"),
        (&sleeps::next::USLEEP, c"usleep"),
        (&sleeps::next::SLEEP, c"sleep"),
        (&yields::next::SCHED_YIELD, c"sched_yield"),
    ] {
        next.find(name);
    }
    #[cfg(not(target_feature = "crt-static"))]
    for functions in [files::NEXT, messages::NEXT, polls::NEXT, processes::NEXT, sockets::NEXT] {
        define::find(functions);
    }
    #[cfg(not(target_feature = "crt-static"))]
    {
        cancellation::find();
        locks::find();
        conditions::find();
    }
    rtprof_profiler::init::open_at_start();
    observer::observe_ends(&(within::thread_ends as EndObserver));
    if is_active() {
        listeners::note_calls_are_seen();
    }
    // SAFETY: the handler only stores to statics, and this code stays loaded.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

/// Whether the program's calls reach these definitions. In a library that another program has loaded, the C library's
/// definitions come first.
fn is_active() -> bool {
    #[cfg(target_feature = "crt-static")]
    return true;
    #[cfg(not(target_feature = "crt-static"))]
    {
        let object_of = |address: *const c_void| {
            // SAFETY: all zeros are a valid value of the structure.
            let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
            // SAFETY: `dladdr` accepts any address.
            let is_known = unsafe { libc::dladdr(address, &raw mut found) } != 0;
            is_known.then_some(found.dli_fbase)
        };
        // SAFETY: the name ends in a zero.
        let called = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"read".as_ptr()) };
        // Not the address of our `read`: in a library that name may resolve to the C library's.
        let own = object_of(construct as *const c_void);
        own.is_some() && object_of(called) == own
    }
}

unsafe extern "C" fn forked() {
    futex::SLEEPERS.forked();
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;
