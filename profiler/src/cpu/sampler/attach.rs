//! Attaching a thread, so that it is signalled.
//!
//! Threads whose beginning the profiler sees attach themselves, so that their whole life is covered; the sampler thread
//! attaches all others, from outside. Where both do so at the same time, one of them finds that the thread has a slot
//! already ([`CpuThread::begin`]).

use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::io;
use std::time::Instant;

use rtprof_runtime::random;

use super::account::Start;
use super::cpu_time;
use super::event::value_of;
use super::gaps::Gaps;
use super::perf::{self, PerfEvent};
use super::thread::CpuThread;
use super::timer::Timer;

/// The way in which threads are signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By events. With `user_only` they count only the time outside the kernel, else all of a thread's time.
    Perf {
        user_only: bool,
    },
    Timers,
}

pub(super) struct Attacher {
    way: Way,
    /// In nanoseconds.
    period: u64,
    /// The signal; 0 when no more threads are signalled.
    signal: AtomicI32,
    /// The number of open events, and the maximum.
    open: AtomicUsize,
    most: usize,
    started: Instant,
    /// Between signals of timers.
    pub(super) gaps: Gaps,
}

/// The time from which a thread is sampled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    Birth,
    Now,
}

impl Attacher {
    pub(super) fn new(way: Way, period: u64, signal: i32) -> Self {
        let (signal, open) = (AtomicI32::new(signal), AtomicUsize::new(0));
        let (started, gaps) = (Instant::now(), Gaps::default());
        Self { way, period, signal, open, most: most_events(), started, gaps }
    }

    pub(super) fn period(&self) -> u64 {
        self.period
    }

    /// Returns the interval between two signals of a thread.
    ///
    /// A program that repeats the same work in each period would be found in the same place each time. So signals come
    /// slightly more often, by a part that is not a simple fraction: they go through all phases of this repetition in
    /// 34 periods. The weight of a sample is read from the clock (see [`super::account`]), so totals do not change; one
    /// signal in 34 finds no completed period, and its weight is zero.
    pub(super) fn interval(&self) -> u64 {
        (u128::from(self.period) * 9_705 / 10_000) as u64
    }

    /// Sets the signal that threads receive from now on; 0 for none.
    pub(super) fn set_signal(&self, signal: i32) {
        self.signal.store(signal, Ordering::Release);
    }

    /// Returns whether timers are only a substitute where no event is available.
    pub(super) fn prefers_perf(&self) -> bool {
        self.way != Way::Timers
    }

    /// Attaches thread `id`, which blocks the `blocked` signals (bit 0 for signal 1). A thread that blocks our signal,
    /// or gets neither event nor timer, has a slot without either: it is silent. Returns `None` if it has a slot
    /// already, or has ended, or there is no memory. Safe to call in a hook, by the thread itself; also called by the
    /// sampler thread.
    pub(super) fn attach(&self, id: u32, blocked: u64, since: Since) -> Option<&'static CpuThread> {
        let now = cpu_time::of_thread(id)?;
        let first = 1 + random::below(self.period);
        let before = match since {
            Since::Birth => {
                // A thread that only seems new may have used more, but since the sampling started no more than the
                // elapsed time.
                let elapsed = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
                (now.min(elapsed) + random::below(self.period)) / self.period
            }
            Since::Now => 0,
        };
        let slot = CpuThread::begin(id, Start { now, first, before }, self.period)?;
        self.arm_unless_blocked(slot, (id, blocked), now, first);
        slot.set_ready();
        Some(slot)
    }

    /// Arms a thread that was silent so far. The time that it has used while silent belongs to its first sample. Called
    /// by the sampler thread.
    pub(super) fn arm_silent(&self, slot: &CpuThread, blocked: u64) {
        let id = slot.id();
        if let Some(now) = cpu_time::of_thread(id) {
            self.arm_unless_blocked(slot, (id, blocked), now, slot.account.until_due(now, self.period));
        }
    }

    /// Arms thread `id` at `now`, to be signalled after `first`, unless it blocks our signal.
    fn arm_unless_blocked(&self, slot: &CpuThread, (id, blocked): (u32, u64), now: u64, first: u64) {
        let signal = self.signal.load(Ordering::Acquire);
        slot.set_refused(false);
        if signal == 0 || blocked >> (signal - 1) & 1 != 0 {
            return;
        }
        let point = random::below(self.period);
        slot.account.arm(now, first.max(perf::SHORTEST), point, self.period);
        if !self.arm(slot, id, signal, first) {
            slot.account.disarm(point, self.period);
            slot.set_refused(true);
        }
    }

    /// Gives the slot an event, or a timer if there is no event. Returns false if there is neither.
    fn arm(&self, slot: &CpuThread, id: u32, signal: i32, first: u64) -> bool {
        if let Way::Perf { user_only } = self.way {
            let is_free = self.open.fetch_add(1, Ordering::Relaxed) < self.most;
            if is_free && Self::arm_event(slot, id, signal, first, user_only).is_ok() {
                return true;
            }
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
        match Timer::start(id, signal, value_of(slot.number()), first, self.interval()) {
            Ok(timer) => {
                slot.set_timer(timer);
                true
            }
            Err(_) => false,
        }
    }

    fn arm_event(slot: &CpuThread, id: u32, signal: i32, first: u64, user_only: bool) -> io::Result<()> {
        let event = PerfEvent::open(id, first, user_only)?;
        event.route(id, signal)?;
        slot.announce_event(&event);
        cpu_time::of_thread(id).into_iter().for_each(|now| slot.account.enable(now));
        match event.enable_once() {
            Ok(()) => {
                slot.set_event(event);
                Ok(())
            }
            Err(error) => {
                slot.revoke_event();
                Err(error)
            }
        }
    }

    /// Notes that an event was closed.
    pub(super) fn closed_event(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns a quarter of the descriptors that the process may have: the program needs the rest.
fn most_events() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes to a local.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur / 4).unwrap_or(usize::MAX)
}
