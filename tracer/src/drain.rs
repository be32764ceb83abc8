//! Start, stop, and the drain: how records leave the recorder, generation by generation.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rtprof_runtime::hook;
use rtprof_runtime::hook::listeners::{self, Listener};
use rtprof_runtime::hook::own_process;
use rtprof_runtime::lock::fork_lock::ForkLock;
use rtprof_runtime::thread::kernel_thread;
use rtprof_runtime::{clock, goroutine, task};

use crate::buffer::Buffer;
use crate::collected::Collected;
use crate::everyone::{self, InKernel, patiently};
use crate::recorder::following;
use crate::tables::{self, View};
use crate::thread::{self, RECORDER};
use crate::{collector, heap, session, states};

pub use crate::session::StartError;

/// The longest duration of a generation.
const PERIOD: Duration = Duration::from_secs(1);
/// The bytes in full buffers that end a generation.
const FULL: usize = 8 << 20;

/// Protects the start and the end of a trace.
static STARTING: ForkLock = ForkLock::new();
/// The generation that was begun last.
static LAST: AtomicU32 = AtomicU32::new(0);
/// The tick at which recording was ended.
static ENDED: AtomicU64 = AtomicU64::new(0);
/// Begins to record. Unread records occupy at most `memory` bytes. `live_heap` returns the live bytes of the heap. Must
/// not be called in a hook. Go: `runtime.StartTrace`.
///
/// # Errors
/// See [`StartError`].
pub fn start(memory: usize, live_heap: &'static fn() -> u64) -> Result<Drain, StartError> {
    if !cfg!(target_os = "linux") || !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return Err(StartError::Unsupported);
    }
    rtprof_runtime::init::open();
    let _untracked = hook::untracked();
    let _held = STARTING.lock();
    session::check()?;
    RECORDER.epoch.barrier.open();
    RECORDER.losses.reset();
    // Hooks compare a call's duration with a limit, for which they need the clock's rate.
    clock::ticks_per_second();
    let limit = RECORDER.buffers.set_limit(memory);
    let Some(first) = RECORDER.buffers.take(true) else { return Err(StartError::NoMemory) };
    RECORDER.buffers.give_back(first);
    if !tables::open() {
        return Err(StartError::NoMemory);
    }
    let Some(view) = View::new() else { return Err(StartError::AlreadyStarted) };
    // Retires goroutines of threads that have ended, and registers modules loaded since.
    drop(goroutine::all());
    thread::forget_lane_of_another();
    rtprof_runtime::modules::refresh();
    rtprof_runtime::goroutine::observer::observe(&states::OBSERVER);
    collector::begin();
    let session = session::begin();
    let generation = following(LAST.load(Ordering::Relaxed));
    let begin = clock::ticks();
    LAST.store(generation, Ordering::Relaxed);
    goroutine::clear_marks();
    task::clear_marks();
    task::note_trace(true);
    RECORDER.epoch.generation.store(generation, Ordering::SeqCst);
    listeners::set(Listener::Tracer, true);
    // A thread that has not seen the new generation may be about to end a poll without a record. After this barrier its
    // poll is visible here.
    RECORDER.epoch.barrier.heavy();
    let mut drain = Drain {
        session,
        generation,
        begin,
        begun: Instant::now(),
        full: FULL.min(limit / 4),
        pending: Vec::new(),
        view: Arc::new(view),
        in_kernel: InKernel::default(),
        is_over: false,
        is_quiet: true,
        counts: Counts::default(),
    };
    // The tables may have kept the entries of an earlier trace.
    drain.view.refresh();
    drain.in_kernel = InKernel::find_and_declare();
    heap::begin(live_heap);
    Ok(drain)
}

/// Ends the recording of the trace with the number `of` (see [`Drain::session`]), at once and for all threads. Its
/// records remain to be read. Does nothing if recording has ended. Go: the beginning of `runtime.StopTrace`.
pub fn end_recording(of: u32) {
    let _held = STARTING.lock();
    end(of);
}

/// Ends the recording. The caller holds `STARTING`.
fn end(of: u32) {
    if of == session::number() && session::is_active() && RECORDER.generation() != 0 {
        let _untracked = hook::untracked();
        heap::catch_up();
        everyone::tell_calls();
        ENDED.store(clock::ticks(), Ordering::Relaxed);
        RECORDER.epoch.generation.store(0, Ordering::SeqCst);
        listeners::set(Listener::Tracer, false);
        task::note_trace(false);
    }
}

/// Counts of records read and of losses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Records that were read.
    pub records: u64,
    /// Bytes of those records.
    pub bytes: u64,
    /// Generations that were read.
    pub generations: u64,
    /// Events without a record, because no buffer was free.
    pub lost_events: u64,
    /// Times a thread found no buffer free, plus whole buffers that came too late to be read.
    pub lost_buffers: u64,
    /// Events without their stack, because there were more than 65,536 distinct ones, or no memory.
    pub lost_stacks: u64,
    /// Names that are empty for the same reasons.
    pub lost_names: u64,
    /// Regions dropped on a goroutine other than the one that started them, and so without an end.
    pub foreign_region_ends: u64,
    /// Collections and stops of the world that began during another one, and are not in the trace.
    pub concurrent_collections: u64,
}

impl Counts {
    /// Returns the counts since `base`.
    pub fn since(&self, base: &Self) -> Self {
        self.with(base, u64::wrapping_sub)
    }

    /// Returns the sum of the counts of two recordings.
    pub fn and(&self, other: &Self) -> Self {
        self.with(other, u64::wrapping_add)
    }

    fn with(&self, other: &Self, f: fn(u64, u64) -> u64) -> Self {
        Self {
            records: f(self.records, other.records),
            bytes: f(self.bytes, other.bytes),
            generations: f(self.generations, other.generations),
            lost_events: f(self.lost_events, other.lost_events),
            lost_buffers: f(self.lost_buffers, other.lost_buffers),
            lost_stacks: f(self.lost_stacks, other.lost_stacks),
            lost_names: f(self.lost_names, other.lost_names),
            foreign_region_ends: f(self.foreign_region_ends, other.foreign_region_ends),
            concurrent_collections: f(self.concurrent_collections, other.concurrent_collections),
        }
    }
}

/// The drain. One exists at a time. Dropping it ends the trace.
pub struct Drain {
    session: u32,
    generation: u32,
    begin: u64,
    begun: Instant,
    /// Bytes in full buffers that end a generation.
    full: usize,
    /// Buffers of the present generation that were already full when the last generation was cut.
    pending: Vec<&'static Buffer>,
    view: Arc<View>,
    in_kernel: InKernel,
    is_over: bool,
    /// Whether every cut found every thread outside an event of the generation that it ended.
    is_quiet: bool,
    counts: Counts,
}

impl Drain {
    /// Returns the number of the trace.
    pub fn session(&self) -> u32 {
        self.session
    }

    /// Returns the tick at which the present generation began.
    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// Changes the limit of the memory for unread records, and the bytes in full buffers that end a generation, at most
    /// a quarter of the limit.
    pub fn limit(&mut self, memory: usize, full: usize) {
        let limit = RECORDER.buffers.set_limit(memory);
        self.full = full.min(FULL).min(limit / 4);
    }

    /// Records what a reader of the file needs that begins with the present generation, and does not know the generations before:
    /// the heap's size and goal.
    pub fn restate(&self) {
        if RECORDER.generation() != 0 {
            let _untracked = hook::untracked();
            heap::restate();
        }
    }

    /// Whether the present generation has lasted long enough, or recording has ended. Must be called every few
    /// milliseconds: it also brings the heap's curve up to date, and looks again at threads that were found in the
    /// kernel.
    pub fn wants_cut(&mut self) -> bool {
        if RECORDER.generation() != 0 {
            heap::catch_up();
            let _untracked = hook::untracked();
            self.in_kernel.look_again();
        }
        !self.is_over
            && (RECORDER.generation() == 0
                || RECORDER.full.bytes() + self.pending.iter().map(|buffer| buffer.size()).sum::<usize>()
                    >= self.full
                || self.begun.elapsed() >= PERIOD)
    }

    /// Whether everything was read.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Ends the present generation and begins the next one, unless recording has ended. No thread is stopped, but the
    /// call waits for events that have begun.
    pub fn cut(&mut self) -> Collected {
        let _untracked = hook::untracked();
        if !session::is_active() {
            // A forked child does not own its parent's trace.
            self.is_over = true;
            let tables = self.view.clone();
            let (begin, closed) = (self.begin, u64::MAX);
            return Collected { tables, buffers: Vec::new(), begin, end: begin, closed };
        }
        if RECORDER.generation() != 0 {
            heap::catch_up();
            everyone::tell_calls();
        }
        let now = clock::ticks();
        let next = RECORDER.advance(self.generation, false);
        let (end, closed) = match next {
            Some(_) => (now, clock::ticks()),
            None => (ENDED.load(Ordering::Relaxed), u64::MAX),
        };
        self.is_quiet &= patiently(|patience| RECORDER.collect(next.unwrap_or(0), patience));
        let mut all = core::mem::take(&mut self.pending);
        RECORDER.full.take_all(&mut all);
        let mut buffers = Vec::with_capacity(all.len());
        for buffer in all {
            // SAFETY: the buffer is out of the queue, so the drain is its only owner.
            let generation = buffer.body.with_mut(|body| unsafe { (*body).generation });
            if generation == self.generation {
                buffers.push(buffer);
            } else if Some(generation) == next {
                self.pending.push(buffer);
            } else {
                // The buffer of a thread for which the drain gave up waiting when it cut that generation.
                RECORDER.losses.buffers.fetch_add(1, Ordering::Relaxed);
                RECORDER.buffers.give_back(buffer);
            }
        }
        self.view.refresh();
        let begin = self.begin;
        self.counts.generations += 1;
        for buffer in &buffers {
            // SAFETY: the buffer is out of the queue, so the drain is its only owner.
            let (records, bytes) = buffer.body.with_mut(|body| unsafe { ((*body).count, (*body).len) });
            self.counts.records += u64::from(records);
            self.counts.bytes += bytes as u64;
        }
        match next {
            Some(next) => {
                self.generation = next;
                LAST.store(next, Ordering::Relaxed);
                self.begin = now;
                self.begun = Instant::now();
                everyone::declare();
            }
            None => self.is_over = true,
        }
        Collected { tables: self.view.clone(), buffers, begin, end, closed }
    }

    /// Returns the stacks and strings of all generations that were cut.
    pub fn tables(&self) -> &Arc<View> {
        &self.view
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        let losses = &RECORDER.losses;
        let get = |count: &rtprof_runtime::primitive::AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            lost_events: get(&losses.events),
            lost_buffers: get(&losses.buffers),
            lost_stacks: get(&losses.stacks),
            lost_names: get(&losses.strings),
            foreign_region_ends: get(&losses.foreign_ends),
            concurrent_collections: get(&losses.concurrent),
            ..self.counts
        }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        let _held = STARTING.lock();
        if !session::is_active() {
            return;
        }
        end(self.session);
        if !self.is_over {
            drop(self.cut());
        }
        // Must come before another trace can begin, which relies on the goroutines' states.
        drop(core::mem::take(&mut self.in_kernel));
        for buffer in self.pending.drain(..) {
            RECORDER.buffers.give_back(buffer);
        }
        for lane in RECORDER.lanes.iter() {
            // The order of the loads matters: if another thread has taken the lane by the second load, `close_lane`
            // finds another goroutine in it and leaves it open.
            let goroutine = lane.goroutine.load(Ordering::Acquire);
            let thread_id = lane.thread_id.load(Ordering::Relaxed);
            // The thread has ended without closing its lane.
            if self.is_quiet && goroutine != 0 && !kernel_thread::is_alive(own_process(), thread_id) {
                patiently(|patience| RECORDER.close_lane(lane, goroutine, patience));
            }
        }
        if self.is_quiet {
            // SAFETY: no thread is within an event and nothing is recorded, so no thread takes a buffer.
            unsafe { RECORDER.buffers.clear() }
            // Otherwise the tables keep what they have, and the next trace adds to it.
            if let Some(sole) = Arc::get_mut(&mut self.view).and_then(View::end) {
                // SAFETY: no thread is within an event and nothing is recorded.
                unsafe { tables::clear(&sole) }
            }
        }
        session::end();
    }
}
