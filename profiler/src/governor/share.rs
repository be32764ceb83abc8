//! The part of a thread's account that concerns one profile: what its events cost, and the rates that follow.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use super::skip::Skip;
use super::{EVENTS, SAMPLES};
use rtprof_runtime::clock::NANOS;

/// Nanoseconds of a thread's processor time over which densities are means.
pub(super) const MEMORY: f64 = 20e6;
/// The cost of a sample before one was measured.
const FIRST_COST_NANOS: f64 = 2000.0;
/// The cost of one sample in so many is measured, because on a virtual machine that takes as long as a short stack,
const MEASURED_ONE_IN: u32 = 8;
/// and of the first ones of each thread all.
const FIRST_MEASURED: u32 = 64;
/// Of one in so many the other threads are told. A multiple of [`MEASURED_ONE_IN`].
const TOLD_ONE_IN: u32 = 64;
/// A measured cost counts as at most so many times the mean: the thread was preempted.
const MOST_ABOVE_MEAN: f64 = 4.0;
/// The factor by which rates rise while all waits are longer, and
const STEP: f64 = 4.0;
/// they cost more than this many times the allowance.
const FAR_TOO_MUCH: f64 = 4.0;
/// The largest rate of the block profile that a budget leads to: a longer wait is always recorded.
pub(super) const LONGEST_NANOS: u64 = NANOS;
/// The largest M.
const MOST_ONE_IN: f64 = 1024.0;
/// A wait of this length is recorded even if it was not chosen at its beginning, so that a rare long one is seen. Such a wait
/// counts until the kernel has run the thread again, which is short in comparison, where the program has the processor time
/// that it needs.
const ALWAYS_NANOS: u64 = 10_000_000;
/// The largest fraction of the mutex profile that a budget leads to.
const LARGEST_FRACTION: u64 = 1 << 20;

/// A profile that has a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    Block,
    Mutex,
}

impl Profile {
    /// The largest rate to which a budget leads, if a nanosecond has so many ticks.
    fn largest_rate(self, ticks: f64) -> u64 {
        match self {
            Self::Block => (LONGEST_NANOS as f64 * ticks) as u64,
            Self::Mutex => LARGEST_FRACTION,
        }
    }
}

/// What threads tell each other of one profile, at their settlements.
pub(super) struct Shared {
    /// Ticks for a sample, 0 before one was measured; the bits of an `f64`, as the next one.
    pub(super) cost: AtomicU64,
    /// The mean of the threads' densities.
    pub(super) density: AtomicU64,
    /// The mean of the threads' watchable waits for one nanosecond of processor time.
    pub(super) watchable: AtomicU64,
    /// The rate of the last settlement.
    pub(super) rate: AtomicU64,
    /// The largest rate so far.
    pub(super) most: AtomicU64,
}

pub(super) static SHARED: [Shared; 2] = [const {
    Shared {
        cost: AtomicU64::new(0),
        density: AtomicU64::new(0),
        watchable: AtomicU64::new(0),
        rate: AtomicU64::new(0),
        most: AtomicU64::new(0),
    }
}; 2];

/// The account of a thread, for one profile. After a wait none of it is in the processor's first cache, so what each wait uses
/// is in one line, and the rest of what a choice at its beginning uses in the next.
#[repr(C, align(64))]
pub(super) struct Share {
    /// Waits since the last settlement that might have been watched.
    pub(super) watchable: Cell<u32>,
    /// Events and samples since the last settlement.
    pub(super) events: Cell<u32>,
    pub(super) samples: Cell<u32>,
    /// Waits since the last settlement of which the demand shows only that they were longer.
    longer: Cell<u32>,
    /// The rate that was set, and the allowance, when `rate` was computed.
    pub(super) set: Cell<u64>,
    pub(super) allowance: Cell<u64>,
    /// The rate in force.
    pub(super) rate: Cell<u64>,
    /// Since the last settlement: the sum of what waits add, or the number of contended unlocks.
    demand: Cell<u64>,
    /// Which waits are watched. While `begun` changes, all are.
    skip: Skip,

    /// How waits are sampled of which only some are watched.
    begun: Cell<Begun>,
    /// The same for waits of tasks.
    pub(super) chosen_await: Cell<ChosenAwait>,
    await_skip: Skip,
    /// All samples, also those before the last settlement.
    taken: Cell<u32>,
    /// Ticks for a sample, a mean; 0 before one was measured.
    pub(super) cost: Cell<f64>,

    /// The demand times the cost, for one nanosecond of processor time; negative before the first settlement.
    pub(super) density: Cell<f64>,
    /// The mean number of watchable waits for one nanosecond of processor time.
    watchable_density: Cell<f64>,
}

const _: () =
    assert!(core::mem::offset_of!(Share, begun) == 64 && core::mem::offset_of!(Share, density) == 128);

/// How a wait is sampled of which it is decided at its beginning whether it is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// R / M: the rate for a chosen wait.
    pub(crate) rate_of_chosen: u64,
    /// M: the number of waits for which a chosen one stands.
    pub(crate) one_in: f64,
    /// A wait of so many ticks is recorded in any case.
    pub(super) always: u64,
}

impl Begun {
    /// Whether a wait of `ticks` is recorded in any case.
    #[inline]
    pub(crate) fn is_always(self, ticks: u64) -> bool {
        ticks >= self.always
    }

    /// What a wait of `ticks` adds to the demand at the rate R.
    #[inline]
    pub(super) fn demand(self, ticks: u64, rate: u64) -> Demand {
        Demand::of_wait(ticks, if self.is_always(ticks) { rate } else { self.rate_of_chosen })
    }
}

/// M and R / M of a task's wait that was chosen, as a number for which a task has room: the numbers of steps by which their
/// logarithms are above 0. Not 0, as M is more than 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChosenAwait(pub(crate) u16);

impl ChosenAwait {
    const BITS_OF_RATE: u32 = 10;
    /// Steps in which the rate doubles, and M.
    const STEPS_OF_RATE: f64 = 24.0;
    const STEPS_OF_ONE_IN: f64 = 6.0;

    /// Those of `begun`, whose rate is not 0, rounded up to a step. A sample is decided and weighed by the rounded ones, so that
    /// no total is wrong.
    pub(super) fn of(begun: Begun) -> Self {
        let rate = (begun.rate_of_chosen as f64).log2() * Self::STEPS_OF_RATE;
        let one_in = begun.one_in.log2() * Self::STEPS_OF_ONE_IN;
        // The casts saturate.
        let rate = (rate.ceil() as u16).min((1 << Self::BITS_OF_RATE) - 1);
        let one_in = (one_in.ceil() as u16).clamp(1, u16::MAX >> Self::BITS_OF_RATE);
        Self(one_in << Self::BITS_OF_RATE | rate)
    }

    /// M.
    pub(crate) fn one_in(self) -> f64 {
        (f64::from(self.0 >> Self::BITS_OF_RATE) / Self::STEPS_OF_ONE_IN).exp2()
    }

    /// R / M.
    pub(crate) fn rate(self) -> u64 {
        let steps = self.0 & ((1 << Self::BITS_OF_RATE) - 1);
        (f64::from(steps) / Self::STEPS_OF_RATE).exp2() as u64
    }

    /// What the wait, which has taken `ticks`, adds to the demand, with the waits for which it stands.
    pub(super) fn demand(self, ticks: u64) -> Demand {
        let Demand { of, is_longer } = Demand::of_wait(ticks, self.rate());
        Demand { of: (of as f64 * self.one_in()) as u64, is_longer }
    }
}

/// What an event adds to the demand.
#[derive(Clone, Copy)]
pub(super) struct Demand {
    pub(super) of: u64,
    /// Whether it would be more if the rate were larger.
    pub(super) is_longer: bool,
}

impl Demand {
    /// Of a wait of `ticks`, at this rate.
    #[inline]
    pub(super) fn of_wait(ticks: u64, rate: u64) -> Self {
        Self { of: ticks.min(rate), is_longer: ticks >= rate }
    }
}

impl Share {
    pub(super) const fn new() -> Self {
        Self {
            watchable: Cell::new(0),
            events: Cell::new(0),
            samples: Cell::new(0),
            longer: Cell::new(0),
            set: Cell::new(0),
            allowance: Cell::new(0),
            rate: Cell::new(0),
            demand: Cell::new(0),
            skip: Skip::none(),
            begun: Cell::new(Begun { rate_of_chosen: 0, one_in: 1.0, always: 0 }),
            chosen_await: Cell::new(ChosenAwait(0)),
            await_skip: Skip::none(),
            taken: Cell::new(0),
            cost: Cell::new(0.0),
            density: Cell::new(-1.0),
            watchable_density: Cell::new(0.0),
        }
    }

    /// Whether a settlement is due, at the rate and the allowance that are set now.
    #[inline]
    pub(super) fn is_due(&self, set: u64, allowance: u64) -> bool {
        self.events.get() >= EVENTS
            || self.samples.get() >= SAMPLES
            || self.watchable.get() >= EVENTS
            || self.set.get() != set
            || self.allowance.get() != allowance
    }

    /// Counts an event, and returns the rate for it.
    #[inline]
    pub(super) fn count_event(&self, demand: impl FnOnce(u64) -> Demand) -> u64 {
        // 0 only in a signal handler that has interrupted the first settlement.
        let rate = self.rate.get().max(1);
        let demand = demand(rate);
        self.events.set(self.events.get().saturating_add(1));
        self.longer.set(self.longer.get() + u32::from(demand.is_longer));
        self.demand.set(self.demand.get().saturating_add(demand.of));
        rate
    }

    /// As [`begin_wait`].
    #[inline]
    pub(super) fn begin(&self, set: u64) -> (Option<Begun>, bool) {
        self.watchable.set(self.watchable.get().saturating_add(1));
        if self.set.get() != set || self.skip.is_none() {
            return (None, true);
        }
        (Some(self.begun.get()), self.skip.choose().is_some())
    }

    /// Returns, of a wait of the mutex profile, how many waits it stands for; 0 if it is not chosen.
    #[inline]
    pub(super) fn begin_for_mutex(&self) -> u64 {
        self.watchable.set(self.watchable.get().saturating_add(1));
        self.count_event(|_| Demand { of: 1, is_longer: false });
        // The cast is exact up to 2^53.
        self.skip.choose().map_or(0, |one_in| one_in as u64)
    }

    /// As [`begin_await`].
    #[inline]
    pub(super) fn begin_await(&self, set: u64) -> Option<Option<ChosenAwait>> {
        self.watchable.set(self.watchable.get().saturating_add(1));
        if self.set.get() != set || self.await_skip.is_none() {
            return Some(None);
        }
        let chosen = self.chosen_await.get();
        self.await_skip.choose().map(|_| Some(chosen))
    }

    /// Counts a sample. Returns whether its cost is measured.
    #[inline]
    pub(super) fn count_sample(&self) -> bool {
        // A thread that records what others have chosen may never settle: the numbers wrap.
        self.samples.set(self.samples.get().wrapping_add(1));
        let taken = self.taken.get().wrapping_add(1);
        self.taken.set(taken);
        taken < FIRST_MEASURED || taken.is_multiple_of(MEASURED_ONE_IN)
    }

    /// Adds a sample that has cost `ticks`, and now and then tells the other threads what samples cost this one.
    #[cold]
    pub(super) fn add_cost(&self, ticks: f64, shared: &Shared) {
        let mean = self.cost.get();
        let mean = if mean == 0.0 { ticks } else { mean + (ticks.min(mean * MOST_ABOVE_MEAN) - mean) / 8.0 };
        self.cost.set(mean);
        if self.taken.get().is_multiple_of(TOLD_ONE_IN) {
            let of_all = f64::from_bits(shared.cost.load(Ordering::Relaxed));
            let of_all = if of_all == 0.0 { mean } else { of_all + (mean - of_all) / 4.0 };
            shared.cost.store(of_all.to_bits(), Ordering::Relaxed);
        }
    }

    /// Adds what has happened since the last settlement, `passed` nanoseconds of processor time ago.
    pub(super) fn settle(&self, profile: Profile, passed: f64, ticks: f64, allowance: f64, watch: f64) {
        let shared = &SHARED[profile as usize];
        if self.density.get() < 0.0 {
            self.density.set(f64::from_bits(shared.density.load(Ordering::Relaxed)));
            self.watchable_density.set(f64::from_bits(shared.watchable.load(Ordering::Relaxed)));
        }
        let of_all = f64::from_bits(shared.cost.load(Ordering::Relaxed));
        // A thread that takes no samples itself knows from others what they cost.
        self.cost.set(match (self.cost.get(), of_all) {
            (0.0, 0.0) => FIRST_COST_NANOS * ticks,
            (0.0, one) | (one, 0.0) => one,
            (own, of_all) => (own + of_all) / 2.0,
        });
        self.samples.set(0);
        let events = self.events.replace(0);
        let demand = self.demand.replace(0);
        let are_all_longer = self.longer.replace(0) == events;
        let samples = demand as f64 / self.rate.get().max(1) as f64;
        let costs_far_too_much = samples * self.cost.get() > FAR_TOO_MUCH * allowance * passed;
        let most = profile.largest_rate(ticks);
        let is_below = self.rate.get() < most;
        let step =
            if events >= SAMPLES && are_all_longer && costs_far_too_much && is_below { STEP } else { 1.0 };
        // At the largest rate a larger density changes nothing, and would keep the rate there for longer.
        let largest = most as f64 * allowance;
        let watchable = f64::from(self.watchable.replace(0));
        // The mutex profile watches what it samples, and the block profile decides that separately.
        let watch_demand = if profile == Profile::Mutex { watchable * watch } else { 0.0 };
        let demand = demand as f64 * self.cost.get() + watch_demand;
        self.density.set((step * mean(self.density.get(), demand, passed)).min(largest));
        self.watchable_density.set(mean(self.watchable_density.get(), watchable, passed));
        if events != 0 {
            tell(&shared.density, self.density.get());
            tell(&shared.watchable, self.watchable_density.get());
        }
    }

    /// Returns the ticks per nanosecond that the samples would take at the rate that was set, if a watched wait takes `watch`.
    pub(super) fn wanted(&self, profile: Profile, watch: f64) -> f64 {
        match self.set.get() {
            0 => 0.0,
            // The mutex profile's density contains it.
            set if profile == Profile::Mutex => self.density.get() / set as f64,
            set => self.density.get() / set as f64 + self.watchable_density.get() * watch,
        }
    }

    /// Sets the rate at which samples take `part`, in ticks per nanosecond.
    pub(super) fn set_rate(&self, profile: Profile, part: f64, ticks: f64, watch: f64) {
        let (most, set) = (profile.largest_rate(ticks), self.set.get());
        let (mut one_in, mut left) = (1.0, part);
        if profile == Profile::Block {
            let watching = self.watchable_density.get() * watch;
            let needed = self.wanted(profile, watch) / part;
            let for_half = watching / (part / 2.0);
            one_in = needed.min(for_half).clamp(1.0, MOST_ONE_IN);
            left = part - (watching / one_in).min(part / 2.0);
        }
        // At R / M no smaller than what was set. The cast saturates.
        let rate = (self.density.get() / left).max(set as f64 * one_in).ceil() as u64;
        let rate = rate.min(most).max(set);
        // A signal handler may interrupt this, and wait.
        self.skip.set(1.0);
        self.await_skip.set(1.0);
        compiler_fence(Ordering::Release);
        self.rate.set(rate);
        compiler_fence(Ordering::Release);
        match profile {
            Profile::Block => {
                self.set_begun(rate, one_in.min(rate as f64 / set.max(1) as f64).max(1.0), ticks)
            }
            Profile::Mutex => self.skip.set(rate as f64),
        }
        if set != 0 {
            let shared = &SHARED[profile as usize];
            shared.rate.store(rate, Ordering::Relaxed);
            if rate > shared.most.load(Ordering::Relaxed) {
                shared.most.fetch_max(rate, Ordering::Relaxed);
            }
        }
    }

    /// Sets how waits are sampled at the rate R, one in `one_in` of which is watched. All are watched before.
    fn set_begun(&self, rate: u64, one_in: f64, ticks: f64) {
        let begun = Begun {
            rate_of_chosen: (rate as f64 / one_in).ceil() as u64,
            one_in,
            always: rate.max((ALWAYS_NANOS as f64 * ticks) as u64),
        };
        self.begun.set(begun);
        compiler_fence(Ordering::Release);
        self.skip.set(one_in);
        // Otherwise the rate may be 0, whose logarithm would set `errno`.
        if one_in > 1.0 {
            let chosen_await = ChosenAwait::of(begun);
            self.chosen_await.set(chosen_await);
            compiler_fence(Ordering::Release);
            self.await_skip.set(chosen_await.one_in());
        }
    }
}

/// Tells other threads a thread's mean.
fn tell(shared: &AtomicU64, own: f64) {
    let of_all = f64::from_bits(shared.load(Ordering::Relaxed));
    shared.store((of_all + (own - of_all) / 8.0).to_bits(), Ordering::Relaxed);
}

/// Returns the new mean of something per nanosecond of processor time, after `passed` nanoseconds in which there was
/// `more` of it.
pub(super) fn mean(old: f64, more: f64, passed: f64) -> f64 {
    (old * MEMORY + more) / (MEMORY + passed)
}

/// The rates of a profile to which a budget has led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raised {
    /// The rate of the thread that has computed it last.
    pub now: u64,
    /// The largest one so far.
    pub most: u64,
}

/// Returns the rates to which a budget has led, in ticks or contended unlocks; `None` if no thread had to raise the rate
/// `set`.
pub(crate) fn raised(profile: Profile, set: u64) -> Option<Raised> {
    let shared = &SHARED[profile as usize];
    let (now, most) = (shared.rate.load(Ordering::Relaxed), shared.most.load(Ordering::Relaxed));
    (most > set).then_some(Raised { now, most })
}
