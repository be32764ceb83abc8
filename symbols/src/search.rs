//! Threads that look addresses up in files, apart from the one that writes the profile.
//!
//! Problem: a file on a mount that has stopped answering keeps its reader in `open` or `read` for ever, and large debug
//! information takes a processor for seconds. Consequence: a profile whose names are looked up by the thread that writes
//! it hangs with the file, and a server that does so takes a busy program's processors. Scheme: another thread reads,
//! and the one that writes waits while that makes progress, or for as long as its client waits:
//!
//! ```text
//!   writes a profile ── Search ──► queue ──► thread ── open, read ──► cache of symbols
//!        ▲                                     │                           │
//!        └──── all parts done, or time is up ──┘                           │
//!        └──────────────── what is there ──────────────────────────────────┘
//! ```
//!
//! There is a queue, and one thread at most that takes from it, for each [`Priority`]: debug information takes tens of
//! megabytes while it is open. The thread starts with a search and ends when none is left. One that has waited for a file
//! for [`STALL`] is *stuck*: it is left to its file, and another thread takes its place, [`MOST_STUCK`] times at most. Until
//! it comes back there are no new names from files on the same device, which most likely do not answer either. A search
//! that is given up is finished all the same if it was begun, so that the next one finds the names; of those that were not
//! begun only the newest is kept.
//!
//! Locks: `Queue::state`, and `Search::state`; neither is held while the other is taken, a file is read or a callback
//! runs. A forked child has neither the threads nor their queues, and makes itself others.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rtprof_runtime::fork_safe::PerProcess;
use rtprof_runtime::helper_thread;
use rtprof_runtime::hook;
use rtprof_runtime::kernel_thread;
use rtprof_runtime::modules::Module;

use crate::file_symbols;
use crate::progress::Progress;
use crate::symbol_cache;

/// A thread that waits in the kernel and has read nothing for so long is stuck: longer than a slow disk takes, and
/// shorter than [`Options::drain_timeout`](crate::trace::Options::drain_timeout).
const STALL: Duration = Duration::from_secs(5);

/// How many stuck threads there may be for each priority.
const MOST_STUCK: usize = 3;

/// How often a search that waits looks whether its thread is stuck.
const LOOK: Duration = Duration::from_millis(250);

/// The kernel keeps 15 bytes.
const THREAD_NAME: &CStr = c"rtprof-symbols";

/// How urgent names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// As the program's own work: the program waits for them.
    Program,
    /// The program's threads come first (nice 10).
    Low,
}

/// Places in the file of one module.
pub(crate) struct Part {
    pub(crate) module: &'static Module,
    /// The module's number in the cache.
    pub(crate) key: u32,
    pub(crate) places: Vec<u64>,
}

/// Places that are looked up.
pub(crate) struct Search {
    priority: Priority,
    parts: Vec<Part>,
    state: Mutex<SearchState>,
    ended: Condvar,
}

struct SearchState {
    /// Parts that are not looked up yet.
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
    /// Each with the number of its parts that were begun.
    waiting: VecDeque<(Arc<Search>, usize)>,
    thread: Option<Thread>,
    /// Threads that were given up, and the modules whose files they read.
    stuck: Vec<(Progress, &'static Module)>,
}

/// The thread that takes from a queue.
struct Thread {
    progress: Progress,
    /// The kernel's number, once it runs.
    id: u32,
    /// What it looks up: a search, and the number of the part.
    current: Option<(Arc<Search>, usize)>,
}

/// Looks `parts` up, by a thread of this priority, and calls `at_end` when that is done: at once if there are none, and
/// here, before it returns, where no thread is to be had. `at_end` must not wait for anything: other searches wait for it.
pub(crate) fn start(
    parts: Vec<Part>,
    priority: Priority,
    at_end: Option<Box<dyn FnOnce() + Send>>,
) -> Arc<Search> {
    symbol_cache::global().make_room();
    let left = parts.len();
    // It may stay for as long as a file is stuck.
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
            // A panic was printed. It must not end the thread that others wait for.
            let _ = catch_unwind(AssertUnwindSafe(at_end));
        }
    }

    /// Waits until everything is looked up, or the thread that does it is stuck and cannot be replaced.
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

    /// Whether it is over, or its thread gets on or can be replaced.
    pub(crate) fn makes_progress(&self) -> bool {
        // The queue is asked for anew each time: a signal handler may have forked meanwhile.
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

    /// Adds a search, and sees to it that there is a thread for it.
    fn add(&'static self, search: &Arc<Search>) -> io::Result<()> {
        let given_up;
        let started;
        // Dropped when the lock is released: what their callbacks own is the caller's.
        let abandoned: VecDeque<_>;
        {
            let mut state = self.state();
            abandoned = hook::outside_workspace(|| {
                // Those that are waited for by somebody have a second owner.
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

    /// Whether the thread makes steps; one that does not is replaced if that is possible.
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

    /// The thread.
    fn run(&self, progress: &Progress) {
        let _untracked = hook::untracked();
        if self.priority == Priority::Low {
            kernel_thread::give_way();
        }
        while let Some((search, part)) = self.next(progress) {
            // A panic was printed. Its names stay unknown.
            let _ = catch_unwind(AssertUnwindSafe(|| look_up(&search.parts[part], progress)));
            if !self.is_taking(progress) {
                return;
            }
            search.part_ended();
        }
    }

    /// The next part for the thread; `None` if it is to end.
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

    /// Whether this thread, which has come back from a file, is still the one that takes from the queue.
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
    /// Leaves a stuck thread to its file. What it was looking up ends for the search that is returned.
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

/// Whether the file of a module is on the device on which that of another one does not answer.
fn is_likewise_stuck(module: &Module, stuck: &Module) -> bool {
    std::ptr::eq(module, stuck) || module.device.is_some() && module.device == stuck.device
}

impl Thread {
    fn is_stuck(&self) -> bool {
        // One that is ready to run, and does not, has to wait for the program's threads.
        self.current.is_some()
            && self.progress.pause() >= STALL
            && kernel_thread::is_waiting(self.id) != Some(false)
    }
}

/// Looks up what is not known by now.
fn look_up(part: &Part, progress: &Progress) {
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

    /// A place in this program, to be looked for anew each time.
    fn part(key: u32) -> Vec<Part> {
        let history = History::read();
        let module = history.modules()[0];
        vec![Part { module, key, places: vec![0] }]
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
