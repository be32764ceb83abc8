//! All goroutines that are live.
//!
//! A thread tells of its end (see [`super::exit`]), but not when it is ended by a raw system call, or when a
//! fork leaves it behind. So whoever asks for all goroutines compares them with what the kernel knows, and
//! ends those that are no more.

use super::slot::{Goroutine, Snapshot};
use super::{kernel, own};
use crate::fork_lock::own_process;

/// All goroutines that are live, in the order of their ids. One that begins or ends meanwhile may be there
/// or not. Allocates, and asks the kernel about each: not for hooks. Go: `runtime.GoroutineProfile`.
pub fn all() -> impl ExactSizeIterator<Item = Snapshot> {
    let process = own_process();
    if let Some(own) = own()
        && own.process() != process
    {
        // Forked without the C library's knowledge.
        own.set_thread(kernel::thread_id(), process);
    }
    let mut found: Vec<(&Goroutine, Snapshot)> = Vec::with_capacity(super::SLOTS.used());
    found.extend(super::SLOTS.iter().filter_map(|slot| Some((slot, slot.read()?))));
    // Of those with the same thread all but the last are its predecessors: the kernel gives numbers anew.
    found.sort_unstable_by_key(|(_, goroutine)| (goroutine.thread_id, goroutine.id));
    let mut last_of_thread = None;
    let mut live = Vec::with_capacity(found.len());
    for (slot, goroutine) in found.into_iter().rev() {
        let is_live = goroutine.process == process
            && last_of_thread.replace(goroutine.thread_id) != Some(goroutine.thread_id)
            && kernel::is_alive(process, goroutine.thread_id);
        if is_live {
            live.push(goroutine);
        } else {
            super::end(slot, goroutine.id);
        }
    }
    live.sort_unstable_by_key(|goroutine| goroutine.id);
    live.into_iter()
}
