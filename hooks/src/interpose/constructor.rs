//! What the loader runs before `main`: it finds the functions to which the definitions forward.

#[cfg(not(target_feature = "crt-static"))]
use core::ffi::c_void;

use rtprof_runtime::goroutine::observer::{self, EndObserver};
use rtprof_runtime::hook::listeners;

#[cfg(not(target_feature = "crt-static"))]
use super::{
    cancellation, conditions, define, files, locks, messages, polls, processes, sleeps, sockets, threads,
    yields,
};
use crate::inner::sleepers::SLEEPERS;
use crate::inner::within;

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
    SLEEPERS.forked();
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;
