//! The enumeration of live goroutines.
//!
//! A thread reports its end (see [`super::exit`]), but not when a raw system call ends it, or when a fork leaves it
//! behind. So each enumeration compares the registered goroutines with the kernel's threads, and ends those whose
//! thread is gone.

use super::live_goroutine::LiveGoroutine;
use super::slot::{Goroutine, Thread};
use super::{SLOTS, end, own};
use crate::hook::own_process;
#[cfg(rtprof_supported)]
use crate::process::proc;
use crate::thread::kernel_thread;

/// Returns all live goroutines in the order of their ids. One that begins or ends during the call may be included or
/// not. Allocates, and makes a system call for each: must not be called in a hook. Go: `runtime.GoroutineProfile`.
pub fn all() -> impl ExactSizeIterator<Item = LiveGoroutine> {
    end_dead(own_process());
    let mut live: Vec<LiveGoroutine> = Vec::with_capacity(SLOTS.used());
    live.extend(SLOTS.iter().filter_map(Goroutine::read));
    live.sort_unstable_by_key(|goroutine| goroutine.id);
    live.into_iter()
}

/// A summary of the goroutines that were live at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) count: usize,
    /// The sum of their ids. No id is given twice, so two summaries with the same count and sum almost certainly cover
    /// the same goroutines.
    sum: u64,
}

impl Live {
    pub(crate) fn add(&mut self, goroutine: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(goroutine);
    }
}

/// Ends the goroutines of `process`, the current process, whose threads are gone, and returns the remaining ones.
pub(crate) fn end_dead(process: u32) -> Live {
    if let Some(own) = own()
        && own.process() != process
    {
        // The process was forked without the C library's fork handlers.
        own.set_thread(kernel_thread::thread_id(), process);
    }
    let mut found: Vec<(&Goroutine, Thread)> = Vec::with_capacity(SLOTS.used());
    found.extend(SLOTS.iter().filter_map(|slot| Some((slot, slot.thread()?))));
    // The kernel reuses thread ids: of several goroutines with one thread id, only the newest can be live.
    found.sort_unstable_by_key(|(_, thread)| (thread.thread_id, thread.goroutine));
    let mut last_of_thread = None;
    found.reverse();
    found.retain(|&(slot, thread)| {
        let is_last = last_of_thread.replace(thread.thread_id) != Some(thread.thread_id);
        let may_live = thread.process == process && is_last;
        if !may_live {
            end(slot, thread.goroutine);
        }
        may_live
    });
    // If the process has as many threads as were found, all are live; asking about each takes a quarter of a
    // microsecond. (A thread that ended unreported is missed while exactly one other thread is unregistered.)
    let all_live = threads() == Some(found.len());
    let mut live = Live::default();
    for (slot, thread) in found {
        if all_live || kernel_thread::is_alive(process, thread.thread_id) {
            live.add(thread.goroutine);
        } else {
            end(slot, thread.goroutine);
        }
    }
    live
}

/// Returns the number of threads of the process, where it is known.
fn threads() -> Option<usize> {
    #[cfg(rtprof_supported)]
    return proc::count();
    #[cfg(not(rtprof_supported))]
    None
}
