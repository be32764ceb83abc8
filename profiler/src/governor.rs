//! The budget of the block and mutex profiles: the part of the processor time that their samples may take.
//!
//! Problem: a rate says how many samples there are for each event, and the program says how many events there are. At
//! `init`'s rates a service that hands 100,000 short jobs a second to a pool of threads would pay a fifth of its processor
//! time for stacks of idle workers. A larger rate for all programs would leave nothing to see in quiet ones.
//!
//! Scheme: each thread compares what its events cost with the processor time that it uses, and while they are too frequent
//! it samples at larger rates than those that were set. A sample has the weight of the rate at which it was decided, so
//! the expected totals do not depend on the rates ([`crate::contention`]); only the scatter grows.
//!
//! ```text
//!   event ──► demand += what it adds to the expected cost          no clock, no shared memory
//!               │
//!               │ after EVENTS events, or SAMPLES samples
//!               ▼
//!   settlement  x = processor time of this thread since the last one
//!               density := (density · MEMORY + demand) / (MEMORY + x)
//!               rate    := max(the rate that was set, density / allowance)
//! ```
//!
//! # The rates
//!
//! At the rate R a wait of t ticks is sampled with probability min(1, t / R), and a sample costs c. So waits cost
//! c · Σ min(t, R) / R, and the block profile's demand is c · Σ min(t, R). At a fraction N a contended unlock costs c / N,
//! and the mutex profile's demand is c times the number of unlocks. Both divided by the allowance give the rate at which the
//! cost is what is allowed. Expected costs have less scatter than the true ones, so that R does not oscillate.
//!
//! Of a wait longer than R the demand shows only that it was longer. While all waits are, and cost far too much, the density
//! is multiplied by [`STEP`] at each settlement, until R is of their length: a rate of 1 would take a hundred settlements
//! otherwise.
//!
//! The rate for an event is computed from earlier events alone. Otherwise long waits would be sampled at other rates than
//! short ones, and the weights would be wrong.
//!
//! The density is a mean over the last [`MEMORY`] of the thread's processor time, as for a wait in a service the processor
//! time passes that the service uses. A thread begins with the density of others ([`Shared`]), because a program may
//! start a thread for every connection.
//!
//! # The two profiles
//!
//! Each may use half of what is allowed, and what the other one leaves. An event that is not sampled also costs something,
//! [`UNSAMPLED_NANOS`], and the samples get what remains; at least a quarter, because profiles that are empty help no one.
//!
//! # Locks
//!
//! None. [`SETTING`] orders those that set the budget.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use rtprof_runtime::clock::{self, NANOS};
use rtprof_runtime::errno;
use rtprof_runtime::fork_lock::ForkLock;
use rtprof_runtime::hidden::{self, Calls};
use rtprof_runtime::kernel_thread;

/// Nanoseconds of a thread's processor time over which densities are means.
const MEMORY: f64 = 20e6;
/// Events between two settlements; one takes 0.4 µs on an Intel Xeon (VM),
const EVENTS: u32 = 256;
/// or samples, which cost 0.1 µs and more each.
const SAMPLES: u32 = 64;
/// What an event costs that is not sampled: some 10 ns for the decision, and an estimate for what precedes it.
const UNSAMPLED_NANOS: f64 = 30.0;
/// The cost of a sample before one was measured.
const FIRST_COST_NANOS: f64 = 2000.0;
/// A measured cost counts as at most so many times the mean: the thread was preempted.
const MOST_ABOVE_MEAN: f64 = 4.0;
/// The part of the allowance that samples get in any case.
const LEAST_PART: f64 = 0.25;
/// The factor by which rates rise while all waits are longer, and
const STEP: f64 = 4.0;
/// they cost more than this many times the allowance.
const FAR_TOO_MUCH: f64 = 4.0;
/// The largest rate of the block profile that a budget leads to: a longer wait is always recorded.
const LONGEST_NANOS: u64 = NANOS;
/// The largest fraction of the mutex profile that a budget leads to.
const LARGEST_FRACTION: u64 = 1 << 20;

/// The ticks of the clock that samples may take for one nanosecond of processor time: the bits of an `f64`; 0 for no
/// budget.
static ALLOWANCE: AtomicU64 = AtomicU64::new(0);
/// The budget in percent, as it was set; 0 for none.
static PERCENT: AtomicU64 = AtomicU64::new(0);
/// The ticks of the clock in a nanosecond, as the bits of an `f64`. Set before the first budget.
static TICKS: AtomicU64 = AtomicU64::new(0);
/// Held while a budget is set.
static SETTING: ForkLock = ForkLock::new();

/// A profile that has a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    Block,
    Mutex,
}

const PROFILES: [Profile; 2] = [Profile::Block, Profile::Mutex];

/// What threads tell each other of one profile, at their settlements.
struct Shared {
    /// Ticks for a sample, 0 before one was measured; the bits of an `f64`, as the next one.
    cost: AtomicU64,
    /// The mean of the threads' densities.
    density: AtomicU64,
    /// The rate of the last settlement.
    rate: AtomicU64,
    /// The largest rate so far.
    most: AtomicU64,
}

static SHARED: [Shared; 2] = [const {
    Shared {
        cost: AtomicU64::new(0),
        density: AtomicU64::new(0),
        rate: AtomicU64::new(0),
        most: AtomicU64::new(0),
    }
}; 2];

/// The account of a thread.
struct Account {
    /// The allowance at the last settlement, as in [`ALLOWANCE`].
    allowance: Cell<u64>,
    /// Nanoseconds of the thread's processor time at the last settlement; 0 before the first one.
    time: Cell<u64>,
    /// Ticks for events that were not sampled, per nanosecond of processor time.
    unsampled: Cell<f64>,
    shares: [Share; 2],
}

/// The account of a thread, for one profile.
struct Share {
    /// The rate that was set, when `rate` was computed.
    set: Cell<u64>,
    /// The rate in force.
    rate: Cell<u64>,
    /// Since the last settlement: the sum of min(t, R), or the number of contended unlocks.
    demand: Cell<u64>,
    /// Events and samples since the last settlement.
    events: Cell<u32>,
    samples: Cell<u32>,
    /// Ticks for a sample, a mean; 0 before one was measured.
    cost: Cell<f64>,
    /// The demand times the cost, for one nanosecond of processor time; negative before the first settlement.
    density: Cell<f64>,
}

thread_local! {
    // No destructor and no lazy initialisation, as everywhere in hooks.
    static ACCOUNT: Account = const { Account::new() };
}

/// Why [`set_profile_budget`] refuses a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BudgetError {
    /// The budget.
    pub percent: f64,
}

impl core::fmt::Display for BudgetError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let advice = if self.percent == 0.0 {
            "; to record nothing, set the rates to 0, and clear_profile_budget removes the budget"
        } else {
            ""
        };
        write!(f, "a budget is more than 0 and at most 100 percent, and not {}{advice}", self.percent)
    }
}

impl std::error::Error for BudgetError {}

/// Returns whether [`set_profile_budget`] accepts this.
pub fn is_budget(percent: f64) -> bool {
    // False for NaN.
    percent > 0.0 && percent <= 100.0
}

/// Limits what the samples of the block and mutex profiles cost, to about this part of the processor time that the program
/// uses, in percent. While there are so many events that samples at the rates that were set would cost more, each thread
/// samples at larger rates. Totals stay true on average, because each sample has the weight of the rate at which it was
/// decided; only their scatter grows. Go has no such choice.
///
/// [`init`](https://docs.rs/rtprof/latest/rtprof/fn.init.html) sets 1; otherwise there is no budget. It may be set at any
/// time, also while events are recorded. A wait of a second or more is always recorded, as long as the rate is not larger
/// than that. The profiles' comments say which rates are in force. Must not be called in a hook; the first call may sleep
/// for 5 ms.
///
/// A budget also holds at the rates 1, which otherwise record everything.
///
/// # Errors
/// Fails and changes nothing if `percent` is not a number, not more than 0, or more than 100.
pub fn set_profile_budget(percent: f64) -> Result<(), BudgetError> {
    if !is_budget(percent) {
        return Err(BudgetError { percent });
    }
    let ticks = hidden::hiding(Calls::WAITS, clock::ticks_per_second) as f64 / NANOS as f64;
    let _held = SETTING.lock();
    TICKS.store(ticks.to_bits(), Ordering::Relaxed);
    PERCENT.store(percent.to_bits(), Ordering::Relaxed);
    // Release: a thread that reads it sees the ticks. A tiny budget must not become 0, which is none.
    let allowance = (percent / 100.0 * ticks).max(f64::MIN_POSITIVE);
    ALLOWANCE.store(allowance.to_bits(), Ordering::Release);
    Ok(())
}

/// Removes the budget of the block and mutex profiles: samples are taken at the rates that were set.
pub fn clear_profile_budget() {
    let _held = SETTING.lock();
    PERCENT.store(0, Ordering::Relaxed);
    ALLOWANCE.store(0, Ordering::Release);
}

/// Returns the budget of the block and mutex profiles in percent of the processor time; `None` if there is none.
pub fn profile_budget() -> Option<f64> {
    Some(f64::from_bits(PERCENT.load(Ordering::Relaxed))).filter(|&percent| percent > 0.0)
}

/// Returns the rate for a wait of `ticks`, at the rate `set` that the program has set.
#[inline]
pub(crate) fn block_rate(set: u64, ticks: u64) -> u64 {
    match ALLOWANCE.load(Ordering::Acquire) {
        0 => set,
        allowance => governed(Profile::Block, set, allowance, |rate| ticks.min(rate)),
    }
}

/// Returns the fraction for an event of the mutex profile, at the fraction `set` that the program has set. Its sample takes
/// so many stacks.
#[inline]
pub(crate) fn mutex_fraction(set: u64, stacks: u64) -> u64 {
    match ALLOWANCE.load(Ordering::Acquire) {
        0 => set,
        allowance => governed(Profile::Mutex, set, allowance, |_| stacks),
    }
}

#[inline]
fn governed(profile: Profile, set: u64, allowance: u64, demand: impl FnOnce(u64) -> u64) -> u64 {
    ACCOUNT.with(|account| {
        if account.is_due(profile, set, allowance) {
            account.settle(profile, set, allowance, account.passed());
        }
        account.shares[profile as usize].count_event(demand)
    })
}

/// Counts a sample that another thread takes for an event of the current one.
#[inline]
pub(crate) fn count_sample(profile: Profile) {
    if ALLOWANCE.load(Ordering::Relaxed) != 0 {
        ACCOUNT.with(|account| {
            let samples = &account.shares[profile as usize].samples;
            samples.set(samples.get().saturating_add(1));
        });
    }
}

/// Takes a sample, and measures what it costs.
#[inline]
pub(crate) fn sampled(profile: Profile, take: impl FnOnce()) {
    if ALLOWANCE.load(Ordering::Relaxed) == 0 {
        return take();
    }
    let before = clock::ticks();
    take();
    let ticks = clock::since(before, clock::ticks()) as f64;
    ACCOUNT.with(|account| account.shares[profile as usize].count_sample(ticks, &SHARED[profile as usize]));
}

impl Account {
    const fn new() -> Self {
        Self {
            allowance: Cell::new(0),
            time: Cell::new(0),
            unsampled: Cell::new(0.0),
            shares: [const {
                Share {
                    set: Cell::new(0),
                    rate: Cell::new(0),
                    demand: Cell::new(0),
                    events: Cell::new(0),
                    samples: Cell::new(0),
                    cost: Cell::new(0.0),
                    density: Cell::new(-1.0),
                }
            }; 2],
        }
    }

    #[inline]
    fn is_due(&self, profile: Profile, set: u64, allowance: u64) -> bool {
        let share = &self.shares[profile as usize];
        share.events.get() >= EVENTS
            || share.samples.get() >= SAMPLES
            || share.set.get() != set
            || self.allowance.get() != allowance
    }

    /// Computes the rates anew, after `passed` nanoseconds of processor time.
    #[cold]
    #[inline(never)]
    fn settle(&self, profile: Profile, set: u64, allowance: u64, passed: f64) {
        self.allowance.set(allowance);
        self.shares[profile as usize].set.set(set);
        let ticks = f64::from_bits(TICKS.load(Ordering::Relaxed));
        let events: u32 = self.shares.iter().map(|share| share.events.get()).sum();
        let unsampled = mean(self.unsampled.get(), f64::from(events) * UNSAMPLED_NANOS * ticks, passed);
        self.unsampled.set(unsampled);
        let allowance = f64::from_bits(allowance);
        for profile in PROFILES {
            self.shares[profile as usize].settle(profile, passed, ticks, allowance);
        }
        let left = (allowance - unsampled).max(allowance * LEAST_PART);
        // What each would take at the rate that was set. A profile that is off takes nothing.
        let wanted = self.shares.each_ref().map(|share| share.wanted());
        for profile in PROFILES {
            let other = wanted[1 - profile as usize];
            let part = (left - other).max(left / 2.0);
            self.shares[profile as usize].set_rate(profile, part, ticks);
        }
    }

    /// Returns the nanoseconds of processor time since the last settlement.
    fn passed(&self) -> f64 {
        let now = errno::kept(kernel_thread::thread_time).as_nanos() as u64;
        // Where the thread's time is not known, all time counts. No thread that runs has used none.
        let now = if now == 0 { clock::monotonic_nanos() } else { now };
        let before = self.time.replace(now);
        // Of a forked child's thread the time begins again at 0.
        if before == 0 { 0.0 } else { now.saturating_sub(before) as f64 }
    }
}

impl Share {
    /// Counts an event, and returns the rate for it.
    #[inline]
    fn count_event(&self, demand: impl FnOnce(u64) -> u64) -> u64 {
        // 0 only in a signal handler that has interrupted the first settlement.
        let rate = self.rate.get().max(1);
        self.events.set(self.events.get().saturating_add(1));
        self.demand.set(self.demand.get().saturating_add(demand(rate)));
        rate
    }

    /// Counts a sample that has cost `ticks`, and now and then tells the other threads what samples cost this one.
    #[inline]
    fn count_sample(&self, ticks: f64, shared: &Shared) {
        // A thread that records what others have chosen may never settle: the number wraps.
        let samples = self.samples.get().wrapping_add(1);
        self.samples.set(samples);
        let mean = self.cost.get();
        let mean = if mean == 0.0 { ticks } else { mean + (ticks.min(mean * MOST_ABOVE_MEAN) - mean) / 8.0 };
        self.cost.set(mean);
        if samples.is_multiple_of(SAMPLES) {
            let of_all = f64::from_bits(shared.cost.load(Ordering::Relaxed));
            let of_all = if of_all == 0.0 { mean } else { of_all + (mean - of_all) / 4.0 };
            shared.cost.store(of_all.to_bits(), Ordering::Relaxed);
        }
    }

    /// Adds what has happened since the last settlement, `passed` nanoseconds of processor time ago.
    fn settle(&self, profile: Profile, passed: f64, ticks: f64, allowance: f64) {
        let shared = &SHARED[profile as usize];
        if self.density.get() < 0.0 {
            self.density.set(f64::from_bits(shared.density.load(Ordering::Relaxed)));
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
        let are_all_longer =
            profile == Profile::Block && demand == self.rate.get().saturating_mul(events.into());
        let costs_far_too_much = f64::from(events) * self.cost.get() > FAR_TOO_MUCH * allowance * passed;
        let step = if events >= SAMPLES && are_all_longer && costs_far_too_much { STEP } else { 1.0 };
        let demand = demand as f64 * self.cost.get();
        self.density.set(step * mean(self.density.get(), demand, passed));
        if events != 0 {
            let of_all = f64::from_bits(shared.density.load(Ordering::Relaxed));
            let density = of_all + (self.density.get() - of_all) / 8.0;
            shared.density.store(density.to_bits(), Ordering::Relaxed);
        }
    }

    /// Returns the ticks per nanosecond that the samples would take at the rate that was set.
    fn wanted(&self) -> f64 {
        match self.set.get() {
            0 => 0.0,
            set => self.density.get() / set as f64,
        }
    }

    /// Sets the rate at which samples take `part`, in ticks per nanosecond.
    fn set_rate(&self, profile: Profile, part: f64, ticks: f64) {
        let most = match profile {
            Profile::Block => (LONGEST_NANOS as f64 * ticks) as u64,
            Profile::Mutex => LARGEST_FRACTION,
        };
        let set = self.set.get();
        // The cast saturates.
        let rate = ((self.density.get() / part).ceil() as u64).min(most).max(set);
        self.rate.set(rate);
        if set != 0 {
            let shared = &SHARED[profile as usize];
            shared.rate.store(rate, Ordering::Relaxed);
            if rate > shared.most.load(Ordering::Relaxed) {
                shared.most.fetch_max(rate, Ordering::Relaxed);
            }
        }
    }
}

/// Returns the new mean of something per nanosecond of processor time, after `passed` nanoseconds in which there was
/// `more` of it.
fn mean(old: f64, more: f64, passed: f64) -> f64 {
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

/// Forgets what threads have told each other, as in a new process.
#[cfg(all(test, not(loom)))]
pub(crate) fn forget() {
    for Shared { cost, density, rate, most } in &SHARED {
        for word in [cost, density, rate, most] {
            word.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "governor_tests.rs"]
mod tests;
