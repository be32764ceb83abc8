//! Sampling as statistics, and recording as sums.
//!
//! Draws use fixed seeds, so that a run repeats. The bounds are still 6 sigma: one check in 5e8 fails by chance when
//! the generator or the order of draws changes. Each estimate has about a thousand samples, which is near enough to
//! normal for that.

use core::sync::atomic::AtomicBool;
use rtprof_runtime::clock::{NANOS, ticks_per_second};

use rtprof_runtime::counters::CountedProfile;
use rtprof_runtime::labels::{do_with, resolve};
use rtprof_runtime::lock::fork_lock::ForkLock;
use rtprof_runtime::stack;

use super::*;
use crate::comments;

/// Serialises the tests that change the rates, which belong to the process.
pub(crate) static TURN: ForkLock = ForkLock::new();

/// Guard that switches both profiles off when dropped, before the next test takes its turn.
struct Off;

impl Drop for Off {
    fn drop(&mut self) {
        set_block_profile_rate(0);
        set_mutex_profile_fraction(0);
        clear_profile_budget();
    }
}

fn off() -> Off {
    open();
    drop(Off);
    Off
}

/// Runs `events` under a label, so that their records are distinguished from others.
fn named(name: &str, events: impl FnOnce()) {
    do_with(labels::labels(&[("events", name)]), events);
}

fn of_name(counts: Vec<BlockCount>, name: &str) -> Vec<BlockCount> {
    let is_named = |count: &BlockCount| resolve(count.labels).iter().any(|(_, value)| value == name);
    counts.into_iter().filter(is_named).collect()
}

/// Returns the number of waits and ticks recorded under a name.
fn totals(counts: Vec<BlockCount>, name: &str) -> (f64, u64) {
    let named = of_name(counts, name);
    (named.iter().map(|count| count.count).sum(), named.iter().map(|count| count.cycles).sum())
}

/// Checks an estimate with this variance; with variance 0 it is exact.
fn assert_near(what: &str, estimate: f64, exact: f64, variance: f64) {
    let off = (estimate - exact).abs();
    // A sum of fractions is exact up to its last bits.
    assert!(
        off <= 6.0 * variance.sqrt() + exact * 1e-9,
        "{what}: {estimate} for {exact}, which is {off} off"
    );
}

/// `waits` waits of `cycles` ticks at a rate: both totals are the true ones, whatever the length. Recorded without the
/// scaling (go#44192), the totals of waits a thousandth of the rate long would be a thousandth of the true ones.
#[test]
fn waits_of_every_length_have_their_true_totals() {
    let _turn = TURN.lock();
    let _off = off();
    random::reseed(44_192);
    for rate in [1_u64, 1_000, 1_000_000, 1_000_000_000] {
        BLOCK_RATE.store(rate, Ordering::Release);
        let all = (1000 * rate).max(50_000);
        for cycles in [rate / 1000, rate / 10, rate - rate / 3, rate, 50 * rate] {
            let cycles = cycles.max(1);
            let waits = all / cycles;
            let name = format!("{waits} of {cycles} at {rate}");
            let before = totals(block_counts(), &name);
            named(&name, || (0..waits).for_each(|_| block_event(BlockKinds::SYNC, cycles)));
            let (count, ticks) = totals(block_counts(), &name);
            let (count, ticks) = (count - before.0, (ticks - before.1) as f64);
            let (waits, cycles) = (waits as f64, cycles as f64);
            let p = (cycles / rate as f64).min(1.0);
            let variance = waits * (1.0 - p) / p;
            assert_near(&format!("{name}: waits"), count, waits, variance);
            assert_near(&format!("{name}: ticks"), ticks, waits * cycles, variance * cycles * cycles);
        }
    }
}

/// Above 2^32 ticks the remainder of a 32-bit number is not uniform: it would sample every wait of more than 2^32
/// ticks, and shorter ones in proportion to 2^32 instead of the rate.
#[test]
fn rates_beyond_32_bits_sample_evenly() {
    random::reseed(32);
    const WAITS: u64 = 200_000;
    for rate in [1 << 33, (1 << 33) - 1, 1 << 40, 3 << 61, i64::MAX as u64] {
        for part in [200, 20, 2] {
            let cycles = rate / part;
            let sampled = (0..WAITS).filter(|_| is_block_sampled(cycles, rate)).count() as f64;
            let (waits, p) = (WAITS as f64, cycles as f64 / rate as f64);
            assert_near(&format!("{cycles} of {rate}"), sampled, waits * p, waits * p * (1.0 - p));
            let (count, ticks) = block_weight(cycles, rate);
            assert_near("what a sample stands for", count * p, 1.0, 0.0);
            assert_eq!(ticks, rate);
        }
        assert!((0..100).all(|_| is_block_sampled(rate, rate) && is_block_sampled(u64::MAX, rate)));
    }
}

/// The fraction decides how many unlocks are sampled, but does not change the totals.
#[test]
fn totals_do_not_depend_on_the_fraction() {
    let _turn = TURN.lock();
    let _off = off();
    random::reseed(1_000);
    for fraction in [1, 2, 10, 1000] {
        set_mutex_profile_fraction(fraction);
        let name = format!("unlocks at {fraction}");
        let unlocks = (1000 * fraction as u64).max(20_000);
        let event = |number: u64| (1 + number % 3, 100 + number % 7 * 1000);
        named(&name, || (0..unlocks).map(event).for_each(|(waits, cycles)| mutex_event(waits, cycles)));
        let (count, ticks) = totals(mutex_counts(), &name);
        let (mut exact, mut variance) = ([0.0; 2], [0.0; 2]);
        for (waits, cycles) in (0..unlocks).map(event) {
            for (at, value) in [waits as f64, cycles as f64].into_iter().enumerate() {
                exact[at] += value;
                variance[at] += value * value * (fraction - 1) as f64;
            }
        }
        assert_near(&format!("{name}: waits"), count, exact[0], variance[0]);
        assert_near(&format!("{name}: ticks"), ticks as f64, exact[1], variance[1]);
    }
}

/// The same for waits that are chosen as they begin.
#[test]
fn totals_of_chosen_waits_do_not_depend_on_the_fraction() {
    let _turn = TURN.lock();
    let _off = off();
    random::reseed(1_000);
    const WAITS: u64 = 20_000;
    for fraction in [0, 1, 2, 10, 1000] {
        set_mutex_profile_fraction(fraction);
        let name = format!("chosen at {fraction}");
        let mut chosen = 0;
        named(&name, || {
            for _ in 0..WAITS {
                let weight = choose_wait(BlockKinds::SYNC).mutex;
                assert!(weight == 0 || weight == fraction as u64);
                if weight > 0 {
                    chosen += 1;
                    chosen_wake_event(weight, weight * 500, 0, None);
                }
            }
        });
        let exact = if fraction == 0 { 0.0 } else { WAITS as f64 };
        let variance = exact * (fraction - 1).max(0) as f64;
        let (count, ticks) = totals(mutex_counts(), &name);
        assert_eq!((count, ticks), (chosen as f64 * fraction as f64, chosen * fraction as u64 * 500));
        assert_near(&name, count, exact, variance);
    }
}

/// Each event is scaled by the rate at which it was sampled.
#[test]
fn a_change_of_the_rate_keeps_totals() {
    let _turn = TURN.lock();
    let _off = off();
    random::reseed(7);
    const EACH: u64 = 20_000;
    let (rates, fractions) = ([1, 1000, 100, 10_000], [1, 20, 0, 100]);
    named("changes", || {
        for (rate, fraction) in rates.into_iter().zip(fractions) {
            BLOCK_RATE.store(rate, Ordering::Release);
            set_mutex_profile_fraction(fraction);
            for _ in 0..EACH {
                block_event(BlockKinds::SYNC, 500);
                mutex_event(1, 500);
            }
        }
    });
    let each = EACH as f64;
    let p = rates.map(|rate| (500.0 / rate as f64).min(1.0));
    let variance = p.iter().map(|p| each * (1.0 - p) / p).sum();
    assert_near("waits", totals(block_counts(), "changes").0, 4.0 * each, variance);
    let variance = fractions.iter().map(|&fraction| each * (fraction - 1).max(0) as f64).sum();
    assert_near("unlocks", totals(mutex_counts(), "changes").0, 3.0 * each, variance);
}

#[test]
fn rates_of_any_size() {
    let _turn = TURN.lock();
    let _off = off();
    let per_nano = ticks_per_second() as f64 / NANOS as f64;
    let mut last = 0;
    let sizes = [0, 1, 2, 3, 10, 999, 1000, 1_000_000, NANOS, u64::from(u32::MAX), 1 << 40, 1 << 62];
    for nanos in sizes.into_iter().chain([i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX - 1, u64::MAX]) {
        set_block_profile_rate(nanos);
        assert_eq!(block_profile_rate(), nanos, "it reads as it was set");
        let ticks = BLOCK_RATE.load(Ordering::Relaxed);
        assert!(ticks >= last, "{nanos} ns are fewer ticks than less are");
        assert_eq!(ticks == 0, nanos == 0, "only 0 is off");
        // 1 means everything, whatever the length of a tick.
        let exact = if nanos == 1 { 1.0 } else { (nanos as f64 * per_nano).min(i64::MAX as f64) };
        assert!((ticks as f64 - exact).abs() <= 1.0 + exact * 1e-9, "{nanos} ns: {ticks} for {exact} ticks");
        last = ticks;
        named("any size", || {
            [0, 1, NANOS, i64::MAX as u64, u64::MAX]
                .into_iter()
                .for_each(|ticks| block_event(BlockKinds::SYNC, ticks))
        });
    }
    assert_eq!(last, i64::MAX as u64);

    let mut previous = 0;
    for fraction in [1, 2, 1000, i64::MAX, 0, 1] {
        assert_eq!(set_mutex_profile_fraction(fraction), previous);
        for read in [-1, -2, i64::MIN] {
            assert_eq!(set_mutex_profile_fraction(read), fraction, "a negative one reads");
        }
        named("any size", || {
            for waits in [0, 1, u64::MAX] {
                mutex_event(waits, 1);
                mutex_event(waits, u64::MAX);
            }
        });
        previous = fraction;
    }
    for counts in [block_counts(), mutex_counts()] {
        let counts = of_name(counts, "any size");
        assert!(!counts.is_empty());
        for count in counts {
            assert!(count.count.is_finite() && count.count >= 0.0 && count.whole_waits() >= 1, "{count:?}");
            assert!(count.cycles <= i64::MAX as u64, "{count:?}");
        }
    }
    for record in crate::block_profile().iter().chain(&crate::mutex_profile()) {
        assert!(record.count >= 1 && record.cycles >= 0, "{} waits, {}", record.count, record.cycles);
    }
}

/// A reader divides by the count. A wait that was over at once is also visible.
#[test]
fn no_record_has_a_count_of_zero() {
    let _turn = TURN.lock();
    let _off = off();
    set_mutex_profile_fraction(1);
    set_block_profile_rate(1);
    // An unlock for which others waited, all of whom were already charged to an earlier holder.
    named("no new waits", || mutex_event(0, 500));
    named("no time", || block_event(BlockKinds::SYNC, 0));
    let record = &of_name(mutex_counts(), "no new waits")[0];
    assert_eq!((record.count, record.whole_waits(), record.cycles), (0.0, 1, 500));
    let record = &of_name(block_counts(), "no time")[0];
    assert_eq!((record.count, record.cycles), (1.0, 1));
}

#[test]
fn nothing_is_recorded_while_it_is_off() {
    let _turn = TURN.lock();
    let _off = off();
    named("while off", || {
        block_event(BlockKinds::SYNC, 1_000_000);
        mutex_event(1, 1_000_000);
    });
    assert_eq!(totals(block_counts(), "while off"), (0.0, 0));
    assert_eq!(totals(mutex_counts(), "while off"), (0.0, 0));
}

/// The number of levels below [`at_stack`], with two calls each.
const LEVELS: u32 = 6;
const STACKS: u64 = 1 << LEVELS;

/// Calls `event` on a distinct stack for each number below [`STACKS`].
#[inline(never)]
fn at_stack(number: u64, level: u32, event: &dyn Fn(u64)) {
    if level == LEVELS {
        event(number);
    } else if number >> level & 1 == 0 {
        // Before and after, so that the optimizer neither merges the two calls nor turns them into jumps.
        core::hint::black_box(number);
        at_stack(number, level + 1, event);
        core::hint::black_box(level);
    } else {
        at_stack(number, level + 1, event);
        core::hint::black_box(number);
    }
}

/// Many threads on many stacks, with concurrent readers: every event is recorded once.
#[test]
fn sixty_four_threads_neither_lose_nor_invent() {
    const THREADS: u64 = 64;
    const ROUNDS: u64 = 20;
    let _turn = TURN.lock();
    let _off = off();
    set_block_profile_rate(1);
    set_mutex_profile_fraction(1);
    let (blocked, unlocked) = ("64 threads wait", "64 threads unlock");
    let not_captured = stack::NOT_CAPTURED.get();
    let running = AtomicU64::new(THREADS);
    // Every event has as many ticks as the number of its stack, plus one.
    let (count, ticks) = (THREADS * ROUNDS * STACKS, THREADS * ROUNDS * STACKS * (STACKS + 1) / 2);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let each = |event: &dyn Fn(u64)| (0..STACKS).for_each(|at| at_stack(at, 0, event));
                    named(blocked, || each(&|number| block_event(BlockKinds::SYNC, number + 1)));
                    named(unlocked, || each(&|number| mutex_event(1, number + 1)));
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        let mut last = (0.0, 0);
        while running.load(Ordering::Acquire) != 0 {
            let now = totals(block_counts(), blocked);
            assert!(now.0 >= last.0 && now.1 >= last.1, "{now:?} after {last:?}");
            assert!(now.0 <= count as f64 && now.1 <= ticks && now.1 as f64 >= now.0, "{now:?}");
            last = now;
        }
    });
    for (counts, name) in [(block_counts(), blocked), (mutex_counts(), unlocked)] {
        let counts = of_name(counts, name);
        assert_eq!(totals(counts.clone(), name), (count as f64, ticks), "{name}");
        // Without frame pointers a thread may find no unwind cache free; its events are then under a single stack.
        if stack::NOT_CAPTURED.get() == not_captured {
            // The optimizer may have split one stack into several, but never merged two.
            let mut times = [0.0; STACKS as usize];
            for count in counts {
                let number = count.cycles as f64 / count.count;
                assert_eq!(number.fract(), 0.0, "{name}: two stacks are mixed in {count:?}");
                times[number as usize - 1] += count.count;
            }
            assert_eq!(times, [(THREADS * ROUNDS) as f64; STACKS as usize], "{name}: stack by stack");
        } else {
            assert_eq!(
                rtprof_runtime::stack::stack_mode(),
                rtprof_runtime::stack::StackMode::Unwind,
                "no stack is missed along frame pointers"
            );
        }
    }
}

/// Stacks beyond the limit lose their name, not their time.
#[test]
fn a_full_table_keeps_totals() {
    const LIMIT: usize = 16;
    static SMALL: Buckets = Table::new(LIMIT);
    let _turn = TURN.lock();
    let _off = off();
    assert!(SMALL.open());
    let over = OVER_LIMIT.get();
    for _ in 0..3 {
        (0..STACKS).for_each(|number| {
            at_stack(number, 0, &|number| _ = record(&SMALL, 1.0, number, Cause::Wait(BlockKinds::SYNC)))
        });
    }
    let counts = counts(&SMALL);
    assert!(counts.len() <= LIMIT + 1, "{} records", counts.len());
    let sums = (counts.iter().map(|count| count.count).sum(), counts.iter().map(|count| count.cycles).sum());
    assert_eq!(sums, (3.0 * STACKS as f64, 3 * STACKS * (STACKS - 1) / 2));
    assert!(OVER_LIMIT.get() > over, "and the profile says so");
}

/// The budget raises both rates, the totals stay, and comments say what was in force. Without it all is recorded again.
#[test]
fn a_budget_raises_rates_and_keeps_totals() {
    let _turn = TURN.lock();
    let _off = off();
    random::reseed(74);
    governor::forget();
    set_block_profile_rate(1);
    set_mutex_profile_fraction(1);
    set_profile_budget(20.0).unwrap();
    assert_eq!(profile_budget(), Some(20.0));
    const EVENTS: u64 = 300_000;
    let ticks = ticks_per_second() / 1_000_000;
    named("a budget", || {
        for _ in 0..EVENTS {
            block_event(BlockKinds::SYNC, ticks);
            mutex_event(1, ticks);
        }
    });
    let [Some(block), Some(mutex)] = raised_rates() else { panic!("the rates are raised") };
    assert!(block.most > 1 && block.most >= block.now && mutex.most > 1 && mutex.most >= mutex.now);
    for (counts, most) in [(block_counts(), block.most as f64 / 1e3), (mutex_counts(), mutex.most as f64)] {
        let (count, recorded) = totals(counts, "a budget");
        // The largest rate gives the largest variance.
        let variance = EVENTS as f64 * most.max(1.0);
        assert_near("events", count, EVENTS as f64, variance);
        assert_near("ticks", recorded as f64 / ticks as f64, EVENTS as f64, variance);
    }
    for (profile, rate) in [(CountedProfile::Block, block.most), (CountedProfile::Mutex, mutex.most)] {
        let comments = comments::of(profile);
        let (budget, rate) = ("budget of 20 %", format!("one in {rate}"));
        assert!(comments.iter().any(|text| text.contains(budget) && text.contains(&rate)), "{comments:?}");
    }
    clear_profile_budget();
    assert_eq!((raised_rates(), profile_budget()), ([None; 2], None));
    named("no budget", || (0..100).for_each(|_| block_event(BlockKinds::SYNC, 1)));
    assert_eq!(totals(block_counts(), "no budget").0, 100.0);
}

/// Several threads sample while the program changes budget and rates.
#[test]
fn budgets_change_while_events_are_sampled() {
    let _turn = TURN.lock();
    let _off = off();
    governor::forget();
    set_block_profile_rate(1000);
    const EVENTS: u64 = 100_000;
    let ticks = ticks_per_second() / 1_000_000;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    named("budgets change", || (0..EVENTS).for_each(|_| block_event(BlockKinds::SYNC, ticks)))
                })
            })
            .collect();
        scope.spawn(|| {
            for at in 0.. {
                set_profile_budget([10.0, 20.0, 100.0][at % 3]).unwrap();
                if at % 5 == 0 {
                    clear_profile_budget();
                }
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for thread in threads {
            thread.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let most = governor::raised(Profile::Block, 0).map_or(0, |raised| raised.most) as f64 / ticks as f64;
    let variance = 3.0 * EVENTS as f64 * most.max(1.0);
    assert_near("waits", totals(block_counts(), "budgets change").0, 3.0 * EVENTS as f64, variance);
}
