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
mod recording;
mod request;
mod signal;
mod tasks;

use core::cell::Cell;
use std::borrow::Cow;

use crate::clock;
use crate::counters::COUNTERS;
use crate::fork_lock::{ForkGuard, ForkLock};
use crate::goroutine::{self, Goroutine, ParkedAt, SLOTS, SNAPSHOTS, Visit, current};
use crate::goroutine_id;
use crate::hook::{Hook, own_process};
use crate::init;
use crate::labels::LabelSetId;
use crate::modules::CaptureSpan;
use crate::stack::marker::{self, Marker};
use crate::stack::{SavedFrame, Stack, capture_whole, with_room};
use crate::start::Start;
use crate::state::State;
use others::{Listed, Others};
use recording::{Header, Recording, Seen};
use tasks::Tasks;

pub use leak::{count_leaked, leak_limit, leaked_tasks, set_leak_limit};
pub use request::request;
#[cfg(rtprof_supported)]
pub(crate) use signal::signalled;
pub use signal::{set_thread_signals, thread_signals};
pub use tasks::live_tasks;

static COORDINATOR: ForkLock = ForkLock::new();

thread_local! {
    static TAKES_SNAPSHOT: Cell<bool> = const { Cell::new(false) };
}

static RECORDING: Recording = Recording::new();

/// Room for goroutines that begin between the count of goroutines and the cut.
const SLACK: usize = 256;

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

/// The kind of a goroutine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GoroutineKind {
    /// An operating system thread.
    #[default]
    Thread,
    /// An async task.
    Task,
}

/// A goroutine in a snapshot.
#[derive(Clone)]
#[non_exhaustive]
pub struct Recorded {
    /// Its id.
    pub id: u64,
    /// Its kind.
    pub kind: GoroutineKind,
    /// The kernel's id of its thread. For a task: of the thread that polls it, or 0 if none does.
    pub thread_id: u32,
    /// Its name; empty when it has none.
    pub name: String,
    /// What it runs and where it was started, where that is known.
    pub start: Option<Start>,
    /// The stack that created it, where that is known.
    pub created_by: Option<Stack<'static>>,
    /// The id of the goroutine that created it; 0 where that is not known.
    pub creator: u64,
    /// Its state.
    pub state: State,
    /// How many ticks of [`crate::clock`] it had waited; 0 if it did not wait.
    pub waited_ticks: u64,
    /// For a task: an estimate that it waits for ever. See [`set_leak_limit`].
    pub is_leaked: bool,
    /// The labels of its thread.
    pub labels: LabelSetId,
    /// Return addresses, leaf first.
    pub stack: Cow<'static, [usize]>,
    /// For a task that waits for several things at once: the stacks of all but the first.
    pub branches: Vec<Stack<'static>>,
    /// For a thread: the ids of the tasks that it polls, innermost first, at most eight.
    pub polled: Vec<u64>,
    /// For a task: the number of its polls. Wraps at 2^31.
    pub polls: u32,
    /// When the stack was captured.
    pub span: CaptureSpan,
    /// For a thread whose stack is not available: its state according to the kernel.
    pub kernel: Option<KernelState>,
}

/// The state of a thread according to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelState {
    /// The letter of proc(5): `R` running or runnable, `S` waiting, `D` waiting and not woken by signals, `T` and `t`
    /// stopped.
    pub state: char,
    /// The kernel function in which the thread waits; empty if it does not wait, or where the kernel does not reveal
    /// it.
    pub waits_in: String,
}

impl Goroutine {
    /// Announces that the current thread, which owns this goroutine, is about to wait: its stack can be read from
    /// `frame` until [`Goroutine::unpark`]. The function of `frame` does not return before. Safe to call in a hook.
    #[inline]
    pub fn park(&self, frame: SavedFrame) {
        if self.parked().is_waiting() {
            // A wait within a wait that the program has announced. A frame must not change while it is read.
            self.unpark();
        }
        self.parked().begin(ParkedAt { frame, end: frame.end_of_stack() });
    }

    /// Announces that the current thread, which owns this goroutine, waits no more. Blocks for a microsecond if its
    /// stack is being read. Safe to call in a hook.
    #[inline]
    pub fn unpark(&self) {
        let ended = self.parked().end();
        // `None` if a wait within this one has cleared the frame, or one of a signal handler has replaced it. Or another
        // thread has: if this thread was mistaken for dead, its slot serves another thread, which has not waited for the
        // reader of this thread's stack.
        let record = || {
            let at = self.parked().ended(ended)?;
            Some(move || {
                // The guard restores `errno`.
                let _hook = Hook::enter();
                // SAFETY: the frame is one of this thread's callers.
                if with_room(|| unsafe { record_parked(self, self.id(), at) }).is_none() {
                    add_marker(self, self.id(), Seen::Waiting, marker::stack_not_captured);
                }
            })
        };
        SNAPSHOTS.before_running(self.progress(), own_process, record);
    }
}

/// # Safety
/// The goroutine waits at `at`, and does not continue before this returns.
unsafe fn record_parked(goroutine: &Goroutine, id: u64, at: ParkedAt) {
    // SAFETY: the caller keeps the goroutine waiting at `at` until this returns.
    RECORDING.add(goroutine, id, Seen::Waiting, |frames| unsafe { at.frame.capture(at.end, frames) });
}

/// Records a goroutine with a single frame that says why its stack is missing.
fn add_marker(goroutine: &Goroutine, id: u64, seen: Seen, why: Marker) {
    RECORDING.add(goroutine, id, seen, |frames| {
        frames[0] = marker::frame(why);
        1
    });
}

/// Visits a goroutine for the coordinator, and records it if it waits in our hooks.
fn visit(number: u64, goroutine: &'static Goroutine, id: u64) -> Visit {
    goroutine.progress().visit(number, goroutine.parked(), |at| {
        // SAFETY: the goroutine is claimed, and was still parked after the claim: it waits for the claim before it
        // continues.
        unsafe { record_parked(goroutine, id, at) };
    })
}

/// Takes a snapshot: all goroutines live at one instant, and all threads without a goroutine, with their stacks. The
/// current goroutine comes first, then the others in the order of their ids. Takes a lock and allocates: must not be
/// called in a hook. Go: `runtime.GoroutineProfile`.
///
/// No thread is stopped. The stack of a goroutine that waits in our hooks is read from outside; other threads receive a
/// signal. A thread that has not answered has a single frame that says why (see [`marker`]), and [`Recorded::kernel`].
///
/// A caller that wants the stacks of async tasks calls [`request`] first.
pub fn take<T: From<Recorded>>() -> Vec<T> {
    init::open();
    // Before the lock, because this may be the first hook of the thread.
    let own = current();
    let Some(_permit) = Permit::wait() else {
        COUNTERS.goroutines_asked_within.add();
        return Vec::new();
    };
    let process = own_process();
    let live = goroutine::end_dead(process);
    // Before the cut. A thread that begins meanwhile may be included or not.
    let mut listed = others::look(live);
    let mut room = live.count + listed.len() + SLACK;
    let mut limit;
    let others = loop {
        // SAFETY: this thread holds the lock, and there is no current snapshot.
        if !unsafe { RECORDING.prepare(room) } {
            COUNTERS.goroutines_without_memory.add();
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

impl Recorded {
    /// Returns its name, or without a name the type of the closure that it runs; empty where neither is known.
    pub fn title(&self) -> &str {
        match self.start {
            Some(start) if self.name.is_empty() => start.runs(),
            _ => &self.name,
        }
    }

    /// Returns how long it had waited; 0 if it did not wait.
    pub fn waited(&self) -> core::time::Duration {
        core::time::Duration::from_secs_f64(self.waited_ticks as f64 / clock::ticks_per_second() as f64)
    }

    fn of(header: &Header, frames: &[usize], now: u64) -> Self {
        let state = header.state;
        let waited_ticks = match state {
            State::Waiting(_) => clock::since(header.since, now),
            _ => 0,
        };
        Self {
            id: header.id,
            kind: GoroutineKind::Thread,
            thread_id: header.thread_id,
            name: header.name().to_owned(),
            start: header.start,
            created_by: header.created_by.map(|bucket| bucket.captured()),
            creator: header.creator,
            state,
            waited_ticks,
            is_leaked: false,
            labels: header.labels,
            stack: frames.to_vec().into(),
            branches: Vec::new(),
            polled: header.polled.iter().copied().take_while(|&id| id != 0).collect(),
            polls: 0,
            span: header.span,
            kernel: None,
        }
    }
}
