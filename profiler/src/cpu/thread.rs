//! What the handler has to know of its thread, in a slot that it finds without a lock.
//!
//! # What a sample stands for
//!
//! A signal that comes says that a period of the thread's processor time is over, but not that it is the first since the
//! last one: the kernel keeps one pending signal of a kind, however many were due while the thread was deep in a system
//! call or blocked signals, and looks at timers only at its ticks. So the handler reads the clock and charges its stack
//! all periods that are over:
//!
//! ```text
//!   charged ──── period ────┼──── period ────┼── …        samples = round((now - charged) / period)
//!                                          now            charged += samples · period
//! ```
//!
//! Rounded, for a timer that fires a moment early is on time. Over a thread's life the sum is its time in periods, to
//! within one.
//!
//! The first period of a thread is cut to a random part, and `charged` begins so much earlier: a thread that uses less
//! than a period in all has a sample with the probability of its part, and a thousand such threads together as many as
//! they should. Go: the random first expiry of `setThreadCPUProfiler`. A thread that was found some milliseconds after its
//! birth has used time by then, which its first sample stands for as well: in whole periods, rounded at random.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, Ordering};

use rtprof_runtime::kernel_thread;
use rtprof_runtime::kernel_thread::thread_id as kernel_thread_id;
use rtprof_runtime::slots::{Slot, SlotIndex, SlotTable};

use super::attach::Attacher;
use super::event::Cause;
use super::noted_name::NotedName;
use super::perf::PerfEvent;
use super::rest::Rest;
use super::timer::Timer;
use super::{cpu_time, perf, timer};

/// From when on a thread is sampled.
#[derive(Clone, Copy)]
pub(super) struct Start {
    /// Nanoseconds that it has used.
    pub(super) now: u64,
    /// Nanoseconds after which it will be signalled for the first time.
    pub(super) first: u64,
    /// Periods that the sample of then stands for, besides its own.
    pub(super) before: u64,
}

/// What signals a thread, until it is dropped.
pub(super) enum Armed {
    Event(PerfEvent),
    Timer(#[expect(dead_code, reason = "ends when dropped")] Timer),
    Not,
}

impl Armed {
    /// Lets it signal no more. Returns the event, if it is one, whose descriptor stays open.
    pub(super) fn disabled(self) -> Option<PerfEvent> {
        match self {
            Self::Event(event) => {
                event.disable();
                Some(event)
            }
            Self::Timer(_) | Self::Not => None,
        }
    }
}

/// A thread that is sampled.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct CpuThread {
    /// The kernel's number; 0 while the slot is free. Written last when it begins, first when it ends.
    id: AtomicU32,
    /// Whether it is attached, or will not be: until then it is its maker's.
    is_ready: AtomicBool,
    /// The descriptor of its event plus one; 0 for none.
    fd: AtomicI32,
    /// The kernel's number of its timer plus one; 0 for none.
    timer: AtomicI32,
    /// Nanoseconds of processor time up to which samples were counted.
    charged: AtomicI64,
    rest: Rest,
    /// Whether its event is still to be given the period.
    is_first: AtomicBool,
    /// Whether it does not block the signal, and the kernel gave neither event nor timer for it.
    is_refused: AtomicBool,
    /// Noted at the thread's first sample.
    pub(super) name: NotedName,
    index: SlotIndex,
}

// SAFETY: atomics of numbers, for which zero is valid: a slot that is free.
unsafe impl Slot for CpuThread {
    fn index(&self) -> &SlotIndex {
        &self.index
    }
}

rtprof_runtime::lazy_under_loom! {
    static SLOTS: SlotTable<CpuThread> = SlotTable::new();
}

/// How many slots there are of threads whose numbers have these last digits, so that a new one need not be compared with all.
static CLAIMS: [AtomicU32; 1 << 16] = [const { AtomicU32::new(0) }; 1 << 16];

fn claims(id: u32) -> &'static AtomicU32 {
    &CLAIMS[id as usize % CLAIMS.len()]
}

thread_local! {
    // The slot of the current thread, and the number that the thread had when it found it. No destructor and no lazy
    // initialisation, for handlers.
    static OWN: Cell<Option<(&'static CpuThread, u32)>> = const { Cell::new(None) };
}

impl CpuThread {
    /// A slot for thread `id`, which is the caller's alone until it is [ready](Self::set_ready). `None` if there is one already,
    /// or no memory. By that thread and by the collector.
    pub(super) fn begin(id: u32, start: Start, period: u64) -> Option<&'static Self> {
        let slot = SLOTS.take()?;
        let Start { now, first, before } = start;
        slot.charged.store((now + first) as i64 - ((1 + before) * period) as i64, Ordering::Relaxed);
        slot.rest.clear();
        slot.is_first.store(false, Ordering::Relaxed);
        slot.is_refused.store(false, Ordering::Relaxed);
        slot.is_ready.store(false, Ordering::Relaxed);
        slot.name.clear();
        slot.id.store(id, Ordering::Release);
        let is_other = |other: &&Self| !core::ptr::eq(*other, slot) && other.id.load(Ordering::Acquire) == id;
        // Whoever counts after another sees the slot that this one has published before.
        if claims(id).fetch_add(1, Ordering::AcqRel) > 0 && SLOTS.iter().any(|other| is_other(&other)) {
            slot.end();
            return None;
        }
        Some(slot)
    }

    /// All that are attached. By the collector.
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        SLOTS.iter().filter(|slot| slot.id() != 0 && slot.is_ready.load(Ordering::Acquire))
    }

    /// What there is to do for it was done. By its maker.
    pub(super) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    /// The kernel's number of the thread; 0 of a slot that is free.
    pub(super) fn id(&self) -> u32 {
        self.id.load(Ordering::Acquire)
    }

    /// This event, which is not enabled yet, will signal it.
    pub(super) fn announce_event(&self, event: &PerfEvent) {
        self.is_first.store(true, Ordering::Relaxed);
        self.fd.store(event.fd() + 1, Ordering::Release);
    }

    /// That event will not.
    pub(super) fn revoke_event(&self) {
        self.is_first.store(false, Ordering::Relaxed);
        self.fd.store(0, Ordering::Release);
    }

    /// The event that was announced is the slot's.
    pub(super) fn set_event(&self, event: PerfEvent) {
        let fd = event.into_raw();
        debug_assert_eq!(self.fd.load(Ordering::Relaxed), fd + 1);
    }

    /// The timer is the slot's.
    pub(super) fn set_timer(&self, timer: Timer) {
        self.timer.store(timer.into_raw() + 1, Ordering::Release);
    }

    /// The kernel gives nothing that could signal it. By its maker and by the collector.
    pub(super) fn set_refused(&self, is_refused: bool) {
        self.is_refused.store(is_refused, Ordering::Relaxed);
    }

    /// Whether that is so. By the collector.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Takes what signals it. By the collector.
    pub(super) fn disarm(&self) -> Armed {
        let (fd, timer) =
            (self.fd.swap(0, Ordering::AcqRel).checked_sub(1), self.timer.swap(0, Ordering::AcqRel));
        match (fd.filter(|fd| *fd >= 0), timer) {
            // SAFETY: from `set_event`, and taken once.
            (Some(fd), _) => Armed::Event(unsafe { PerfEvent::from_raw(fd) }),
            (None, 0) => Armed::Not,
            // SAFETY: from `set_timer`, and taken once.
            (None, timer) => Armed::Timer(unsafe { Timer::from_raw(timer - 1) }),
        }
    }

    /// Has it signalled again, if it is behind by some periods: its first signal was lost, one of somebody else's having been
    /// pending; or its timer does not go off while it runs, because the kernel's ticks meet others. Returns whether a
    /// signal is on its way. By the collector.
    pub(super) fn hurry(&self, attacher: &Attacher) -> bool {
        let id = self.id();
        if cpu_time::of_thread(id).is_none_or(|now| self.missed(now, attacher.period()) <= 1) {
            return false;
        }
        // One that waits is left alone: its call would be interrupted.
        if kernel_thread::is_waiting(id) != Some(false) {
            return false;
        }
        let (fd, timer) = (self.fd.load(Ordering::Acquire) - 1, self.timer.load(Ordering::Acquire) - 1);
        if fd < 0 && timer >= 0 {
            timer::fire(timer, attacher.interval());
        }
        if fd >= 0 && self.is_first.swap(false, Ordering::Relaxed) {
            perf::go_on(fd, attacher.interval());
        }
        true
    }

    /// Whether nothing signals it. By the collector.
    pub(super) fn is_silent(&self) -> bool {
        self.fd.load(Ordering::Acquire) == 0 && self.timer.load(Ordering::Acquire) == 0
    }

    /// Takes the slot from its thread, which is not signalled any more. By the collector.
    pub(super) fn retire(&self) {
        let id = self.id.swap(0, Ordering::AcqRel);
        claims(id).fetch_sub(1, Ordering::AcqRel);
    }

    /// Frees a retired slot for another thread, when no handler can have it: its thread has ended, or no handler is at work.
    /// By the collector.
    pub(super) fn give_back(&'static self) {
        SLOTS.give_back(self);
    }

    /// Retires and frees it.
    pub(super) fn end(&'static self) {
        self.retire();
        self.give_back();
    }

    /// Its number among the slots, by which a timer names it.
    pub(super) fn number(&self) -> u32 {
        self.index.number()
    }

    /// Whether a signal that has come for `cause` is one of its own.
    fn is_meant(&self, id: u32, cause: Cause) -> bool {
        self.id.load(Ordering::Acquire) == id
            && match cause {
                Cause::Event(fd) => self.fd.load(Ordering::Acquire) == fd + 1,
                Cause::Timer(number) => self.number() == number,
            }
    }

    /// The current thread's slot and number, if it was signalled for this cause. In the handler.
    pub(super) fn of(cause: Cause) -> Option<(&'static Self, u32)> {
        OWN.with(Cell::get).filter(|(slot, id)| slot.is_meant(*id, cause)).or_else(|| Self::find(cause))
    }

    /// The first signal of a thread, or a late one.
    #[cold]
    fn find(cause: Cause) -> Option<(&'static Self, u32)> {
        let id = kernel_thread_id();
        let found = SLOTS.iter().find(|slot| slot.is_meant(id, cause)).map(|slot| (slot, id));
        found.inspect(|_| OWN.with(|own| own.set(found)))
    }

    /// Periods that are over since the last sample; 0 if none is, or the thread is to run on undisturbed. In the handler, for
    /// `cause`.
    pub(super) fn charge(&self, cause: Cause, attacher: &Attacher) -> u64 {
        if let Cause::Event(fd) = cause
            && self.is_first.swap(false, Ordering::Relaxed)
        {
            perf::go_on(fd, attacher.interval());
        }
        let period = attacher.period();
        let Some(now) = cpu_time::own() else { return 1 };
        if !self.rest.begin_work(now) {
            return 0;
        }
        let charged = self.charged.load(Ordering::Relaxed);
        let due = periods(now as i64 - charged, period);
        let (order, then) = (Ordering::Relaxed, charged + (due * period) as i64);
        match self.charged.compare_exchange(charged, then, order, order) {
            Ok(_) => due,
            // The collector, which ends the thread's sampling, has counted them.
            Err(_) => 0,
        }
    }

    /// The handler is done with the sample.
    pub(super) fn rest(&self) {
        if let Some(now) = cpu_time::own() {
            self.rest.end_work(now);
        }
    }

    /// Whole periods that the thread has used since its last sample, when it has used `now` nanoseconds.
    pub(super) fn missed(&self, now: u64, period: u64) -> u64 {
        whole_periods(now as i64 - self.charged.load(Ordering::Relaxed), period)
    }

    /// Nanoseconds of the thread, which has used `now`, until its next period is over.
    pub(super) fn until_due(&self, now: u64, period: u64) -> u64 {
        let used = (now as i64 - self.charged.load(Ordering::Relaxed)).max(0) as u64;
        period - used % period
    }

    /// Takes the periods that have no sample from the handler, for the caller to count, if they are `least` or more: how many,
    /// or 0. `now` is what the thread has used. By the thread itself and by the collector.
    pub(super) fn settle(&self, now: u64, period: u64, least: u64) -> u64 {
        let charged = self.charged.load(Ordering::Relaxed);
        let missed = whole_periods(now as i64 - charged, period);
        let settled = charged + (missed * period) as i64;
        let order = Ordering::Relaxed;
        // If it fails, a handler or another caller has counted them.
        if missed >= least && self.charged.compare_exchange(charged, settled, order, order).is_ok() {
            missed
        } else {
            0
        }
    }
}

/// Periods in a stretch of processor time.
fn whole_periods(nanos: i64, period: u64) -> u64 {
    nanos.max(0) as u64 / period
}

/// Periods in a stretch of processor time, to the nearest.
fn periods(nanos: i64, period: u64) -> u64 {
    (nanos.max(0) as u64 + period / 2) / period
}

/// In a forked child: the threads are its parent's.
pub(super) fn forked() {
    for slot in SLOTS.iter().filter(|slot| slot.id() != 0) {
        // The parent has descriptors and timers of its own.
        let fd = slot.fd.swap(0, Ordering::Relaxed) - 1;
        if fd >= 0 {
            // SAFETY: a descriptor of ours, which this process has no use for.
            unsafe { libc::close(fd) };
        }
        slot.timer.store(0, Ordering::Relaxed);
        slot.end();
    }
    OWN.with(|own| own.set(None));
}

#[cfg(test)]
mod tests;
