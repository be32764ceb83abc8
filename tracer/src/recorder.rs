//! The recorder: lanes, buffers, and the present generation of all of them.

use rtprof_runtime::hook::Hook;
use rtprof_runtime::memory::slots::SlotTable;
use rtprof_runtime::primitive::{AtomicU32, AtomicU64, Ordering};

use crate::barrier::Barrier;
use crate::buffer::Buffer;
use crate::buffers::Buffers;
use crate::declared::{Declared as _, MAX_GENERATION};
use crate::lane::{Lane, is_own, take, wait};
use crate::queue::Queue;
use crate::shared::{SharedLane, SharedLanes};

/// The words that every hook reads first.
#[repr(align(128))]
pub(crate) struct Epoch {
    /// 0 when nothing is recorded.
    pub(crate) generation: AtomicU32,
    /// The number of traces so far, the present one included.
    pub(crate) session: AtomicU32,
    pub(crate) barrier: Barrier,
}

/// Counts of what could not be recorded.
pub(crate) struct Losses {
    /// Events.
    pub(crate) events: AtomicU64,
    /// Times a thread found no buffer free, and began to lose events.
    pub(crate) buffers: AtomicU64,
    /// Events whose stack exceeded the limit of the table, or its memory.
    pub(crate) stacks: AtomicU64,
    /// Events whose name exceeded a limit of its table.
    pub(crate) strings: AtomicU64,
    /// Regions dropped on a goroutine other than the one that started them.
    pub(crate) foreign_ends: AtomicU64,
    /// Collections and stops of the world that began during another one.
    pub(crate) concurrent: AtomicU64,
}

pub(crate) struct Recorder {
    pub(crate) epoch: Epoch,
    pub(crate) lanes: SlotTable<Lane>,
    pub(crate) buffers: Buffers,
    pub(crate) full: Queue,
    /// Lanes for events that come from no thread's lane: the first for all kinds of events, the others for signal
    /// handlers.
    pub(crate) shared: SharedLanes,
    pub(crate) losses: Losses,
}

/// Tries, of 50 microseconds each, after which the drain checks whether the thread that it waits for still exists.
const LOOK_AFTER: u32 = 1000;

/// Tries of an event to lock its lane, which the drain may hold: some 10 ms, in case the drain has just been
/// preempted.
const LANE_TRIES: u32 = 500;

thread_local! {
    // No destructor and no lazy initialisation, for signal handlers.
    static IS_HASTY: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Runs `f` in a signal handler, whose events do not wait for the lock of their lane: waiting would delay the
/// interrupted thread, and other threads that wait for it.
pub(crate) fn in_haste<R>(f: impl FnOnce() -> R) -> R {
    let was_hasty = IS_HASTY.with(|is_hasty| is_hasty.replace(true));
    let result = f();
    IS_HASTY.with(|is_hasty| is_hasty.set(was_hasty));
    result
}

fn lane_tries() -> u32 {
    if IS_HASTY.with(core::cell::Cell::get) {
        return 0;
    }
    LANE_TRIES
}

impl Losses {
    rtprof_runtime::const_fn! {
        const fn new() -> Self {
            Self {
                events: AtomicU64::new(0),
                buffers: AtomicU64::new(0),
                stacks: AtomicU64::new(0),
                strings: AtomicU64::new(0),
                foreign_ends: AtomicU64::new(0),
                concurrent: AtomicU64::new(0),
            }
        }
    }

    pub(crate) fn reset(&self) {
        let Self { events, buffers, stacks, strings, foreign_ends, concurrent } = self;
        for count in [events, buffers, stacks, strings, foreign_ends, concurrent] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

impl Recorder {
    rtprof_runtime::const_fn! {
        pub(crate) const fn new() -> Self {
            Self {
                epoch: Epoch {
                    generation: AtomicU32::new(0),
                    session: AtomicU32::new(0),
                    barrier: Barrier::new(),
                },
                lanes: SlotTable::new(),
                buffers: Buffers::new(),
                full: Queue::new(),
                shared: SharedLane::all(),
                losses: Losses::new(),
            }
        }
    }

    #[inline(always)]
    pub(crate) fn generation(&self) -> u32 {
        self.epoch.generation.load(Ordering::Acquire)
    }

    /// Ends an event.
    #[inline]
    pub(crate) fn end_event(&self, lane: &Lane) {
        // A shared lane lies within the array.
        let offset = (&raw const *lane).addr().wrapping_sub(self.shared.as_ptr().addr());
        if offset < size_of_val(&self.shared) {
            self.shared[offset / size_of::<SharedLane>()].holder.release();
        } else {
            // Release: a thread that reads the even number also sees the writes of the event.
            lane.events.store(lane.events.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        }
    }

    /// Gives the lane a new buffer, of `generation`, and passes the old one, if there is one, to the drain. `None`,
    /// counted as a loss, when no buffer is free. Called within an event in that lane.
    #[cold]
    pub(crate) fn renew(&'static self, lane: &Lane, generation: u32, now: u64) -> Option<&'static Buffer> {
        // Preserves `errno`.
        let _hook = Hook::enter();
        let own = match lane.goroutine.load(Ordering::Relaxed) {
            // A shared lane has no thread.
            0 => kernel_thread_id(),
            _ => lane.thread_id.load(Ordering::Relaxed),
        };
        // Gives up if the holder is this thread itself, which happens in a signal handler that has interrupted the
        // reader.
        let locked = lane.lock(own, |tries, holder| is_own(holder, own) || tries > lane_tries())?;
        let has_filled_one = lane.generation.load(Ordering::Relaxed) == generation;
        if let Some(old) = locked.take() {
            self.full.push(old);
        }
        let Some(buffer) = self.buffers.take(has_filled_one) else {
            if locked.begin_loss() {
                self.losses.buffers.fetch_add(1, Ordering::Relaxed);
            }
            return None;
        };
        let session = self.epoch.session.load(Ordering::Relaxed);
        // SAFETY: the calling writer is the only user of the lane's cache during the event.
        lane.cache.with_mut(|cache| unsafe { (*cache).prepare(session) });
        let own = lane.goroutine.load(Ordering::Relaxed);
        let goroutine = polled_in_trace().filter(|_| own != 0).unwrap_or(own);
        buffer.body.with_mut(|body| {
            // SAFETY: the buffer was just taken, so this thread is its only owner.
            let body = unsafe { &mut *body };
            body.generation = generation;
            body.own_goroutine = own;
            body.thread_id = lane.thread_id.load(Ordering::Relaxed);
            body.goroutine = goroutine;
            body.is_over = false;
            body.is_after_loss = locked.end_loss();
            (body.base, body.last) = (now, now);
            (body.count, body.len) = (0, 0);
        });
        locked.put(buffer, generation);
        Some(buffer)
    }

    /// Returns a lane for the current thread, whose goroutine this is. `None` when there is no memory.
    #[cold]
    pub(crate) fn open_lane(&'static self, goroutine: u64, thread_id: u32) -> Option<&'static Lane> {
        let _hook = Hook::enter();
        let lane = self.lanes.take()?;
        lane.thread_id.store(thread_id, Ordering::Relaxed);
        lane.goroutine.store(goroutine, Ordering::Release);
        Some(lane)
    }

    /// Closes a lane whose thread, with this goroutine, has ended or records no more. Either the thread itself
    /// or the thread that finds it dead calls this; the first call closes the lane.
    pub(crate) fn close_lane(&self, lane: &'static Lane, goroutine: u64, patience: &Patience<'_>) {
        let gives_up = |tries, holder| patience.ends(tries, holder, |dead| lane.unlock_for(dead));
        {
            let Some(locked) = lane.lock(patience.own, gives_up) else { return };
            if lane.goroutine.load(Ordering::Relaxed) != goroutine {
                return;
            }
            if let Some(buffer) = locked.take() {
                // SAFETY: the buffer is out of the lane, which this thread has locked, so this thread is its only
                // owner.
                buffer.body.with_mut(|body| unsafe { (*body).is_over = true });
                self.full.push(buffer);
            }
            locked.end_loss();
            lane.goroutine.store(0, Ordering::Release);
        }
        self.lanes.give_back(lane);
    }

    /// Begins the generation after `from`, or ends recording if `is_last`, unless recording has ended since. Every
    /// event that begins after this is in the new generation.
    pub(crate) fn advance(&self, from: u32, is_last: bool) -> Option<u32> {
        let next = if is_last { 0 } else { following(from) };
        let advanced =
            self.epoch.generation.compare_exchange(from, next, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        advanced.then_some(next)
    }

    /// Waits until no thread is within an event of an earlier generation than `current`, and passes the buffers of
    /// earlier generations that lanes still have to the drain. Returns whether that succeeded for all lanes.
    pub(crate) fn collect(&self, current: u32, patience: &Patience<'_>) -> bool {
        self.epoch.barrier.heavy();
        let mut all = true;
        for lane in self.lanes.iter() {
            all &= self.wait_for_event(lane, patience) && self.collect_lane(lane, current, patience);
        }
        for shared in &self.shared {
            let gives_up = |tries, holder| patience.ends(tries, holder, |dead| shared.free(dead));
            let is_taken = take(&shared.holder, patience.own, gives_up);
            if is_taken {
                all &= self.collect_lane(&shared.lane, current, patience);
                self.end_event(&shared.lane);
            }
            all &= is_taken;
        }
        all
    }

    fn collect_lane(&self, lane: &Lane, current: u32, patience: &Patience<'_>) -> bool {
        let gives_up = |tries, holder| patience.ends(tries, holder, |dead| lane.unlock_for(dead));
        let Some(locked) = lane.lock(patience.own, gives_up) else { return false };
        if lane.generation.load(Ordering::Relaxed) != current
            && let Some(buffer) = locked.take()
        {
            self.full.push(buffer);
        }
        true
    }

    /// Waits for the end of the event in which the lane's thread is, if any.
    fn wait_for_event(&self, lane: &Lane, patience: &Patience<'_>) -> bool {
        let begun = lane.events.load(Ordering::Acquire);
        if begun & 1 == 0 {
            return true;
        }
        let thread_id = lane.thread_id.load(Ordering::Relaxed);
        let mut tries = 0;
        while lane.events.load(Ordering::Acquire) == begun {
            tries += 1;
            wait(tries);
            let ends_turn = |dead| {
                // Only if it is still that event: the thread may have ended the event, and given its lane to another
                // thread, before it was found dead.
                let (end, set) = (begun.wrapping_add(1), Ordering::AcqRel);
                if lane.events.compare_exchange(begun, end, set, Ordering::Acquire).is_ok() {
                    lane.unlock_for(dead);
                }
            };
            if patience.ends(tries, thread_id, ends_turn) {
                return false;
            }
        }
        true
    }
}

/// The drain's limits on waiting for other threads, and its checks for dead ones.
pub(crate) struct Patience<'a> {
    /// The kernel's number of the drain's thread.
    pub(crate) own: u32,
    /// Returns whether the thread of this number has ended.
    pub(crate) is_gone: &'a dyn Fn(u32) -> bool,
    /// Returns whether no time is left.
    pub(crate) is_over: &'a dyn Fn() -> bool,
}

impl Patience<'_> {
    /// Whether to give up after `tries` tries of something that the thread `holder` delays. If that thread is dead,
    /// `bury` is run, and the next try may succeed.
    pub(crate) fn ends(&self, tries: u32, holder: u32, bury: impl Fn(u32)) -> bool {
        if !tries.is_multiple_of(LOOK_AFTER) {
            return false;
        }
        if holder != 0 && (self.is_gone)(holder) {
            bury(holder);
        }
        (self.is_over)()
    }
}

/// Returns the number of the task that the current thread polls, if the trace knows it.
fn polled_in_trace() -> Option<u64> {
    #[cfg(not(loom))]
    {
        let task = rtprof_runtime::goroutine::known()?.polls()?;
        (task.traced().generation() != 0).then(|| task.id())
    }
    #[cfg(loom)]
    None
}

/// Returns the kernel's number of the current thread.
pub(crate) fn kernel_thread_id() -> u32 {
    if cfg!(loom) { 1 } else { rtprof_runtime::thread::kernel_thread::thread_id() }
}

/// Returns the generation after this one.
pub(crate) fn following(generation: u32) -> u32 {
    generation % MAX_GENERATION + 1
}
