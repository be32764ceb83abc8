//! Threads that look up addresses in files, apart from the thread that writes the profile.
//!
//! Problem: a file on a mount that has stopped answering blocks its reader in `open` or `read` for ever, and large
//! debug information takes a processor for seconds. Consequence: if the thread that writes a profile looked up names
//! itself, it would hang with the file, and a server would take a busy program's processors. Scheme: another thread
//! reads, and the writing thread waits while that thread makes progress, or for as long as its client waits:
//!
//! ```text
//!   writes a profile ── Search ──► queue ──► thread ── open, read ──► cache of symbols
//!        ▲                                     │                           │
//!        └──── all parts done, or time is up ──┘                           │
//!        └──────────────── the names found so far ─────────────────────────┘
//! ```
//!
//! Each [`Priority`] has a queue, and at most one thread that takes from it, because debug information takes tens of
//! megabytes while it is open. The thread starts with a search and ends when none is left. A thread that has waited for
//! a file for [`STALL`] is *stuck*: it is left behind, and another thread takes its place, at most [`MOST_STUCK`]
//! times. Until the stuck thread returns, no new names come from files on the same device, which most likely do not
//! answer either. A search that is dropped is still finished if it was begun, so that the next search finds the names;
//! of those that were not begun only the newest is kept.
//!
//! Locks: `Queue::state`, and `Search::state`; neither is held while the other is taken, a file is read or a callback
//! runs. A forked child has neither the threads nor their queues, and makes new ones.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rtprof_runtime::hook;
use rtprof_runtime::lock::fork_safe::PerProcess;
use rtprof_runtime::modules::Module;
use rtprof_runtime::thread::helper_thread;
use rtprof_runtime::thread::kernel_thread;

use crate::file_symbols;
use crate::progress::Progress;
use crate::symbol_cache;

/// A thread that waits in the kernel and has read nothing for this long is stuck: longer than a slow disk takes, and
/// shorter than `Options::drain_timeout` of traces.
const STALL: Duration = Duration::from_secs(5);

/// The most stuck threads of each priority.
const MOST_STUCK: usize = 3;

/// How often a waiting search checks whether its thread is stuck.
const LOOK: Duration = Duration::from_millis(250);

/// The kernel keeps 15 bytes.
const THREAD_NAME: &CStr = c"rtprof-symbols";

/// The urgency of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The priority of the program's own threads, because the program waits for the names.
    Program,
    /// Lower than the program's threads (nice 10).
    Low,
}

/// Places to look up in the file of one module.
pub(crate) struct ModulePlaces {
    pub(crate) module: &'static Module,
    /// The module's number in the cache.
    pub(crate) key: u32,
    pub(crate) places: Vec<u64>,
}

/// A request to look up places.
pub(crate) struct Search {
    priority: Priority,
    parts: Vec<ModulePlaces>,
    state: Mutex<SearchState>,
    ended: Condvar,
}

struct SearchState {
    /// Number of parts that are not looked up yet.
    left: usize,
    at_end: Option<Box<dyn FnOnce() + Send>>,
}

/// The searches of one priority.
struct Queue {
    priority: Priority,
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    /// Searches, each with the number of its parts that were begun.
    waiting: VecDeque<(Arc<Search>, usize)>,
    thread: Option<Thread>,
    /// Stuck threads that were given up, and the modules whose files they read.
    stuck: Vec<(Progress, &'static Module)>,
}

/// The thread that takes from a queue.
struct Thread {
    progress: Progress,
    /// The kernel's number, once the thread runs.
    id: u32,
    /// The search that the thread works on, and the index of the part.
    current: Option<(Arc<Search>, usize)>,
}

/// Looks up `parts` on a thread of this priority, and calls `at_end` when that is done: at once if there are none. If
/// no thread can be started, everything happens here before the call returns. `at_end` must not block, because other
/// searches wait for it.
pub(crate) fn start(
    parts: Vec<ModulePlaces>,
    priority: Priority,
    at_end: Option<Box<dyn FnOnce() + Send>>,
) -> Arc<Search> {
    symbol_cache::global().make_room();
    let left = parts.len();
    // Allocated outside the workspace, because it may stay for as long as a file is stuck.
    let search = hook::outside_workspace(|| {
        let state = Mutex::new(SearchState { left, at_end });
        Arc::new(Search { priority, parts, state, ended: Condvar::new() })
    });
    if left == 0 {
        search.end();
    } else if Queue::of(priority).add(&search).is_err() {
        for part in &search.parts {
            look_up(part, &Progress::default());
            search.part_ended();
        }
    }
    search
}

impl Search {
    fn state(&self) -> MutexGuard<'_, SearchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn part_ended(&self) {
        let left = {
            let mut state = self.state();
            state.left = state.left.saturating_sub(1);
            state.left
        };
        if left == 0 {
            self.end();
        }
    }

    fn end(&self) {
        let at_end = self.state().at_end.take();
        self.ended.notify_all();
        if let Some(at_end) = at_end {
            // A panic was printed. It must not end the thread on which others wait.
            let _ = catch_unwind(AssertUnwindSafe(at_end));
        }
    }

    /// Waits until everything is looked up, or the thread is stuck and cannot be replaced.
    pub(crate) fn wait(&self) {
        let mut state = self.state();
        while state.left > 0 {
            state = match self.ended.wait_timeout(state, LOOK) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
            if state.left == 0 {
                return;
            }
            drop(state);
            if !self.makes_progress() {
                return;
            }
            state = self.state();
        }
    }

    /// Whether the search is over, or its thread makes progress or can be replaced.
    pub(crate) fn makes_progress(&self) -> bool {
        // The queue is looked up again each time, because a signal handler may have forked in between.
        self.state().left == 0 || Queue::of(self.priority).makes_progress()
    }
}

impl Queue {
    fn of(priority: Priority) -> &'static Self {
        static QUEUES: PerProcess<[Queue; 2]> = PerProcess::new();
        let queue = |priority| Self { priority, state: Mutex::default() };
        let [program, low] = QUEUES.get(|| [queue(Priority::Program), queue(Priority::Low)]);
        match priority {
            Priority::Program => program,
            Priority::Low => low,
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a search, and ensures that a thread runs for it.
    fn add(&'static self, search: &Arc<Search>) -> io::Result<()> {
        let given_up;
        let started;
        // Dropped after the lock is released, because their callbacks may own arbitrary data of the caller.
        let abandoned: VecDeque<_>;
        {
            let mut state = self.state();
            abandoned = hook::outside_workspace(|| {
                // A search that a caller waits for has a second owner.
                let is_wanted =
                    |(search, begun): &(Arc<Search>, usize)| *begun > 0 || Arc::strong_count(search) > 1;
                let (wanted, abandoned) = std::mem::take(&mut state.waiting).into_iter().partition(is_wanted);
                state.waiting = wanted;
                state.waiting.push_back((search.clone(), 0));
                abandoned
            });
            given_up = state.give_up_stuck_thread();
            started = self.start_thread(&mut state);
            if started.is_err() {
                state.waiting.retain(|(waiting, _)| !Arc::ptr_eq(waiting, search));
            }
        }
        drop(abandoned);
        if let Some(search) = given_up {
            search.part_ended();
        }
        started
    }

    /// Whether the thread makes progress; a stuck thread is replaced if that is possible.
    fn makes_progress(&'static self) -> bool {
        let mut state = self.state();
        let given_up = state.give_up_stuck_thread();
        let makes_progress = match &state.thread {
            Some(thread) => !thread.is_stuck(),
            None => !state.waiting.is_empty() && self.start_thread(&mut state).is_ok(),
        };
        drop(state);
        match given_up {
            Some(search) => {
                search.part_ended();
                true
            }
            None => makes_progress,
        }
    }

    fn start_thread(&'static self, state: &mut QueueState) -> io::Result<()> {
        if state.thread.is_some() || state.waiting.is_empty() {
            return Ok(());
        }
        hook::outside_workspace(|| {
            let progress = Progress::default();
            let mine = progress.clone();
            helper_thread::spawn(THREAD_NAME, Box::new(move || self.run(&mine)))?;
            state.thread = Some(Thread { progress, id: 0, current: None });
            Ok(())
        })
    }

    /// Runs the thread: looks up one part after the other.
    fn run(&self, progress: &Progress) {
        let _untracked = hook::untracked();
        if self.priority == Priority::Low {
            kernel_thread::give_way();
        }
        while let Some((search, part)) = self.next(progress) {
            // A panic was printed. The names of that part stay unknown.
            let _ = catch_unwind(AssertUnwindSafe(|| look_up(&search.parts[part], progress)));
            if !self.is_taking(progress) {
                return;
            }
            search.part_ended();
        }
    }

    /// Returns the next part for the thread; `None` if the thread should end.
    fn next(&self, progress: &Progress) -> Option<(Arc<Search>, usize)> {
        loop {
            let mut state = self.state();
            let (search, part) = match state.waiting.front_mut() {
                Some((search, begun)) => {
                    *begun += 1;
                    (search.clone(), *begun - 1)
                }
                None => {
                    state.thread = None;
                    return None;
                }
            };
            if part + 1 == search.parts.len() {
                state.waiting.pop_front();
            }
            let module = search.parts[part].module;
            if state.stuck.iter().all(|(_, stuck)| !is_likewise_stuck(module, stuck)) {
                progress.note();
                if let Some(thread) = &mut state.thread {
                    thread.id = kernel_thread::thread_id();
                    thread.current = Some((search.clone(), part));
                }
                return Some((search, part));
            }
            drop(state);
            search.part_ended();
        }
    }

    /// Whether this thread, which has returned from a file, still takes from the queue.
    fn is_taking(&self, progress: &Progress) -> bool {
        let mut state = self.state();
        match &mut state.thread {
            Some(thread) if thread.progress.is(progress) => {
                thread.current = None;
                return true;
            }
            _ => {}
        }
        state.stuck.retain(|(stuck, _)| !stuck.is(progress));
        false
    }
}

impl QueueState {
    /// Gives up a stuck thread. The part that it was looking up counts as done for the returned search.
    fn give_up_stuck_thread(&mut self) -> Option<Arc<Search>> {
        if self.stuck.len() >= MOST_STUCK || !self.thread.as_ref().is_some_and(Thread::is_stuck) {
            return None;
        }
        let Thread { progress, current, .. } = self.thread.take()?;
        let (search, part) = current?;
        hook::outside_workspace(|| self.stuck.push((progress, search.parts[part].module)));
        Some(search)
    }
}

/// Whether the file of `module` is on the same device as that of `stuck`, which does not answer.
fn is_likewise_stuck(module: &Module, stuck: &Module) -> bool {
    std::ptr::eq(module, stuck) || module.device.is_some() && module.device == stuck.device
}

impl Thread {
    fn is_stuck(&self) -> bool {
        // A thread that is ready to run, but does not, is only waiting for the program's threads.
        self.current.is_some()
            && self.progress.pause() >= STALL
            && kernel_thread::is_waiting(self.id) != Some(false)
    }
}

/// Looks up the places that are still unknown.
fn look_up(part: &ModulePlaces, progress: &Progress) {
    let _workspace = hook::workspace();
    let cache = symbol_cache::global();
    let unknown = |&place: &u64| cache.get(part.key, place).is_none();
    let places: Vec<u64> = part.places.iter().copied().filter(unknown).collect();
    if !places.is_empty() {
        file_symbols::look_up(part.module, part.key, &places, cache, progress);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rtprof_runtime::modules::History;

    use super::*;

    /// Returns a place in this program, which is looked up anew each time.
    fn part(key: u32) -> Vec<ModulePlaces> {
        let history = History::read();
        let module = history.modules()[0];
        vec![ModulePlaces { module, key, places: vec![0] }]
    }

    #[test]
    fn a_callback_that_panics_leaves_the_thread_to_others() {
        let key = u32::MAX;
        let panics = Box::new(|| panic!("on purpose"));
        let first = start(part(key), Priority::Low, Some(panics));
        let (done, ends) = mpsc::channel();
        let second = start(part(key), Priority::Low, Some(Box::new(move || done.send(()).expect("awaited"))));
        ends.recv().expect("the second search ends");
        first.wait();
        second.wait();
    }
}
