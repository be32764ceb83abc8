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
//! At the rate R a wait of t ticks is sampled with probability min(1, t / R), and a sample costs c, which is measured for
//! one sample in eight. So waits cost c · Σ min(t, R) / R, and the block profile's demand is c · Σ min(t, R). At a fraction
//! N a contended unlock costs c / N, and the mutex profile's demand is c times the number of unlocks. Both divided by the
//! allowance give the rate at which the cost is what is allowed. Expected costs have less scatter than the true ones, so
//! that R does not oscillate.
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
//! # Waits that are watched
//!
//! Some of what a wait costs is due before its length is known: another thread must find the waiter and note when it ends
//! the wait, at w for each waiter that is watched. So of the waits that another thread ends one in M is chosen at its
//! beginning, to be watched. At its end it is sampled at the rate R / M, with the weight M. A wait of at least R and
//! [`ALWAYS_NANOS`] is recorded in any case. Then n waits cost w · n / M + c · Σ min(t, R / M) / R. M is the least number with
//! which watching takes half of the allowance, or with which all of it suffices at R / M = the rate that was set. R is such that
//! samples take the rest. A wait that the mutex profile has chosen is watched too: at the fraction N it costs (w + c) / N.
//!
//! A waiting task has no stack, so it must note its stack before it is known whether it waits, and for how long. This counts
//! as watching. A wait of a task that is not chosen is left out, however long it is, because its stack is not known.
//!
//! # The two profiles
//!
//! Each may use half of what is allowed, and what the other one leaves. An event that is not sampled also costs something,
//! [`UNSAMPLED_NANOS`] and [`UNWATCHED_NANOS`], and the samples get what remains; at least a quarter, because profiles that are
//! empty help no one.
//!
//! # Locks
//!
//! None. [`SETTING`] orders those that set the budget.

mod share;
mod skip;

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use rtprof_runtime::clock::{self, NANOS};
use rtprof_runtime::hook::errno;
use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_runtime::lock::fork_lock::ForkLock;
use rtprof_runtime::random;
use rtprof_runtime::thread::kernel_thread;

pub use share::Raised;
pub(crate) use share::{Begun, ChosenAwait, Profile, raised};
use share::{Demand, SHARED, Share, mean};

/// Events between two settlements; one takes 0.4 µs on an Intel Xeon (VM),
const EVENTS: u32 = 256;
/// or samples, which cost 0.1 µs and more each.
const SAMPLES: u32 = 64;
/// What an event costs that is not sampled: some 10 ns for the decision, and an estimate for what precedes it.
const UNSAMPLED_NANOS: f64 = 30.0;
/// What a wait costs in addition that might have been watched: its cell, and the look of the thread that ends it. In a file
/// server with 28,000 waits a second both together took 280 ns for each (0.66 % of the samples of `perf`; Intel Xeon, VM, on a
/// host that was busy).
const UNWATCHED_NANOS: f64 = 150.0;
/// The part of what threads have told each other of watched waits that is left after another settlement.
const WATCH_MEMORY: f64 = 63.0 / 64.0;
/// The cost of a watched wait before one was measured.
const FIRST_WATCH_NANOS: f64 = 500.0;
/// The part of the allowance that samples get in any case.
const LEAST_PART: f64 = 0.25;

/// The ticks of the clock that samples may take for one nanosecond of processor time: the bits of an `f64`; 0 for no
/// budget.
static ALLOWANCE: AtomicU64 = AtomicU64::new(0);
/// The budget in percent, as it was set; 0 for none.
static PERCENT: AtomicU64 = AtomicU64::new(0);
/// The ticks of the clock in a nanosecond, as the bits of an `f64`. Set before the first budget.
static TICKS: AtomicU64 = AtomicU64::new(0);
/// Held while a budget is set.
static SETTING: ForkLock = ForkLock::new();

const PROFILES: [Profile; 2] = [Profile::Block, Profile::Mutex];

/// What threads tell each other of watched waits: the ticks that were spent for them, and their number, of late. The bits of
/// an `f64` each.
static WATCH: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The account of a thread.
struct Account {
    /// Nanoseconds of the thread's processor time at the last settlement; 0 before the first one.
    time: Cell<u64>,
    /// Ticks for events that were not sampled, per nanosecond of processor time.
    unsampled: Cell<f64>,
    /// Since the last settlement: ticks that this thread has spent for watched waits, mostly of others, and the number of its
    /// own ones.
    watch: Cell<u64>,
    watched: Cell<u32>,
    /// Polls of tasks since the last settlement.
    awaits: Cell<u32>,
    shares: [Share; 2],
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

/// Limits the cost of the samples of the block and mutex profiles to about `percent` percent of the processor time that
/// the program uses. While events are so frequent that samples at the rates that were set would cost more, each thread
/// samples at larger rates. Totals stay true on average, because each sample has the weight of the rate at which it was
/// chosen; only the scatter of the totals grows. Go has no such choice.
///
/// [`init`](https://docs.rs/rtprof/latest/rtprof/fn.init.html) sets a budget of 1; otherwise there is none. The budget
/// may be set at any time, also while events are recorded. A wait of a second or more is always recorded, as long as
/// the rate is not larger than that. Of a task's waits, however, one in several may be recorded for the others too,
/// whatever their length. The profiles' comments say which rates are in force. Must not be called in a hook; the first
/// call may sleep for 5 ms.
///
/// A budget also applies when a rate is 1, which without a budget records everything.
///
/// # Errors
/// Fails and changes nothing if `percent` is not a number, is 0 or less, or is more than 100.
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
        allowance => governed(Profile::Block, set, allowance, |rate| Demand::of_wait(ticks, rate)),
    }
}

/// Returns how a wait is sampled that begins now and may be watched, at the rate `set` that the program has set; `None` if it
/// is watched, and the rest is decided at its end. Returns also whether it is watched.
#[inline]
pub(crate) fn begin_wait(set: u64) -> (Option<Begun>, bool) {
    if ALLOWANCE.load(Ordering::Acquire) == 0 {
        return (None, true);
    }
    ACCOUNT.with(|account| account.shares[Profile::Block as usize].begin(set))
}

/// As [`begin_wait`], for a poll of a task after which it may wait. `None` if the task need not note where it awaits;
/// `Some(None)` if it must, and the rest is decided at the end of the wait.
#[inline]
pub(crate) fn begin_await(set: u64) -> Option<Option<ChosenAwait>> {
    match ALLOWANCE.load(Ordering::Acquire) {
        0 => Some(None),
        allowance => ACCOUNT.with(|account| {
            // Not only where waits end, as those that are left out are not counted there.
            if account.is_due(Profile::Block, set, allowance) {
                account.settle(Profile::Block, set, allowance, account.passed());
            }
            account.begin_await(set)
        }),
    }
}

/// Counts a wait of a task for which [`begin_await`] has returned this.
#[inline]
pub(crate) fn end_await(chosen: ChosenAwait, set: u64, ticks: u64) {
    match ALLOWANCE.load(Ordering::Acquire) {
        0 => {}
        allowance => {
            governed(Profile::Block, set, allowance, |_| chosen.demand(ticks));
        }
    }
}

/// Counts a wait that is watched.
#[inline]
pub(crate) fn count_watched() {
    if ALLOWANCE.load(Ordering::Relaxed) != 0 {
        ACCOUNT.with(|account| account.watched.set(account.watched.get().saturating_add(1)));
    }
}

/// Counts ticks that the current thread has spent for watched waits of any thread.
#[inline]
pub(crate) fn count_watch(ticks: u64) {
    if ALLOWANCE.load(Ordering::Relaxed) != 0 {
        ACCOUNT.with(|account| account.watch.set(account.watch.get().saturating_add(ticks)));
    }
}

/// Counts a wait of `ticks` for which [`begin_wait`] has returned this.
#[inline]
pub(crate) fn end_wait(begun: Begun, set: u64, ticks: u64) {
    match ALLOWANCE.load(Ordering::Acquire) {
        0 => {}
        allowance => {
            governed(Profile::Block, set, allowance, |rate| begun.demand(ticks, rate));
        }
    }
}

/// Returns the fraction for an event of the mutex profile, at the fraction `set` that the program has set.
#[inline]
pub(crate) fn mutex_fraction(set: u64) -> u64 {
    match ALLOWANCE.load(Ordering::Acquire) {
        0 => set,
        allowance => governed(Profile::Mutex, set, allowance, |_| Demand { of: 1, is_longer: false }),
    }
}

/// Decides whether the mutex profile records the event that ends a wait that begins now, at the fraction `set` that the program
/// has set. Returns how many waits this one stands for; 0 if it is not recorded.
#[inline]
pub(crate) fn begin_wait_for_mutex(set: u64) -> u64 {
    match ALLOWANCE.load(Ordering::Acquire) {
        0 => {
            if set == 1 || random::below(set) == 0 {
                set
            } else {
                0
            }
        }
        allowance => ACCOUNT.with(|account| {
            if account.is_due(Profile::Mutex, set, allowance) {
                account.settle(Profile::Mutex, set, allowance, account.passed());
            }
            account.shares[Profile::Mutex as usize].begin_for_mutex()
        }),
    }
}

#[inline]
fn governed(profile: Profile, set: u64, allowance: u64, demand: impl FnOnce(u64) -> Demand) -> u64 {
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

/// Takes a sample, and now and then measures what it costs. Restores `errno`: the kernel may refuse memory for a new stack.
#[inline]
pub(crate) fn sampled(profile: Profile, take: impl FnOnce()) {
    let take = || errno::kept(take);
    if ALLOWANCE.load(Ordering::Relaxed) == 0 {
        return take();
    }
    if !ACCOUNT.with(|account| account.shares[profile as usize].count_sample()) {
        return take();
    }
    let before = clock::ticks();
    take();
    let ticks = clock::since(before, clock::ticks()) as f64;
    ACCOUNT.with(|account| account.shares[profile as usize].add_cost(ticks, &SHARED[profile as usize]));
}

impl Account {
    const fn new() -> Self {
        Self {
            time: Cell::new(0),
            unsampled: Cell::new(0.0),
            watch: Cell::new(0),
            watched: Cell::new(0),
            awaits: Cell::new(0),
            shares: [const { Share::new() }; 2],
        }
    }

    #[inline]
    fn is_due(&self, profile: Profile, set: u64, allowance: u64) -> bool {
        self.shares[profile as usize].is_due(set, allowance)
    }

    /// As the function of this name, without a settlement.
    #[inline]
    fn begin_await(&self, set: u64) -> Option<Option<ChosenAwait>> {
        self.awaits.set(self.awaits.get().saturating_add(1));
        self.shares[Profile::Block as usize].begin_await(set)
    }

    /// Computes the rates anew, after `passed` nanoseconds of processor time.
    #[cold]
    #[inline(never)]
    fn settle(&self, profile: Profile, set: u64, allowance: u64, passed: f64) {
        for share in &self.shares {
            share.allowance.set(allowance);
        }
        self.shares[profile as usize].set.set(set);
        let ticks = f64::from_bits(TICKS.load(Ordering::Relaxed));
        let events: u32 = self.shares.iter().map(|share| share.events.get()).sum();
        // Both profiles may decide about the same wait.
        let awaits = self.awaits.replace(0);
        let watchable = PROFILES.map(|profile| self.shares[profile as usize].watchable.get());
        let waits = watchable[Profile::Block as usize].saturating_sub(awaits);
        let waits = waits.max(watchable[Profile::Mutex as usize]);
        let unsampled =
            f64::from(events.saturating_add(awaits)) * UNSAMPLED_NANOS + f64::from(waits) * UNWATCHED_NANOS;
        let unsampled = mean(self.unsampled.get(), unsampled * ticks, passed);
        self.unsampled.set(unsampled);
        let allowance = f64::from_bits(allowance);
        let watch = self.settle_watch(ticks);
        for profile in PROFILES {
            self.shares[profile as usize].settle(profile, passed, ticks, allowance, watch);
        }
        let left = (allowance - unsampled).max(allowance * LEAST_PART);
        // What each would take at the rate that was set. A profile that is off takes nothing.
        let wanted = PROFILES.map(|profile| self.shares[profile as usize].wanted(profile, watch));
        for profile in PROFILES {
            let other = wanted[1 - profile as usize];
            let part = (left - other).max(left / 2.0);
            self.shares[profile as usize].set_rate(profile, part, ticks, watch);
        }
    }

    /// Tells the other threads what watched waits have cost this one, and returns the ticks for each.
    fn settle_watch(&self, ticks: f64) -> f64 {
        // Some threads wake many and wait seldom, so what was told before is forgotten slowly.
        let [spent, count] = [self.watch.replace(0) as f64, self.watched.replace(0).into()];
        let add = |sum: &AtomicU64, more: f64| {
            let sum_now = f64::from_bits(sum.load(Ordering::Relaxed)) * WATCH_MEMORY + more;
            sum.store(sum_now.to_bits(), Ordering::Relaxed);
            sum_now
        };
        let [spent, count] = [add(&WATCH[0], spent), add(&WATCH[1], count)];
        if count >= 1.0 { spent / count } else { FIRST_WATCH_NANOS * ticks }
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

/// Forgets what threads have told each other, as in a new process.
#[cfg(all(test, not(loom)))]
pub(crate) fn forget() {
    let words = SHARED.iter().flat_map(|share::Shared { cost, density, watchable, rate, most }| {
        [cost, density, watchable, rate, most]
    });
    words.chain(&WATCH).for_each(|word| word.store(0, Ordering::Relaxed));
}

#[cfg(all(test, not(loom)))]
#[path = "governor_tests.rs"]
mod tests;
