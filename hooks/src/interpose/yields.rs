//! `sched_yield`, which parking_lot and crossbeam call a few times before they sleep. The time of these yields is part
//! of the wait that follows.

use core::cell::Cell;
use core::ffi::c_int;

use rtprof_runtime::clock;
use rtprof_runtime::hook::listeners;
use rtprof_runtime::stack::frame_mark::FrameMark;

use super::anywhere::unless_anywhere;
use super::forward::{returned, system_call};
use crate::inner::within;

/// How long after the last yield a sleep still belongs to the same wait, in ticks: about 10 µs on x86-64, and 1 to 40
/// µs on aarch64, where the rates of counters differ that much. A lock spins for less.
const SAME_WAIT: u64 = if cfg!(target_arch = "aarch64") { 1 << 10 } else { 1 << 15 };

struct Yields {
    /// The tick at which the first yield of a series began.
    first: Cell<u64>,
    /// The tick at which the last yield ended.
    last: Cell<u64>,
    /// The number of yields in the series.
    count: Cell<u32>,
}

/// The largest number of yields of a lock before it sleeps: parking_lot makes up to 10, rayon 32. A longer series is
/// not a wait for a lock.
const MOST: u32 = 64;

thread_local! {
    // No destructor and no lazy initialisation, as everywhere in hooks.
    static YIELDS: Yields = const { Yields { first: Cell::new(0), last: Cell::new(0), count: Cell::new(0) } };
}

#[cfg(not(target_feature = "crt-static"))]
pub(super) mod next {
    use super::super::forward::Next;

    /// For threads that may be cancelled anywhere; all others make the system call themselves.
    pub(in super::super) static SCHED_YIELD: Next = Next::new();
}

unless_anywhere! {
    /// `int sched_yield(void)`
    fn sched_yield() -> c_int: watched::sched_yield, next::SCHED_YIELD;
}

/// Whether the wait that may follow could be recorded.
#[inline(always)]
fn is_watched() -> bool {
    listeners::are_any() && !within::is_hidden(&FrameMark::new())
}

/// What it does for all other threads.
mod watched {
    use super::{MOST, SAME_WAIT, YIELDS, c_int, clock, is_watched, returned, system_call};

    pub(super) extern "C-unwind" fn sched_yield() -> c_int {
        // SAFETY: the call has no arguments, and only yields.
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
}

/// The tick at which the wait began in which this thread sleeps from now on.
pub(super) fn start_of_wait() -> u64 {
    let now = clock::ticks();
    YIELDS.with(|yields| {
        let last = yields.last.replace(0);
        if clock::since(last, now) > SAME_WAIT { now } else { yields.first.get() }
    })
}
