//! All goroutines that are live.
//!
//! A thread tells of its end (see [`super::exit`]), but not when it is ended by a raw system call, or when a
//! fork leaves it behind. So whoever asks for all goroutines compares them with what the kernel knows, and
//! ends those that are no more.

use super::slot::{Goroutine, Thread};
use super::{SLOTS, end, own};
use crate::hook::own_process;
use crate::kernel_thread;
#[cfg(rtprof_supported)]
use crate::proc;
use crate::start::Start;
use crate::thread_create::ThreadBucket;
use crate::wait_reason::WaitReason;

/// A live goroutine as of one moment.
#[derive(Clone)]
#[non_exhaustive]
pub struct LiveGoroutine {
    /// See [`Goroutine::id`].
    pub id: u64,
    /// See [`Goroutine::thread_id`].
    pub thread_id: u32,
    /// See [`Goroutine::name`].
    pub name: String,
    /// See [`Goroutine::created_by`].
    pub created_by: Option<&'static ThreadBucket>,
    /// See [`Goroutine::start`].
    pub start: Option<Start>,
    /// See [`Goroutine::waiting`].
    pub waiting: Option<(WaitReason, u64)>,
}

impl core::fmt::Debug for LiveGoroutine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Goroutine")
            .field("id", &self.id)
            .field("thread_id", &self.thread_id)
            .field("name", &self.name)
            .field("created_by", &self.created_by.map(|bucket| bucket.stack()))
            .field("start", &self.start)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

/// All goroutines that are live, in the order of their ids. One that begins or ends meanwhile may be there
/// or not. Allocates, and asks the kernel about each: not for hooks. Go: `runtime.GoroutineProfile`.
pub fn all() -> impl ExactSizeIterator<Item = LiveGoroutine> {
    end_dead(own_process());
    let mut live: Vec<LiveGoroutine> = Vec::with_capacity(SLOTS.used());
    live.extend(SLOTS.iter().filter_map(Goroutine::read));
    live.sort_unstable_by_key(|goroutine| goroutine.id);
    live.into_iter()
}

/// The goroutines that were live at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) count: usize,
    /// The sum of their numbers: as no number is given twice, two looks with the same count and sum have hardly seen other
    /// goroutines.
    sum: u64,
}

impl Live {
    pub(crate) fn add(&mut self, goroutine: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(goroutine);
    }
}

/// Ends the goroutines of `process`, the current one, whose threads are no more, and returns those that are left.
pub(crate) fn end_dead(process: u32) -> Live {
    if let Some(own) = own()
        && own.process() != process
    {
        // Forked without the C library's knowledge.
        own.set_thread(kernel_thread::thread_id(), process);
    }
    let mut found: Vec<(&Goroutine, Thread)> = Vec::with_capacity(SLOTS.used());
    found.extend(SLOTS.iter().filter_map(|slot| Some((slot, slot.thread()?))));
    // Of those with the same thread all but the last are its predecessors: the kernel gives numbers anew.
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
    // As many as the process has threads: to ask about each takes a quarter of a microsecond. (One that ended without a word
    // is overlooked while another thread is not known either, and all others are.)
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

/// How many threads the process has, where that can be told.
fn threads() -> Option<usize> {
    #[cfg(rtprof_supported)]
    return proc::count();
    #[cfg(not(rtprof_supported))]
    None
}
