//! The data that the handler needs about its thread, in a slot that it finds without a lock.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use rtprof_runtime::memory::slots::{Slot, SlotIndex, SlotTable};
use rtprof_runtime::thread::kernel_thread;
use rtprof_runtime::thread::kernel_thread::thread_id as kernel_thread_id;

use super::account::{Account, Start};
use super::attach::Attacher;
use super::event::Cause;
use super::looks::Looks;
use super::noted_name::NotedName;
use super::perf::PerfEvent;
use super::rest::Rest;
use super::timer::Timer;
use super::{cpu_time, perf, timer};

/// The event or timer that signals a thread, until it is dropped.
pub(super) enum Armed {
    Event(PerfEvent),
    Timer(#[expect(dead_code, reason = "ends when dropped")] Timer),
    Not,
}

impl Armed {
    /// Disables the signals. Returns the event, if it is one, whose descriptor stays open.
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
    /// The kernel's id; 0 while the slot is free. Written last when the slot is taken, first when it is freed.
    id: AtomicU32,
    /// Whether its attachment has finished, with or without an event; until then only its maker uses it.
    is_ready: AtomicBool,
    /// The descriptor of its event plus one; 0 for none.
    fd: AtomicI32,
    /// The kernel's number of its event. Written before `fd`.
    event: AtomicU64,
    /// The kernel's number of its timer plus one; 0 for none.
    timer: AtomicI32,
    pub(super) account: Account,
    rest: Rest,
    looks: Looks,
    /// Whether its event must still be set to the period.
    is_first: AtomicBool,
    /// Whether it does not block the signal, and the kernel granted neither event nor timer for it.
    is_refused: AtomicBool,
    /// Noted at the thread's first sample.
    pub(super) name: NotedName,
    index: SlotIndex,
}

// SAFETY: the fields are atomics of numbers, for which zero is valid: it means a free slot.
unsafe impl Slot for CpuThread {
    fn index(&self) -> &SlotIndex {
        &self.index
    }
}

rtprof_runtime::lazy_under_loom! {
    static SLOTS: SlotTable<CpuThread> = SlotTable::new();
}

/// The number of slots of threads whose ids have these last digits, so that a new slot need not be compared with all.
static CLAIMS: [AtomicU32; 1 << 16] = [const { AtomicU32::new(0) }; 1 << 16];

fn claims(id: u32) -> &'static AtomicU32 {
    &CLAIMS[id as usize % CLAIMS.len()]
}

thread_local! {
    // The slot of the current thread, and the thread's id when it found the slot. No destructor and no lazy
    // initialisation, for handlers.
    static OWN: Cell<Option<(&'static CpuThread, u32)>> = const { Cell::new(None) };
}

impl CpuThread {
    /// Takes a slot for thread `id`, which only the caller uses until it is [ready](Self::set_ready). Returns `None` if
    /// the thread has a slot already, or there is no memory. Called by that thread and by the sampler thread.
    pub(super) fn begin(id: u32, start: Start, period: u64) -> Option<&'static Self> {
        let slot = SLOTS.take()?;
        slot.account.open(start, period);
        slot.rest.clear();
        slot.looks.clear();
        slot.is_first.store(false, Ordering::Relaxed);
        slot.is_refused.store(false, Ordering::Relaxed);
        slot.is_ready.store(false, Ordering::Relaxed);
        slot.name.clear();
        slot.id.store(id, Ordering::Release);
        let is_other = |other: &&Self| !core::ptr::eq(*other, slot) && other.id.load(Ordering::Acquire) == id;
        // Of two callers, the one that counts second sees the slot that the first has published.
        if claims(id).fetch_add(1, Ordering::AcqRel) > 0 && SLOTS.iter().any(|other| is_other(&other)) {
            slot.end();
            return None;
        }
        Some(slot)
    }

    /// Returns all attached threads. Called by the sampler thread.
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        SLOTS.iter().filter(|slot| slot.id() != 0 && slot.is_ready.load(Ordering::Acquire))
    }

    /// Marks the attachment as finished. Called by its maker.
    pub(super) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    /// Returns the kernel's id of the thread; 0 for a free slot.
    pub(super) fn id(&self) -> u32 {
        self.id.load(Ordering::Acquire)
    }

    /// Announces that this event, which is not enabled yet, will signal the thread.
    pub(super) fn announce_event(&self, event: &PerfEvent) {
        self.is_first.store(true, Ordering::Relaxed);
        self.event.store(event.number(), Ordering::Relaxed);
        self.fd.store(event.fd() + 1, Ordering::Release);
    }

    /// Withdraws the announced event.
    pub(super) fn revoke_event(&self) {
        self.is_first.store(false, Ordering::Relaxed);
        self.fd.store(0, Ordering::Release);
    }

    /// Gives the announced event to the slot.
    pub(super) fn set_event(&self, event: PerfEvent) {
        let (fd, _number) = event.into_raw();
        debug_assert_eq!(self.fd.load(Ordering::Relaxed), fd + 1);
    }

    /// Gives the timer to the slot.
    pub(super) fn set_timer(&self, timer: Timer) {
        self.timer.store(timer.into_raw() + 1, Ordering::Release);
    }

    /// Notes whether the kernel refuses both event and timer. Called by its maker and by the sampler thread.
    pub(super) fn set_refused(&self, is_refused: bool) {
        self.is_refused.store(is_refused, Ordering::Relaxed);
    }

    /// Returns whether the kernel refuses both event and timer. Called by the sampler thread.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Takes the event or timer out of the slot. Called by the sampler thread.
    pub(super) fn disarm(&self) -> Armed {
        let (fd, timer) =
            (self.fd.swap(0, Ordering::AcqRel).checked_sub(1), self.timer.swap(0, Ordering::AcqRel));
        match (fd.filter(|fd| *fd >= 0), timer) {
            (Some(fd), _) => {
                let number = self.event.load(Ordering::Relaxed);
                // SAFETY: both are from `set_event`, and the swap takes the descriptor only once.
                Armed::Event(unsafe { PerfEvent::from_raw(fd, number) })
            }
            (None, 0) => Armed::Not,
            // SAFETY: the number is from `set_timer`, and the swap takes it only once.
            (None, timer) => Armed::Timer(unsafe { Timer::from_raw(timer - 1) }),
        }
    }

    /// Has the thread signalled again, if it is some periods behind: its first signal was lost because another sender's
    /// signal was pending; or its timer does not expire while it runs, because the kernel's ticks coincide with other
    /// threads. Returns whether a signal is on its way. Called by the sampler thread.
    pub(super) fn hurry(&self, attacher: &Attacher) -> bool {
        let id = self.id();
        if cpu_time::of_thread(id).is_none_or(|now| self.account.missed(now, attacher.period()) <= 1) {
            return false;
        }
        // A waiting thread is left alone: the signal would interrupt its call.
        if kernel_thread::is_waiting(id) != Some(false) {
            return false;
        }
        let (fd, timer) = (self.fd.load(Ordering::Acquire) - 1, self.timer.load(Ordering::Acquire) - 1);
        if fd < 0 && timer >= 0 {
            timer::fire(timer, attacher.interval());
        }
        if fd >= 0 && self.is_first.swap(false, Ordering::Relaxed) {
            perf::go_on(fd, self.event.load(Ordering::Relaxed), attacher.interval());
        }
        true
    }

    /// Returns whether the thread runs, and has had no sample in the last looks, as if it blocked the signal. Called by the
    /// sampler thread, at each look.
    pub(super) fn runs_without_samples(&self) -> bool {
        let now = cpu_time::of_thread(self.id());
        now.is_some_and(|now| self.looks.are_without_samples(now, self.account.charged()))
    }

    /// Returns whether nothing signals the thread. Called by the sampler thread.
    pub(super) fn is_silent(&self) -> bool {
        self.fd.load(Ordering::Acquire) == 0 && self.timer.load(Ordering::Acquire) == 0
    }

    /// Removes the thread, which is no longer signalled, from the slot. Called by the sampler thread.
    pub(super) fn retire(&self) {
        let id = self.id.swap(0, Ordering::AcqRel);
        claims(id).fetch_sub(1, Ordering::AcqRel);
    }

    /// Frees a retired slot for another thread, when no handler can use it: its thread has ended, or no handler is
    /// running. Called by the sampler thread.
    pub(super) fn give_back(&'static self) {
        SLOTS.give_back(self);
    }

    /// Retires and frees the slot.
    pub(super) fn end(&'static self) {
        self.retire();
        self.give_back();
    }

    /// Returns its slot number, which its timer sends.
    pub(super) fn number(&self) -> u32 {
        self.index.number()
    }

    /// Returns whether a signal with this `cause` belongs to this thread.
    fn is_meant(&self, id: u32, cause: Cause) -> bool {
        self.id.load(Ordering::Acquire) == id
            && match cause {
                Cause::Event(fd) => self.fd.load(Ordering::Acquire) == fd + 1,
                Cause::Timer(number) => self.number() == number,
            }
    }

    /// Returns the current thread's slot and id, if it was signalled for this cause. Called in the handler.
    pub(super) fn of(cause: Cause) -> Option<(&'static Self, u32)> {
        OWN.with(Cell::get).filter(|(slot, id)| slot.is_meant(*id, cause)).or_else(|| Self::find(cause))
    }

    /// Finds the slot at the first signal of a thread, or at a late one.
    #[cold]
    fn find(cause: Cause) -> Option<(&'static Self, u32)> {
        let id = kernel_thread_id();
        let found = SLOTS.iter().find(|slot| slot.is_meant(id, cause)).map(|slot| (slot, id));
        found.inspect(|_| OWN.with(|own| own.set(found)))
    }

    /// Charges and returns the periods completed since the last sample; 0 if none is, or if the thread must run on
    /// undisturbed. Called in the handler, for `cause`.
    pub(super) fn charge(&self, cause: Cause, attacher: &Attacher) -> u64 {
        let (now, period) = (cpu_time::own(), attacher.period());
        if let Cause::Event(fd) = cause
            && self.is_first.swap(false, Ordering::Relaxed)
        {
            perf::go_on(fd, self.event.load(Ordering::Relaxed), attacher.interval());
            now.into_iter().for_each(|now| self.account.complete_first(now, period));
        }
        let Some(now) = now else { return 1 };
        if !self.rest.begin_work(now) {
            return 0;
        }
        if let Cause::Timer(_) = cause {
            self.account.grant(now, period, &attacher.gaps);
        }
        self.account.charge(now, period)
    }

    /// Notes that the handler has finished the sample.
    pub(super) fn rest(&self) {
        if let Some(now) = cpu_time::own() {
            self.rest.end_work(now);
        }
    }
}

/// Clears all slots in a forked child: the threads belong to its parent.
pub(super) fn forked() {
    for slot in SLOTS.iter().filter(|slot| slot.id() != 0) {
        // The parent has separate copies of the descriptors, and keeps the timers.
        let fd = slot.fd.swap(0, Ordering::Relaxed) - 1;
        if fd >= 0 && perf::is_event(fd, slot.event.load(Ordering::Relaxed)) {
            // SAFETY: the descriptor is our own, and this process does not use it.
            unsafe { libc::close(fd) };
        }
        slot.timer.store(0, Ordering::Relaxed);
        slot.end();
    }
    OWN.with(|own| own.set(None));
}

#[cfg(test)]
mod tests;
