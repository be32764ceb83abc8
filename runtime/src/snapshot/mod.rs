//! A snapshot of all goroutines with their stacks. Go: `goroutineProfileWithLabelsConcurrent`.
//!
//! # Locks
//!
//! `COORDINATOR`: one snapshot at a time. Held by the thread that takes one; others wait for it. Nothing else waits for a
//! coordinator, except a goroutine that is about to run while its stack is being read (see `goroutine::protocol`).
//! A snapshot calls the program's allocator, and that may ask for another one: this one would wait for itself. It is refused
//! (see `Permit`), and counted.

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
pub use signal::{set_thread_signals, thread_signals};
pub use tasks::live_tasks;

static COORDINATOR: ForkLock = ForkLock::new();

thread_local! {
    static TAKES_SNAPSHOT: Cell<bool> = const { Cell::new(false) };
}

static RECORDING: Recording = Recording::new();

/// Goroutines that may begin between the look at how many there are and the cut.
const SLACK: usize = 256;

/// The permission to take a snapshot, until it is dropped.
struct Permit {
    // In this order: while the thread holds the lock, its mark is set.
    _held: ForkGuard<'static>,
    _mark: Mark,
}

/// Marks the current thread as one that takes a snapshot, or waits to.
struct Mark;

impl Permit {
    /// Waits until no other thread has it. `None` if this thread has it, or waits for it.
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

/// What kind of goroutine it is.
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
    /// Its number.
    pub id: u64,
    /// What kind it is.
    pub kind: GoroutineKind,
    /// The kernel's number of its thread. Of a task: of the thread that polls it; 0 if none does.
    pub thread_id: u32,
    /// Its name; empty when it has none.
    pub name: String,
    /// What it runs, and where it was started, where that is known.
    pub start: Option<Start>,
    /// The stack that created it, where that is known.
    pub created_by: Option<Stack<'static>>,
    /// The number of the goroutine that created it; 0 where that is not known.
    pub creator: u64,
    /// What it did.
    pub state: State,
    /// For how many ticks of [`crate::clock`] it had waited; 0 if it did not wait.
    pub waited_ticks: u64,
    /// Of a task: an estimate that it waits for ever. See [`set_leak_limit`].
    pub is_leaked: bool,
    /// The labels of its thread.
    pub labels: LabelSetId,
    /// Return addresses, leaf first.
    pub stack: Cow<'static, [usize]>,
    /// Of a task that waits for several things at once: the stacks of all but the first.
    pub branches: Vec<Stack<'static>>,
    /// Of a thread: the numbers of the tasks that it polls, from the innermost, at most eight.
    pub polled: Vec<u64>,
    /// Of a task: how often it was polled. Wraps at 2^31.
    pub polls: u32,
    /// When the stack was captured.
    pub span: CaptureSpan,
    /// Of a thread whose stack could not be had: what the kernel says that it does.
    pub kernel: Option<KernelState>,
}

/// What the kernel says that a thread does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelState {
    /// The letter of proc(5): `R` it runs or could, `S` it waits, `D` it waits and no signal wakes it, `T` and `t` it is
    /// stopped.
    pub state: char,
    /// The function of the kernel in which it waits; empty if it does not, or where the kernel does not tell.
    pub waits_in: String,
}

impl Goroutine {
    /// The current thread, whose goroutine this is, is about to wait: its stack can be read from `frame` until
    /// [`Goroutine::unpark`]. The function that `frame` is in does not return before. For hooks.
    #[inline]
    pub fn park(&self, frame: SavedFrame) {
        if self.parked().is_waiting() {
            // It waits within a wait that the program has announced. What can be read may not change while it is read.
            self.unpark();
        }
        self.parked().begin(ParkedAt { frame, end: frame.end_of_stack() });
    }

    /// The current thread, whose goroutine this is, waits no more. Waits itself for a microsecond if its stack is being
    /// read. For hooks.
    #[inline]
    pub fn unpark(&self) {
        let at = self.parked().read();
        self.parked().end();
        // A wait within this one has ended it if there is none. Or it is that of another thread by mistake, which has not
        // waited for whoever reads this one's stack.
        let record = at.map(|at| {
            move || {
                // Leaves `errno` as it was.
                let _hook = Hook::enter();
                // SAFETY: the frame is one of this thread's callers.
                if with_room(|| unsafe { record_parked(self, self.id(), at) }).is_none() {
                    add_marker(self, self.id(), Seen::Waiting, marker::stack_not_captured);
                }
            }
        });
        SNAPSHOTS.before_running(self.progress(), own_process, record);
    }
}

/// # Safety
/// The goroutine waits at `at`, and does not go on before this returns.
unsafe fn record_parked(goroutine: &Goroutine, id: u64, at: ParkedAt) {
    // SAFETY: the caller's promise.
    RECORDING.add(goroutine, id, Seen::Waiting, |frames| unsafe { at.frame.capture(at.end, frames) });
}

/// Records a goroutine with a frame that says why its stack is not there.
fn add_marker(goroutine: &Goroutine, id: u64, seen: Seen, why: Marker) {
    RECORDING.add(goroutine, id, seen, |frames| {
        frames[0] = marker::frame(why);
        1
    });
}

/// The coordinator looks at a goroutine, and records it if it waits in our hooks.
fn visit(number: u64, goroutine: &'static Goroutine, id: u64) -> Visit {
    goroutine.progress().visit(number, goroutine.parked(), |at| {
        // SAFETY: it is claimed, and was parked after that: it waits for the claim before it goes on.
        unsafe { record_parked(goroutine, id, at) };
    })
}

/// All goroutines that are live at one instant, and all threads that have none, with their stacks: the current one first, then
/// by their numbers. Takes a lock and allocates: not for hooks. Go: `runtime.GoroutineProfile`.
///
/// No thread is stopped. The stack of a goroutine that waits in our hooks is read from outside; other threads are asked by a
/// signal. Where one has not answered there is a single frame that says why (see [`marker`]), and [`Recorded::kernel`].
///
/// [`request`] comes before, so that async tasks have stacks.
pub fn take<T: From<Recorded>>() -> Vec<T> {
    init::open();
    // Before the lock: it may be the first hook of the thread.
    let own = current();
    let Some(_permit) = Permit::wait() else {
        COUNTERS.goroutines_asked_within.add();
        return Vec::new();
    };
    let process = own_process();
    let live = goroutine::end_dead(process);
    // Before the cut. A thread that begins meanwhile may be there or not.
    let mut listed = others::look(live);
    let mut room = live.count + listed.len() + SLACK;
    let mut limit;
    let others = loop {
        // SAFETY: with the lock, and no snapshot goes on.
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
    // SAFETY: with the lock, and the snapshot is closed.
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

/// Takes a snapshot into `RECORDING`. With the lock. Nobody records any more when it returns. Returns the threads that were
/// to be asked; `None`, and the snapshot is worth nothing, if they must be listed first.
fn record_all(own: Option<&'static Goroutine>, process: u32, listed: &Listed, room: usize) -> Option<Others> {
    /// Ends the snapshot, also where the program's allocator panics.
    struct Close(u64);
    impl Drop for Close {
        fn drop(&mut self) {
            SNAPSHOTS.withdraw();
            for goroutine in SLOTS.iter() {
                goroutine.progress().close(self.0);
            }
        }
    }
    // Made before, to keep the program's allocator out of the time in which goroutines may wait for this.
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
    // Then there may have been as many threads as goroutines, and one of them another.
    (!was_dead || !matches!(listed, Listed::Only(_))).then_some(others)
}

/// How many goroutines are live, and threads that have none. Asks the kernel about each: not for hooks. Go:
/// `runtime.NumGoroutine`.
pub fn count() -> usize {
    let live = goroutine::end_dead(own_process());
    live.count + others::count_strangers(live) + tasks::count()
}

impl Recorded {
    /// Its name, and without one the type of the closure that it runs; empty where neither is known.
    pub fn title(&self) -> &str {
        match self.start {
            Some(start) if self.name.is_empty() => start.runs(),
            _ => &self.name,
        }
    }

    /// For how long it had waited; 0 if it did not wait.
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
