//! `sched_yield`, by which parking_lot and crossbeam let others run a few times before they sleep. What a thread has waited so
//! is part of the wait that follows.

use core::cell::Cell;
use core::ffi::c_int;

use rtprof_runtime::clock;

use super::forward::{returned, system_call};
use super::is_watched;

/// How long after the last yield a wait is still the same one. In ticks: about 10 µs on x86-64, 1 to 40 µs on aarch64, whose
/// counters differ that much. A lock spins for less.
const SAME_WAIT: u64 = if cfg!(target_arch = "aarch64") { 1 << 10 } else { 1 << 15 };

struct Yields {
    /// When the first of a row began.
    first: Cell<u64>,
    /// When the last was over.
    last: Cell<u64>,
    /// How many there were.
    count: Cell<u32>,
}

/// The most yields of a lock before it sleeps: parking_lot makes up to 10, rayon 32. A longer row is something else.
const MOST: u32 = 64;

thread_local! {
    // No destructor and no lazy initialisation, as everywhere in hooks.
    static YIELDS: Yields = const { Yields { first: Cell::new(0), last: Cell::new(0), count: Cell::new(0) } };
}

/// `int sched_yield(void)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sched_yield() -> c_int {
    // SAFETY: it has no arguments, and no effect but the one that is named.
    let call = || returned(unsafe { system_call(libc::SYS_sched_yield, [0; 6]) }) as c_int;
    if !is_watched() {
        return call();
    }
    let begin = clock::ticks();
    let result = call();
    let end = clock::ticks();
    YIELDS.with(|yields| {
        let count = yields.count.get();
        if clock::since(yields.last.get(), begin) > SAME_WAIT || count == MOST {
            yields.first.set(begin);
            yields.count.set(1);
        } else {
            yields.count.set(count + 1);
        }
        yields.last.set(end);
    });
    result
}

/// When a wait began that this thread sleeps in from now on.
pub(super) fn start_of_wait() -> u64 {
    let now = clock::ticks();
    YIELDS.with(|yields| {
        let last = yields.last.replace(0);
        if clock::since(last, now) > SAME_WAIT { now } else { yields.first.get() }
    })
}
