//! The block and mutex profiles: which waits are sampled, and what is recorded of them.
//!
//! The block profile says where the program waits: an event a wait, with the stack of who waited. The
//! mutex profile says who made it wait: an event a contended unlock, with the stack of who unlocked and
//! all the time that others waited for it. Go: `blockevent`, `mutexevent`, `saveblockevent`.
//!
//! # Sampling
//!
//! Waits differ by nine orders of magnitude, so a block event is not sampled by count but by its time,
//! as if every tick of waiting were a coin that comes up heads once in `rate`:
//!
//! ```text
//!   P(sampled) = min(1, cycles / rate)       an event of at least `rate` ticks is always recorded
//! ```
//!
//! A sampled event is recorded times 1 / P. So an event shorter than the rate counts as rate / cycles
//! waits of `rate` ticks in all, and the expected sums are the true ones for every length of wait.
//! (Recorded as they are, a thousand waits of 1 ms would outweigh a million of 1 us: golang/go#44192,
//! golang.org/cl/299991.)
//!
//! A mutex event is sampled with probability 1 / fraction, whatever its length, and recorded times the
//! fraction.
//!
//! # Locks
//!
//! None. A hook captures its stack, finds or makes its bucket ([`rtprof_runtime::stack::table`]), and adds to two
//! atomics (`block_record`). Rates are single words, read once an event.

use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

use rtprof_runtime::clock;
use rtprof_runtime::fork_lock::ForkLock;
use rtprof_runtime::hidden::{self, Calls};
use rtprof_runtime::labels::{self, LabelSetId};
use rtprof_runtime::listeners::{self, Listener};
use rtprof_runtime::random;
use rtprof_runtime::stack::scratch::with_frames;
use rtprof_runtime::stack::table::{Entry, Key, Table};
use rtprof_runtime::stack::{Stack, capture, with_room};
use rtprof_runtime::task::{self, WaitObserver};
use rtprof_runtime::wait_site::WaitSite;

use crate::block_kinds::BlockKinds;
use crate::block_record::BlockRecord;

/// Distinct (stack, labels) that each of the two profiles keeps.
const MAX_STACKS: usize = 1 << 16;
/// Buckets that may be made beyond that, all with the overflow stack: one a label set.
const OVERFLOW_BUCKETS: usize = labels::MAX_SETS;

/// What distinguishes buckets of one stack.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BlockKey {
    labels: LabelSetId,
    is_wake: bool,
}

impl Key for BlockKey {
    fn seed(&self) -> u64 {
        u64::from(self.labels.bits()) | u64::from(self.is_wake) << 32
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
/// The same in ticks; 0 is off. What hooks read.
static BLOCK_RATE: AtomicU64 = AtomicU64::new(0);
/// The kinds of waits that the block profile has, in bits.
static BLOCK_KINDS: AtomicU8 = AtomicU8::new(BlockKinds::DEFAULT.bits());
/// The mutex profile fraction; 0 is off, never negative.
static MUTEX_FRACTION: AtomicI64 = AtomicI64::new(0);
/// Held while a rate is set: of two setters at one time the later one sets all that belongs to it.
static SETTING: ForkLock = ForkLock::new();

/// Makes what the two profiles need. Idempotent. Not for hooks.
pub fn open() {
    rtprof_runtime::init::open();
    BLOCK.open();
    MUTEX.open();
    task::observe_waits(&(await_event as WaitObserver));
}

/// Sets the rate of the block profile: on average one wait is sampled for every `nanos` nanoseconds that
/// threads spend waiting, and every wait that takes longer. 1 samples everything, 0 (the default)
/// nothing. Any value is valid. Go: `runtime.SetBlockProfileRate`.
///
/// It takes effect with the waits that end from now on. Each event is scaled by the rate it was sampled
/// at, so totals stay true across changes.
pub fn set_block_profile_rate(nanos: u64) {
    let rate = match nanos {
        0 => 0,
        1 => 1,
        // In floating point, where nothing overflows; the cast saturates.
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

/// Sets which kinds of waits the block profile has, and returns those that it had. [`BlockKinds::DEFAULT`] is what Go's has, and the
/// waits of async tasks. It takes effect with the waits that end from now on. The first call that adds kinds to a profile that is on
/// may sleep for 5 ms. Go has no such choice.
pub fn set_block_profile_kinds(kinds: BlockKinds) -> BlockKinds {
    let _held = SETTING.lock();
    let previous = BLOCK_KINDS.swap(kinds.bits(), Ordering::Relaxed);
    note_calls();
    BlockKinds::from_bits(previous)
}

/// The kinds of waits that the block profile has.
#[inline]
pub fn block_profile_kinds() -> BlockKinds {
    BlockKinds::from_bits(BLOCK_KINDS.load(Ordering::Relaxed))
}

/// Whether the block profile has waits of this kind, and is on. For hooks.
#[inline]
pub fn is_block_kind_on(kind: BlockKinds) -> bool {
    BLOCK_RATE.load(Ordering::Relaxed) != 0 && block_profile_kinds().contains(kind)
}

/// `SETTING` is held.
fn note_calls() {
    // Some calls that wait for the network by name are sleeps.
    let of_calls = [BlockKinds::NETWORK, BlockKinds::SYSCALL, BlockKinds::SLEEP];
    let has_calls = of_calls.into_iter().any(is_block_kind_on);
    if has_calls {
        // So that hooks know how long a call is that is recorded. It may sleep, which is no wait of the program's.
        hidden::hiding(Calls::WAITS, clock::ticks_per_second);
    }
    listeners::set(Listener::BlockCalls, has_calls);
    task::note_waits(is_block_kind_on(BlockKinds::AWAIT));
}

/// The rate of the block profile in nanoseconds, as it was set; 0 when it is off.
#[inline]
pub fn block_profile_rate() -> u64 {
    BLOCK_NANOS.load(Ordering::Relaxed)
}

/// Sets the fraction of contended unlocks that the mutex profile records, one in `rate` on average, and
/// returns the previous one. 1 records every one, 0 (the default) none; a negative `rate` changes nothing
/// and reads. Any value is valid. Go: `runtime.SetMutexProfileFraction`.
///
/// It takes effect with the next unlock, also of locks that are held now. Each event is scaled by the
/// fraction it was sampled at, so totals stay true across changes.
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

/// A wait of `cycles` ticks is over: samples it, with the caller's stack. Go: `blockevent`. For hooks.
#[inline]
pub fn block_event(cycles: u64) {
    // Acquire: what `init::open` made is there for whoever sees a rate.
    let rate = BLOCK_RATE.load(Ordering::Acquire);
    if rate != 0 {
        sample_block(cycles.max(1), rate);
    }
}

/// A wait of a task is over that took `cycles` ticks: samples it, with the stack and labels that the task has noted. For hooks.
fn await_event(cycles: u64, stack: &[usize], labels: LabelSetId) {
    let rate = BLOCK_RATE.load(Ordering::Acquire);
    if rate != 0 && is_block_sampled(cycles, rate) {
        let (count, cycles) = block_weight(cycles, rate);
        add(&BLOCK, BlockKey { labels, is_wake: false }, stack, count, cycles, None);
    }
}

/// A lock was given up for which others had waited `cycles` ticks together since it was last charged, of
/// them `waits` for the first time: samples it, with the caller's stack. Go: `mutexevent`. For hooks.
#[inline]
pub fn mutex_event(waits: u64, cycles: u64) {
    let fraction = MUTEX_FRACTION.load(Ordering::Acquire);
    if fraction > 0 {
        sample_mutex(waits, cycles, fraction as u64, None);
    }
}

/// As [`mutex_event`], of a wake that may have been an unlock or something else that others waited for: a notified condition,
/// a message. Its stack tells, once its functions have names, or else the place where one of them has waited. For hooks.
#[inline]
pub fn wake_event(waits: u64, cycles: u64, waited_at: Option<&'static WaitSite>) {
    let fraction = MUTEX_FRACTION.load(Ordering::Acquire);
    if fraction > 0 {
        sample_mutex(waits, cycles, fraction as u64, Some(Wake { waited_at }));
    }
}

/// Whether [`mutex_event`] may record anything. For hooks.
#[inline]
pub fn is_mutex_profile_on() -> bool {
    // Acquire: as in `block_event`.
    MUTEX_FRACTION.load(Ordering::Acquire) > 0
}

#[inline(never)]
fn sample_block(cycles: u64, rate: u64) {
    if is_block_sampled(cycles, rate) {
        let (count, cycles) = block_weight(cycles, rate);
        record(&BLOCK, count, cycles, None);
    }
}

#[inline(never)]
fn sample_mutex(waits: u64, cycles: u64, fraction: u64, wake: Option<Wake>) {
    if fraction == 1 || random::below(fraction) == 0 {
        record(&MUTEX, waits as f64 * fraction as f64, cycles.saturating_mul(fraction), wake);
    }
}

/// Go: `blocksampled`.
fn is_block_sampled(cycles: u64, rate: u64) -> bool {
    cycles >= rate || random::below(rate) < cycles
}

/// What an event stands for that was sampled: how many waits, and how many ticks.
fn block_weight(cycles: u64, rate: u64) -> (f64, u64) {
    if cycles < rate { (rate as f64 / cycles as f64, rate) } else { (1.0, cycles) }
}

#[inline]
fn record(buckets: &'static Buckets, count: f64, cycles: u64, wake: Option<Wake>) {
    with_room(|| record_here(buckets, count, cycles, wake));
}

#[inline(never)]
fn record_here(buckets: &'static Buckets, count: f64, cycles: u64, wake: Option<Wake>) {
    with_frames(|frames| {
        let depth = capture(frames);
        let key = BlockKey { labels: labels::current_id(), is_wake: wake.is_some() };
        add(buckets, key, &frames[..depth], count, cycles, wake);
    });
}

fn add(
    buckets: &'static Buckets,
    key: BlockKey,
    stack: &[usize],
    count: f64,
    cycles: u64,
    wake: Option<Wake>,
) {
    if let Some(bucket) = buckets.intern_or_fold(key, stack, |key| key, OVERFLOW_BUCKETS) {
        if let Some(Wake { waited_at: Some(site) }) = wake {
            bucket.record.note_wait_site(site);
        }
        bucket.record.add(count, cycles);
    }
}

/// What [`wake_event`] tells beside the stack.
#[derive(Clone, Copy)]
struct Wake {
    waited_at: Option<&'static WaitSite>,
}

/// A bucket of the block or mutex profile: what its samples stand for.
#[derive(Clone, Copy, Debug)]
pub struct BlockCount {
    /// Who waited, or was waited for.
    pub stack: Stack<'static>,
    /// The labels of the thread or task.
    pub labels: LabelSetId,
    /// Whether it is from [`wake_event`], so that it may be no unlock.
    pub is_wake: bool,
    /// Where the first has waited that such a wake has ended, if that is known: the innermost frames.
    pub waited_at: Option<Stack<'static>>,
    /// How many waits.
    pub count: f64,
    /// How many ticks of the clock they took.
    pub cycles: u64,
}

/// The block profile, the newest stack first. For exports; Go's form is [`crate::block_profile`].
pub fn block_counts() -> Vec<BlockCount> {
    counts(&BLOCK)
}

/// The mutex profile, the newest stack first. For exports; Go's form is [`crate::mutex_profile`].
pub fn mutex_counts() -> Vec<BlockCount> {
    counts(&MUTEX)
}

fn counts(buckets: &'static Buckets) -> Vec<BlockCount> {
    let mut out = Vec::with_capacity(buckets.len());
    // A bucket is in the table before its first event is, and stays empty if its maker lost a race.
    out.extend(buckets.iter().filter_map(|bucket| {
        let (count, cycles) = bucket.record.read();
        let (stack, labels) = (bucket.captured(), bucket.key.labels);
        let is_wake = bucket.key.is_wake;
        let waited_at = bucket.record.wait_site().map(Entry::captured);
        let counted = BlockCount { stack, labels, is_wake, waited_at, count, cycles };
        (count > 0.0 || cycles > 0).then_some(counted)
    }));
    out
}

#[cfg(all(test, not(loom)))]
#[path = "contention_tests.rs"]
mod tests;
