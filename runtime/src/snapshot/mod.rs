//! A snapshot of all goroutines with their stacks. Go: `goroutineProfileWithLabelsConcurrent`.
//!
//! # Locks
//!
//! `COORDINATOR`: one snapshot at a time. Held by the thread that takes a snapshot; other threads that want one wait
//! for it. Nothing else waits for a coordinator, except a goroutine that is about to run while its stack is being read
//! (see `goroutine::protocol`).
//!
//! A snapshot calls the program's allocator, and the allocator may request another snapshot, which would wait for
//! itself. That request is refused (see `Permit`), and counted.

#[cfg(rtprof_supported)]
mod ask;
#[cfg(rtprof_supported)]
mod asking;
mod leak;
mod others;
mod recorded;
mod recording;
mod request;
pub(crate) mod signal;
mod tasks;
mod visit;

use core::cell::Cell;

use crate::clock;
use crate::counters::{CountedProfile, Counter};
use crate::goroutine::{self, Goroutine, SLOTS, SNAPSHOTS, Visit, current};
use crate::goroutine_id;
use crate::hook::own_process;
use crate::init;
use crate::lock::fork_lock::{ForkGuard, ForkLock};
use crate::stack::capture_whole;
use others::{Listed, Others};
use recording::Seen;
use tasks::Tasks;
use visit::{RECORDING, visit};

pub use leak::{count_leaked, leak_limit, leaked_tasks, set_leak_limit};
pub use recorded::{GoroutineKind, KernelState, Recorded};
pub use request::request;
pub use signal::{set_thread_signals, thread_signals};
pub use tasks::live_tasks;

static COORDINATOR: ForkLock = ForkLock::new();

thread_local! {
    static TAKES_SNAPSHOT: Cell<bool> = const { Cell::new(false) };
}

/// Room for goroutines that begin between the count of goroutines and the cut.
const SLACK: usize = 256;

/// Snapshots for which the kernel granted no memory.
static WITHOUT_MEMORY: Counter = Counter::new(&[CountedProfile::Goroutine], || {
    "times goroutines could not be recorded: no memory (address-space limit?)".into()
});

/// Snapshots that would have waited for themselves.
static WITHIN_ANOTHER: Counter = Counter::new(&[CountedProfile::Goroutine], || {
    "snapshots of goroutines were asked for within another by the same thread (the program's allocator?) and are empty".into()
});

/// The permit to take a snapshot, until it is dropped.
struct Permit {
    // Dropped in this order: the mark stays set while the thread holds the lock.
    _held: ForkGuard<'static>,
    _mark: Mark,
}

/// Marks the current thread as taking a snapshot, or waiting to take one.
struct Mark;

impl Permit {
    /// Waits until no other thread has the permit. Returns `None` if this thread has it, or waits for it.
    fn wait() -> Option<Self> {
        if TAKES_SNAPSHOT.replace(true) {
            return None;
        }
        let mark = Mark;
        Some(Self { _held: COORDINATOR.lock(), _mark: mark })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        TAKES_SNAPSHOT.set(false);
    }
}

/// Takes a snapshot: all goroutines live at one instant, and all threads without a goroutine, with their stacks. The
/// current goroutine comes first, then the others in the order of their ids. Takes a lock and allocates: must not be
/// called in a hook. Go: `runtime.GoroutineProfile`.
///
/// No thread is stopped. The stack of a goroutine that waits in our hooks is read from outside; other threads receive a
/// signal. A thread that has not answered has a single frame that says why (see [`marker`](crate::stack::marker)), and [`Recorded::kernel`].
///
/// A caller that wants the stacks of async tasks calls [`request`] first.
pub fn take<T: From<Recorded>>() -> Vec<T> {
    init::open();
    // Before the lock, because this may be the first hook of the thread.
    let own = current();
    let Some(_permit) = Permit::wait() else {
        WITHIN_ANOTHER.add();
        return Vec::new();
    };
    let process = own_process();
    let live = goroutine::end_dead(process);
    // Before the cut. A thread that begins at the same time may be included or not.
    let mut listed = others::look(live);
    let mut room = live.count + listed.len() + SLACK;
    let mut limit;
    let others = loop {
        // SAFETY: this thread holds the lock, and there is no current snapshot.
        if !unsafe { RECORDING.prepare(room) } {
            WITHOUT_MEMORY.add();
            return Vec::new();
        }
        limit = goroutine_id::limit();
        match record_all(own, process, &listed, room) {
            None => listed = others::list(),
            Some(others) if RECORDING.overflow() == 0 && !others.is_too_small() => break others,
            Some(_) => {}
        }
        room = room * 2 + listed.len();
    };
    let now = clock::ticks();
    let mut threads = Vec::with_capacity(live.count);
    // SAFETY: this thread holds the lock, and the snapshot is closed.
    unsafe { RECORDING.for_each(|header, frames| threads.push(Recorded::of(header, frames, now))) };
    others.complete(&mut threads);
    let tasks = Tasks::list(&mut threads, limit, now);
    let own = goroutine::current_id();
    let order = |id| (id != own, id);
    threads.sort_unstable_by_key(|thread| order(thread.id));
    let mut all = Vec::with_capacity(threads.len() + tasks.len());
    let mut threads = threads.into_iter().peekable();
    for task in tasks.recorded(order) {
        while let Some(thread) = threads.next_if(|thread| order(thread.id) < order(task.id)) {
            all.push(thread.into());
        }
        all.push(task.into());
    }
    all.extend(threads.map(T::from));
    all
}

/// Takes a snapshot into `RECORDING`. The caller holds the lock. No thread records any more when this returns. Returns
/// the threads that were to be asked; `None` if the threads must be listed first, and the snapshot is useless.
fn record_all(own: Option<&'static Goroutine>, process: u32, listed: &Listed, room: usize) -> Option<Others> {
    /// Guard that ends the snapshot, also where the program's allocator panics.
    struct Close(u64);
    impl Drop for Close {
        fn drop(&mut self) {
            SNAPSHOTS.withdraw();
            for goroutine in SLOTS.iter() {
                goroutine.progress().close(self.0);
            }
        }
    }
    // Allocated before, so that the program's allocator does not run while goroutines may wait for this snapshot.
    let mut others = Others::new(room);
    let number = SNAPSHOTS.publish(process);
    let _close = Close(number);
    match own {
        Some(own) => {
            own.progress().settle_own(number, || RECORDING.add(own, own.id(), Seen::Running, capture_whole))
        }
        None => RECORDING.add_stranger(goroutine::stranger_id(), Seen::Running, capture_whole),
    }
    for goroutine in SLOTS.iter() {
        let id = goroutine.id_of_now();
        if id == 0 {
            continue;
        }
        let visit = visit(number, goroutine, id);
        if visit != Visit::Born {
            others.note(goroutine, id, visit);
        }
    }
    if !others.add_strangers(listed) {
        return None;
    }
    let was_dead = others.ask(number, !matches!(listed, Listed::Unknown));
    // A goroutine was dead, so an equal count of threads and goroutines may have hidden a thread without a goroutine.
    (!was_dead || !matches!(listed, Listed::Only(_))).then_some(others)
}

/// Returns the number of live goroutines, including threads without one. Makes a system call for each: must not be
/// called in a hook. Go: `runtime.NumGoroutine`.
pub fn count() -> usize {
    let live = goroutine::end_dead(own_process());
    live.count + others::count_strangers(live) + tasks::count()
}
