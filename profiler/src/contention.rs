//! The block and mutex profiles: the sampling of waits, and their records.
//!
//! The block profile shows where the program waits: an event per wait, with the stack of the waiter. The mutex profile
//! shows what makes it wait: an event per contended unlock, with the stack of the unlocker and the total time that
//! others waited for it. Go: `blockevent`, `mutexevent`, `saveblockevent`.
//!
//! # Sampling
//!
//! The lengths of waits span nine orders of magnitude, so a block event is not sampled by count but by its time, as if
//! every tick of waiting were a coin that comes up heads once in `rate`:
//!
//! ```text
//!   P(sampled) = min(1, cycles / rate)       an event of at least `rate` ticks is always recorded
//! ```
//!
//! A sampled event is recorded times 1 / P. So an event shorter than the rate counts as rate / cycles waits of `rate`
//! ticks in total, and the expected sums are the true ones for every length of wait. (Recorded without this factor, a
//! thousand waits of 1 ms would outweigh a million of 1 us: golang/go#44192, golang.org/cl/299991.)
//!
//! A mutex event is sampled with probability 1 / fraction, whatever its length, and recorded times the
//! fraction. Where the waiter must note something for it, the waiter decides, before it waits: each wait is chosen
//! with this probability ([`choose_wait`]), and the event that ends it is recorded times the fraction.
//!
//! The same choice says whether the block profile needs the exact end of the wait, which the thread that wakes the waiter
//! must note: always, or, where a budget leads to larger rates, for one wait in a few, which stands for the others. Likewise
//! a task must note where it awaits before it waits, and with a budget it does so for one wait in a few.
//!
//! With a budget ([`set_profile_budget`]) threads sample at larger rates than those that were set, while events are
//! frequent. Everywhere below a rate is the one in force for this thread, which the module `governor` computes.
//!
//! # Locks
//!
//! None. A hook captures its stack, finds or makes its bucket ([`rtprof_runtime::stack::table`]), and adds to two
//! atomics (`block_record`). Rates are single words, read once per event.

use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

use rtprof_runtime::clock;
use rtprof_runtime::counters::{CountedProfile, Counter};
use rtprof_runtime::goroutine::wait_site::WaitSite;
use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_runtime::hook::listeners::{self, Listener};
use rtprof_runtime::labels::{self, LabelSetId};
use rtprof_runtime::lock::fork_lock::ForkLock;
use rtprof_runtime::random;
use rtprof_runtime::stack::scratch::with_frames;
use rtprof_runtime::stack::table::{Entry, Key, Table};
use rtprof_runtime::stack::{Stack, capture, with_room};
use rtprof_runtime::task::{self, WaitChoice, WaitObserver};

use crate::block_kinds::BlockKinds;
pub use crate::block_record::BlockRecord;
use crate::governor::{self, Begun, ChosenAwait, Profile};
pub use crate::governor::{
    BudgetError, Raised, clear_profile_budget, is_budget, profile_budget, set_profile_budget,
};

/// The number of distinct (stack, labels) that each of the two profiles stores.
const MAX_STACKS: usize = 1 << 16;

/// Waits beyond this number.
pub(crate) static OVER_LIMIT: Counter = Counter::new(CountedProfile::WAITS, || {
    format!(
        "waits were beyond the {MAX_STACKS} distinct stacks that the block and mutex profiles keep each, and stand under \
         too_many_distinct_stacks"
    )
});
/// The number of buckets that may be made beyond that, all with the overflow stack: one per label set.
const OVERFLOW_BUCKETS: usize = labels::MAX_SETS;

/// The part of the key that distinguishes buckets of one stack.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BlockKey {
    labels: LabelSetId,
    /// Of a wake that may not be an unlock, what tells apart the functions in which the woken threads have waited. One unlock
    /// may wake a thread that has waited for the lock, and another time one that was handed to the lock by a condition.
    woken_in: Option<u32>,
    /// The kind of a wait; none of unlocks and wakes.
    kind: BlockKinds,
}

impl Key for BlockKey {
    fn seed(&self) -> u64 {
        let apart = self.woken_in.map_or(u32::from(self.kind.bits()), |caller| caller | 1 << 31);
        u64::from(self.labels.bits()) | u64::from(apart) << 32
    }
}

type Buckets = Table<BlockKey, BlockRecord>;

rtprof_runtime::lazy_under_loom! {
    static BLOCK: Buckets = Table::new(MAX_STACKS);
}
rtprof_runtime::lazy_under_loom! {
    static MUTEX: Buckets = Table::new(MAX_STACKS);
}

/// The block profile rate as it was set, in nanoseconds.
static BLOCK_NANOS: AtomicU64 = AtomicU64::new(0);
/// The same rate in ticks, as hooks read it; 0 means off.
static BLOCK_RATE: AtomicU64 = AtomicU64::new(0);
/// The kinds of waits that the block profile includes, as bits.
static BLOCK_KINDS: AtomicU8 = AtomicU8::new(BlockKinds::DEFAULT.bits());
/// The mutex profile fraction; 0 means off, never negative.
static MUTEX_FRACTION: AtomicI64 = AtomicI64::new(0);
/// Held while a rate is set: of two concurrent setters the later one sets all words that belong to the rate.
static SETTING: ForkLock = ForkLock::new();

/// Initialises the two profiles. Idempotent. Must not be called in a hook.
pub fn open() {
    rtprof_runtime::init::open();
    BLOCK.open();
    MUTEX.open();
    task::observe_waits(&WaitObserver {
        choose: choose_await,
        noted: governor::count_watch,
        waited: await_event,
    });
}

/// Sets the rate of the block profile: on average one wait is sampled for every `nanos` nanoseconds that threads spend
/// waiting, and also every wait that takes longer. 1 samples everything, 0 (the default) nothing. Any value is valid.
/// Go: `runtime.SetBlockProfileRate`.
///
/// The rate applies to waits that end from now on. Each event is scaled by the rate at which it was sampled, so totals
/// stay true across changes.
pub fn set_block_profile_rate(nanos: u64) {
    let rate = match nanos {
        0 => 0,
        1 => 1,
        // In floating point, which does not overflow; the cast saturates.
        _ => ((nanos as f64 * clock::ticks_per_second() as f64 / clock::NANOS as f64) as u64)
            .clamp(1, i64::MAX as u64),
    };
    if rate != 0 {
        open();
    }
    let _held = SETTING.lock();
    BLOCK_NANOS.store(nanos, Ordering::Relaxed);
    BLOCK_RATE.store(rate, Ordering::Release);
    listeners::set(Listener::Block, rate != 0);
    note_calls();
}

/// Sets the kinds of waits that the block profile includes, and returns the previous ones. [`BlockKinds::DEFAULT`] is
/// Go's set plus the waits of async tasks. The set applies to waits that end from now on. The first call that adds
/// kinds to a profile that is on may sleep for 5 ms. Go has no such choice.
pub fn set_block_profile_kinds(kinds: BlockKinds) -> BlockKinds {
    let _held = SETTING.lock();
    let previous = BLOCK_KINDS.swap(kinds.bits(), Ordering::Relaxed);
    note_calls();
    BlockKinds::from_bits_truncate(previous)
}

/// Returns the kinds of waits that the block profile includes.
#[inline]
pub fn block_profile_kinds() -> BlockKinds {
    BlockKinds::from_bits_truncate(BLOCK_KINDS.load(Ordering::Relaxed))
}

/// Returns whether the block profile is on and includes waits of this kind. Safe to call in a hook.
#[inline]
pub fn is_block_kind_on(kind: BlockKinds) -> bool {
    BLOCK_RATE.load(Ordering::Relaxed) != 0 && block_profile_kinds().contains(kind)
}

/// Updates the listeners to calls. The caller holds `SETTING`.
fn note_calls() {
    // Some calls that are named after the network are sleeps.
    let of_calls = [BlockKinds::NETWORK, BlockKinds::SYSCALL, BlockKinds::SLEEP];
    let has_calls = of_calls.into_iter().any(is_block_kind_on);
    if has_calls {
        // Hooks need the frequency to measure the length of a recorded call. This may sleep, which is not the program's
        // wait.
        hidden::hiding(Calls::WAITS, clock::ticks_per_second);
    }
    listeners::set(Listener::BlockCalls, has_calls);
    task::note_waits(is_block_kind_on(BlockKinds::AWAIT));
}

/// Returns the rate of the block profile in nanoseconds, as it was set; 0 when it is off.
#[inline]
pub fn block_profile_rate() -> u64 {
    BLOCK_NANOS.load(Ordering::Relaxed)
}

/// Sets the fraction of contended unlocks that the mutex profile records, one in `rate` on average, and returns the
/// previous one. 1 records every contended unlock, 0 (the default) none; with a negative `rate` the fraction is only
/// returned. Any value is valid. Go: `runtime.SetMutexProfileFraction`.
///
/// The fraction applies from the next unlock on, also to locks that are held now. In unmodified code (`interpose`) it
/// applies from the next wait on. Each event is scaled by the fraction at which it was sampled, so totals stay true
/// across changes.
pub fn set_mutex_profile_fraction(rate: i64) -> i64 {
    if rate < 0 {
        return MUTEX_FRACTION.load(Ordering::Relaxed);
    }
    if rate > 0 {
        open();
    }
    let _held = SETTING.lock();
    let previous = MUTEX_FRACTION.swap(rate, Ordering::AcqRel);
    listeners::set(Listener::Mutex, rate != 0);
    previous
}

/// Samples a completed wait of this kind and of `cycles` ticks, with the caller's stack. Go: `blockevent`. Safe to call in a
/// hook.
#[inline]
pub fn block_event(kind: BlockKinds, cycles: u64) {
    // Acquire: a thread that reads a rate sees what `init::open` has made.
    let rate = BLOCK_RATE.load(Ordering::Acquire);
    if rate != 0 {
        let cycles = cycles.max(1);
        sample_block(kind, cycles, governor::block_rate(rate, cycles));
    }
}

/// Decides about the wait that may follow a poll of a task, which must note where it awaits before it is known whether it
/// waits, and for how long. Safe to call in a hook.
fn choose_await() -> Option<WaitChoice> {
    let rate = BLOCK_RATE.load(Ordering::Acquire);
    if rate == 0 {
        return Some(WaitChoice::LATER);
    }
    let choice = governor::begin_await(rate)?;
    governor::count_watched();
    Some(choice.map_or(WaitChoice::LATER, |ChosenAwait(number)| WaitChoice(number)))
}

/// Samples a completed wait of a task that took `cycles` ticks, with the stack and labels that the task has noted. Safe
/// to call in a hook.
fn await_event(choice: WaitChoice, cycles: u64, stack: &[usize], labels: LabelSetId) {
    let set = BLOCK_RATE.load(Ordering::Acquire);
    if set == 0 {
        return;
    }
    let cycles = cycles.max(1);
    let (rate, one_in) = match choice {
        WaitChoice::LATER => (governor::block_rate(set, cycles), 1.0),
        WaitChoice(number) => {
            let chosen = ChosenAwait(number);
            governor::end_await(chosen, set, cycles);
            (chosen.rate(), chosen.one_in())
        }
    };
    if is_block_sampled(cycles, rate) {
        let (count, cycles) = block_weight(cycles, rate);
        let (count, cycles) = (count * one_in, (cycles as f64 * one_in) as u64);
        governor::sampled(Profile::Block, || {
            let key = BlockKey { labels, woken_in: None, kind: BlockKinds::AWAIT };
            add(&BLOCK, key, stack, count, cycles, Cause::Wait(BlockKinds::AWAIT));
        });
    }
}

/// Samples an unlock, with the caller's stack. Others had waited for the lock for `cycles` ticks in total since it was
/// last charged; for `waits` of them it is the first charge. Go: `mutexevent`. Safe to call in a hook.
#[inline]
pub fn mutex_event(waits: u64, cycles: u64) {
    let fraction = MUTEX_FRACTION.load(Ordering::Acquire);
    if fraction > 0 {
        sample_mutex(waits, cycles, governor::mutex_fraction(fraction as u64));
    }
}

/// What was decided of a wait at its beginning, for a wait that another thread may end.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// How many waits this one stands for in the mutex profile; 0 if the event that ends it is not recorded.
    pub mutex: u64,
    /// Of the block profile.
    pub block: BlockChoice,
}

/// What was decided of a wait at its beginning for the block profile.
#[derive(Clone, Copy, Debug)]
pub struct BlockChoice {
    begun: Option<Begun>,
    is_chosen: bool,
}

impl BlockChoice {
    /// All is decided at the end of the wait, and its end need not be noted exactly.
    pub const UNWATCHED: Self = Self { begun: None, is_chosen: false };
}

impl Choice {
    /// Returns whether the thread that ends the wait should note when it does.
    pub fn is_watched(self) -> bool {
        self.mutex != 0 || self.block.is_chosen
    }
}

/// Decides of a wait of this kind, which begins now, whether the mutex profile records the event that ends it, and whether
/// its end must be known exactly for the block profile. Safe to call in a hook.
#[inline]
pub fn choose_wait(kind: BlockKinds) -> Choice {
    let choice = Choice { mutex: choose_for_mutex(), block: choose_for_block(kind) };
    if choice.is_watched() {
        governor::count_watched();
    }
    choice
}

#[inline]
fn choose_for_mutex() -> u64 {
    // A waiter notes 32 bits of what it stands for. One in so many is chosen in no process.
    let fraction = (MUTEX_FRACTION.load(Ordering::Acquire) as u64).min(u32::MAX.into());
    if fraction == 0 {
        return 0;
    }
    let weight = governor::begin_wait_for_mutex(fraction);
    if weight != 0 {
        governor::count_sample(Profile::Mutex);
    }
    weight
}

#[inline]
fn choose_for_block(kind: BlockKinds) -> BlockChoice {
    let rate = BLOCK_RATE.load(Ordering::Acquire);
    if rate == 0 || !block_profile_kinds().contains(kind) {
        return BlockChoice::UNWATCHED;
    }
    let (begun, is_chosen) = governor::begin_wait(rate);
    BlockChoice { begun, is_chosen }
}

/// Notes that the current thread has spent so many ticks in order to note the ends of watched waits. Safe to call in a hook.
#[inline]
pub fn note_watch(ticks: u64) {
    governor::count_watch(ticks);
}

/// Samples a completed wait of this kind, for which [`choose_wait`] was called, with the caller's stack. It took `cycles` ticks until another
/// thread ended it, and `elapsed` until its own thread ran again. Safe to call in a hook.
#[inline]
pub fn chosen_block_event(kind: BlockKinds, choice: BlockChoice, cycles: u64, elapsed: u64) {
    let Some(begun) = choice.begun else { return block_event(kind, cycles) };
    let rate = BLOCK_RATE.load(Ordering::Acquire);
    // The profile may have been switched off since.
    if rate != 0 {
        governor::end_wait(begun, rate, elapsed);
        if choice.is_chosen || begun.is_always(elapsed) {
            sample_chosen(kind, begun, cycles.max(1), elapsed);
        }
    }
}

#[inline(never)]
fn sample_chosen(kind: BlockKinds, begun: Begun, cycles: u64, elapsed: u64) {
    // By `elapsed`, because it must not depend on the choice whether a wait is recorded in any case.
    let (count, cycles) = if begun.is_always(elapsed) {
        (1.0, cycles)
    } else if is_block_sampled(cycles, begun.rate_of_chosen) {
        let (count, cycles) = block_weight(cycles, begun.rate_of_chosen);
        (count * begun.one_in, (cycles as f64 * begun.one_in) as u64)
    } else {
        return;
    };
    governor::sampled(Profile::Block, || _ = record(&BLOCK, count, cycles, Cause::Wait(kind)));
}

/// Records the unlock that ends waits which [`choose_wait`] has chosen, with the caller's stack. They stand for `waits`
/// of `cycles` ticks in total. Safe to call in a hook.
#[inline]
pub fn chosen_mutex_event(waits: u64, cycles: u64) {
    record_chosen(waits, cycles, Cause::Unlock);
}

/// Records as [`chosen_mutex_event`] does a wake that may have been an unlock or another event that others waited for: a
/// notified condition, a message. The function names of its stack show later which, or else those of the site where one
/// of the waiters has waited. `woken_in` tells apart the functions in which they have. If the site is not known yet, returns the record, for [`note_wait_site`]. Safe to call in a hook.
#[inline]
pub fn chosen_wake_event(
    waits: u64,
    cycles: u64,
    woken_in: u32,
    waited_at: Option<&'static WaitSite>,
) -> Option<&'static BlockRecord> {
    record_chosen(waits, cycles, Cause::Wake { woken_in, waited_at })
}

/// Notes where a wait was that was ended by wakes of this record. Only the first site is kept: waits of one function that one stack
/// has ended are of one kind. Safe to call in a hook.
pub fn note_wait_site(record: &BlockRecord, site: Option<&'static WaitSite>) {
    if let Some(site) = site {
        record.note_wait_site(site);
    }
}

#[inline(never)]
fn record_chosen(waits: u64, cycles: u64, cause: Cause) -> Option<&'static BlockRecord> {
    // The profile may have been switched off since.
    if !is_mutex_profile_on() {
        return None;
    }
    let mut recorded = None;
    governor::sampled(Profile::Mutex, || recorded = record(&MUTEX, waits as f64, cycles, cause));
    recorded.filter(|record| record.wait_site().is_none())
}

/// Returns whether [`mutex_event`] may record anything. Safe to call in a hook.
#[inline]
pub fn is_mutex_profile_on() -> bool {
    // Acquire: a thread that reads a fraction sees what `init::open` has made.
    MUTEX_FRACTION.load(Ordering::Acquire) > 0
}

/// Returns the rates of the block and the mutex profile to which the budget has led: in nanoseconds, and as a fraction.
/// `None` where there is no budget, or it has raised none.
pub fn raised_rates() -> [Option<Raised>; 2] {
    if profile_budget().is_none() {
        return [None; 2];
    }
    let nanos = |ticks: u64| (ticks as f64 * clock::NANOS as f64 / clock::ticks_per_second() as f64) as u64;
    let block = governor::raised(Profile::Block, BLOCK_RATE.load(Ordering::Relaxed))
        .map(|raised| Raised { now: nanos(raised.now), most: nanos(raised.most) });
    let fraction = MUTEX_FRACTION.load(Ordering::Relaxed) as u64;
    [block, governor::raised(Profile::Mutex, fraction)]
}

#[inline(never)]
fn sample_block(kind: BlockKinds, cycles: u64, rate: u64) {
    if is_block_sampled(cycles, rate) {
        let (count, cycles) = block_weight(cycles, rate);
        governor::sampled(Profile::Block, || _ = record(&BLOCK, count, cycles, Cause::Wait(kind)));
    }
}

#[inline(never)]
fn sample_mutex(waits: u64, cycles: u64, fraction: u64) {
    if fraction == 1 || random::below(fraction) == 0 {
        let (waits, cycles) = (waits as f64 * fraction as f64, cycles.saturating_mul(fraction));
        governor::sampled(Profile::Mutex, || _ = record(&MUTEX, waits, cycles, Cause::Unlock));
    }
}

/// Decides whether a block event is sampled. Go: `blocksampled`.
fn is_block_sampled(cycles: u64, rate: u64) -> bool {
    cycles >= rate || random::below(rate) < cycles
}

/// Returns the number of waits and of ticks that a sampled event stands for.
fn block_weight(cycles: u64, rate: u64) -> (f64, u64) {
    if cycles < rate { (rate as f64 / cycles as f64, rate) } else { (1.0, cycles) }
}

#[inline]
fn record(buckets: &'static Buckets, count: f64, cycles: u64, cause: Cause) -> Option<&'static BlockRecord> {
    with_room(|| record_here(buckets, count, cycles, cause)).flatten()
}

#[inline(never)]
fn record_here(
    buckets: &'static Buckets,
    count: f64,
    cycles: u64,
    cause: Cause,
) -> Option<&'static BlockRecord> {
    with_frames(|frames| {
        let depth = capture(frames);
        let (woken_in, kind) = match cause {
            Cause::Wake { woken_in, .. } => (Some(woken_in), BlockKinds::NONE),
            Cause::Wait(kind) => (None, kind),
            Cause::Unlock => (None, BlockKinds::NONE),
        };
        let key = BlockKey { labels: labels::current_id(), woken_in, kind };
        add(buckets, key, &frames[..depth], count, cycles, cause)
    })
}

fn add(
    buckets: &'static Buckets,
    key: BlockKey,
    stack: &[usize],
    count: f64,
    cycles: u64,
    cause: Cause,
) -> Option<&'static BlockRecord> {
    let bucket = buckets.intern_or_fold(key, stack, |key| key, OVERFLOW_BUCKETS)?;
    match cause {
        Cause::Wake { waited_at: Some(site), .. } => bucket.record.note_wait_site(site),
        Cause::Wake { waited_at: None, .. } | Cause::Wait(_) | Cause::Unlock => {}
    }
    bucket.record.add(count, cycles);
    Some(&bucket.record)
}

/// What a sample is of, with the data that its record notes.
#[derive(Clone, Copy)]
enum Cause {
    /// A wait.
    Wait(BlockKinds),
    /// An unlock.
    Unlock,
    /// A [`chosen_wake_event`].
    Wake { woken_in: u32, waited_at: Option<&'static WaitSite> },
}

/// A bucket of the block or mutex profile, scaled by the weights of its samples.
#[derive(Clone, Copy, Debug)]
pub struct BlockCount {
    /// The stack of the waiter, or of the unlocker.
    pub stack: Stack<'static>,
    /// The labels of the thread or task.
    pub labels: LabelSetId,
    /// If it is from [`chosen_wake_event`], so that it may not be an unlock: what tells apart the functions in which the woken
    /// threads have waited.
    pub woken_in: Option<u32>,
    /// The kind of the waits; none of wakes and unlocks.
    pub kind: BlockKinds,
    /// The innermost frames of the site of the first wait that this wake has ended, if it is known.
    pub waited_at: Option<Stack<'static>>,
    /// The number of waits.
    pub count: f64,
    /// The total ticks of the clock that they took.
    pub cycles: u64,
}

/// Returns the block profile, the newest stack first. For exports; Go's form is [`crate::block_profile`].
pub fn block_counts() -> Vec<BlockCount> {
    counts(&BLOCK)
}

/// Returns the mutex profile, the newest stack first. For exports; Go's form is [`crate::mutex_profile`].
pub fn mutex_counts() -> Vec<BlockCount> {
    counts(&MUTEX)
}

fn counts(buckets: &'static Buckets) -> Vec<BlockCount> {
    let mut out = Vec::with_capacity(buckets.len());
    // A bucket is in the table before its first event is added, and stays empty if its maker lost a race.
    out.extend(buckets.iter().filter_map(|bucket| {
        let (count, cycles) = bucket.record.read();
        let (stack, labels) = (bucket.captured(), bucket.key.labels);
        let woken_in = bucket.key.woken_in;
        let waited_at = bucket.record.wait_site().map(Entry::captured);
        let counted = BlockCount { stack, labels, woken_in, kind: bucket.key.kind, waited_at, count, cycles };
        (count > 0.0 || cycles > 0).then_some(counted)
    }));
    out
}

#[cfg(all(test, not(loom)))]
#[path = "contention_tests.rs"]
pub(crate) mod tests;
