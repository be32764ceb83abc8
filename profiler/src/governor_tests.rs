//! The governor against simulated programs, whose processor time and costs are numbers.

use rtprof_runtime::random;

use super::share::LONGEST_NANOS;
use super::*;
use crate::contention::tests::TURN;

/// One nanosecond is one tick, and the allowance is in ticks per nanosecond.
const BUDGET: f64 = 0.01;
const COST: f64 = 1500.0;
const WATCH_COST: f64 = 900.0;

/// A thread that waits: its account, its processor time and what its profile has recorded.
struct Thread {
    account: Account,
    now: f64,
    settled: f64,
    /// The processor time for samples.
    spent: f64,
    /// The waits and their ticks: as they were, as they were recorded, and the variance of that.
    exact: [f64; 2],
    recorded: [f64; 2],
    variance: [f64; 2],
}

impl Thread {
    fn new() -> Self {
        TICKS.store(1f64.to_bits(), Ordering::Relaxed);
        let (exact, recorded, variance) = Default::default();
        Self { account: Account::new(), now: 0.0, settled: 0.0, spent: 0.0, exact, recorded, variance }
    }

    fn settle(&mut self, profile: Profile, set: u64) {
        let allowance = BUDGET.to_bits();
        if self.account.is_due(profile, set, allowance) {
            self.account.settle(profile, set, allowance, self.now - self.settled);
            self.settled = self.now;
        }
    }

    fn rate(&mut self, profile: Profile, set: u64, demand: impl FnOnce(u64) -> Demand) -> u64 {
        self.settle(profile, set);
        self.account.shares[profile as usize].count_event(demand)
    }

    fn sample(&mut self, profile: Profile) {
        self.now += COST;
        self.spent += COST;
        let share = &self.account.shares[profile as usize];
        if share.count_sample() {
            share.add_cost(COST, &SHARED[profile as usize]);
        }
    }

    /// A task notes where it awaits, or another thread that it has ended a wait of this one. Its time counts here.
    fn watch(&mut self) {
        self.now += WATCH_COST;
        self.spent += WATCH_COST;
        self.account.watched.set(self.account.watched.get() + 1);
        self.account.watch.set(self.account.watch.get() + WATCH_COST as u64);
    }

    fn count(&mut self, probability: f64, is_sampled: bool, ticks: f64) {
        for (at, value) in [1.0, ticks].into_iter().enumerate() {
            self.exact[at] += value;
            self.variance[at] += value * value * (1.0 - probability) / probability;
            if is_sampled {
                self.recorded[at] += value / probability;
            }
        }
    }

    /// Uses `work` nanoseconds, and waits for `ticks`.
    fn wait(&mut self, set: u64, work: f64, ticks: u64) {
        self.now += work;
        let rate = self.rate(Profile::Block, set, |rate| Demand::of_wait(ticks, rate));
        let is_sampled = ticks >= rate || random::below(rate) < ticks;
        if is_sampled {
            self.sample(Profile::Block);
        }
        self.count((ticks as f64 / rate as f64).min(1.0), is_sampled, ticks as f64);
    }

    /// Uses `work` nanoseconds, and waits for `ticks` until another thread ends that, which is chosen at the beginning.
    fn wait_for_other(&mut self, set: u64, work: f64, ticks: u64) {
        let (begun, is_chosen) = self.account.shares[Profile::Block as usize].begin(set);
        if is_chosen {
            self.watch();
        }
        let Some(begun) = begun else { return self.wait(set, work, ticks) };
        self.now += work;
        self.rate(Profile::Block, set, |rate| begun.demand(ticks, rate));
        let rate = begun.rate_of_chosen;
        let is_sampled =
            begun.is_always(ticks) || is_chosen && (ticks >= rate || random::below(rate) < ticks);
        if is_sampled {
            self.sample(Profile::Block);
        }
        let of_chosen = (ticks as f64 / rate as f64).min(1.0);
        let probability = if begun.is_always(ticks) { 1.0 } else { of_chosen / begun.one_in };
        self.count(probability, is_sampled, ticks as f64);
    }

    /// Uses `work` nanoseconds, and a task waits for `ticks`.
    fn wait_of_task(&mut self, set: u64, work: f64, ticks: u64) {
        self.settle(Profile::Block, set);
        let (way, choice) = (self.account.shares[0].chosen_await.get(), self.account.begin_await(set));
        if choice.is_some() {
            self.watch();
        }
        if choice == Some(None) {
            return self.wait(set, work, ticks);
        }
        self.now += work;
        if choice.is_some() {
            self.rate(Profile::Block, set, |_| way.demand(ticks));
        }
        let rate = way.rate();
        let is_sampled = choice.is_some() && (ticks >= rate || random::below(rate) < ticks);
        if is_sampled {
            self.sample(Profile::Block);
        }
        self.count((ticks as f64 / rate as f64).min(1.0) / way.one_in(), is_sampled, ticks as f64);
    }

    /// Uses `work` nanoseconds, and gives up a lock for which another thread has waited.
    fn unlock(&mut self, set: u64, work: f64, ticks: u64) {
        self.now += work;
        let rate = self.rate(Profile::Mutex, set, |_| Demand { of: 1, is_longer: false });
        let is_sampled = random::below(rate) == 0;
        if is_sampled {
            self.sample(Profile::Mutex);
        }
        self.count(1.0 / rate as f64, is_sampled, ticks as f64);
    }

    fn assert_unbiased(&self, what: &str) {
        for (at, exact) in self.exact.into_iter().enumerate() {
            let (off, sigma) = ((self.recorded[at] - exact).abs(), self.variance[at].sqrt());
            // A sum of fractions is exact up to its last bits.
            assert!(
                off <= 6.0 * sigma + exact * 1e-9,
                "{what}: {} for {exact}, sigma {sigma}",
                self.recorded[at]
            );
        }
    }
}

type Wait = fn(&mut Thread, u64, f64, u64);
/// With what one costs that is chosen, and what one costs in any case.
const WAITS: [(&str, Wait, f64, f64); 3] = [
    ("decided at the end", Thread::wait, 0.0, UNSAMPLED_NANOS),
    ("chosen at the beginning", Thread::wait_for_other, WATCH_COST, UNSAMPLED_NANOS + UNWATCHED_NANOS),
    ("of a task", Thread::wait_of_task, WATCH_COST, UNSAMPLED_NANOS),
];

#[test]
fn frequent_events_cost_the_budget_and_have_their_totals() {
    let _turn = TURN.lock();
    random::reseed(74);
    // Nanoseconds of processor time for each event, and of a wait.
    for work in [2e3, 2e4, 1e5] {
        for ticks in [1_000, 20_000, 300_000] {
            for (set, wait) in [1, 10_000].into_iter().flat_map(|set| WAITS.map(|wait| (set, wait))) {
                forget();
                let (name, wait, watch, unsampled) = wait;
                let name = format!("waits of {ticks} after {work} at {set}, {name}");
                let mut thread = Thread::new();
                // The rates are found in the first second, the sooner the more waits there are.
                let mut first = (0.0, 0.0);
                while thread.now < 3e9 {
                    wait(&mut thread, set, work, ticks);
                    if thread.now < 1e9 {
                        first = (thread.spent, thread.now);
                    }
                }
                thread.assert_unbiased(&name);
                assert!(first.0 < 2e7, "{name}: {first:?}");
                let percent = (thread.spent - first.0) / (thread.now - first.1) * 100.0;
                let would_be = (watch + COST * (ticks as f64 / set as f64).min(1.0)) / work * 100.0;
                let left = 1.0 - unsampled / work * 100.0;
                let (least, most) = (would_be.min(left.max(0.25)) * 0.9, left.max(0.25) * 1.1);
                assert!((least..=most).contains(&percent), "{name}: {percent} % in {least} to {most}");
            }
        }
    }
}

#[test]
fn a_load_that_changes_by_a_hundred_stays_within_the_budget() {
    let _turn = TURN.lock();
    random::reseed(75);
    for (name, wait, watch, unsampled) in WAITS {
        forget();
        // While it is quiet, all are sampled. While it is busy, samples get what is left.
        let quiet = (COST + watch) / 5e5 * 100.0;
        let busy = (1.0 - unsampled / 5e3 * 100.0).max(LEAST_PART);
        let expected = (quiet + busy) / 2.0;
        let mut thread = Thread::new();
        while thread.now < 10e9 {
            let is_busy = (thread.now / 5e8) as u64 % 2 == 1;
            wait(&mut thread, 10_000, if is_busy { 5e3 } else { 5e5 }, 15_000);
        }
        thread.assert_unbiased(name);
        let percent = thread.spent / thread.now * 100.0;
        assert!((percent / expected - 1.0).abs() < 0.15, "{name}: {percent} % and not {expected} %");
    }
}

#[test]
fn rates_that_the_program_changes_keep_the_totals() {
    let _turn = TURN.lock();
    random::reseed(76);
    forget();
    let mut thread = Thread::new();
    for round in 0..1000 {
        let set = [1, 10_000, 200, 1_000_000, 0][round % 5];
        for at in 0..1000 {
            if set != 0 {
                WAITS[round % WAITS.len()].1(&mut thread, set, 3e3, 1 + at * at);
            }
        }
    }
    thread.assert_unbiased("waits");
}

#[test]
fn a_quiet_profile_leaves_its_part_to_the_other() {
    let _turn = TURN.lock();
    random::reseed(77);
    forget();
    let mut thread = Thread::new();
    let mut both = [0.0; 2];
    let mut busy = 0;
    while thread.now < 4e9 {
        let before = thread.spent;
        // One wait in a thousand events.
        busy = (busy + 1) % 1000;
        if busy == 0 {
            thread.wait(10_000, 1e4, 1_000_000);
        } else {
            thread.unlock(10, 1e4, 1_000_000);
        }
        both[usize::from(busy != 0)] += thread.spent - before;
    }
    thread.assert_unbiased("both");
    // Each wait is a sample at the rate that was set, which takes 0.015 %.
    let percent = both.map(|spent| spent / thread.now * 100.0);
    assert!((0.014..=0.016).contains(&percent[0]), "{percent:?}");
    assert!((0.5..=0.8).contains(&percent[1]), "{percent:?}");
}

#[test]
fn two_busy_profiles_have_half_each() {
    let _turn = TURN.lock();
    random::reseed(78);
    forget();
    let mut thread = Thread::new();
    let mut both = [0.0; 2];
    while thread.now < 4e9 {
        let before = thread.spent;
        thread.wait(10_000, 2e4, 100_000);
        both[0] += thread.spent - before;
        let before = thread.spent;
        thread.unlock(1, 0.0, 100_000);
        both[1] += thread.spent - before;
    }
    thread.assert_unbiased("both");
    let percent = both.map(|spent| spent / thread.now * 100.0);
    // An event of each in 20 us: 0.3 % goes to those that are not sampled.
    assert!(percent.iter().all(|percent| (0.28..=0.42).contains(percent)), "{percent:?}");
}

#[test]
fn a_long_wait_is_always_recorded() {
    let _turn = TURN.lock();
    random::reseed(79);
    forget();
    let mut thread = Thread::new();
    while thread.now < 1e9 {
        thread.wait(10_000, 1e3, 50_000_000);
    }
    assert!(thread.account.shares[0].rate.get() > 50_000_000);
    for at in 0..2000 {
        let before = thread.recorded[0];
        // Not one of a task, whose stack is not known.
        WAITS[at % 2].1(&mut thread, 10_000, 1e3, LONGEST_NANOS);
        assert_eq!(thread.recorded[0] - before, 1.0);
    }
}

#[test]
fn budgets_that_are_none_are_refused() {
    for percent in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 100.1] {
        let error = set_profile_budget(percent).unwrap_err();
        assert!(error.to_string().contains("more than 0 and at most 100"), "{error}");
    }
    assert!(set_profile_budget(0.0).unwrap_err().to_string().contains("clear_profile_budget"));
}

#[test]
fn what_a_task_keeps_of_a_choice_is_near() {
    for one_in in [1.0001, 1.5, 7.0, 1024.0] {
        for rate in [1u64, 3, 1000, 30_000_000, LONGEST_NANOS * 5] {
            let kept = ChosenAwait::of(Begun { rate_of_chosen: rate, one_in, always: 0 });
            assert!((one_in..one_in * 1.13).contains(&kept.one_in()), "{one_in}: {}", kept.one_in());
            assert!((rate..=rate * 103 / 100 + 1).contains(&kept.rate()), "{rate}: {}", kept.rate());
        }
    }
}

/// A thread whose processor time begins again, as a forked child's does, has used none; nor has one whose time stands still.
#[test]
fn time_that_jumps_is_no_time() {
    let account = Account::new();
    assert_eq!(account.passed(), 0.0);
    account.time.set(u64::MAX);
    assert_eq!(account.passed(), 0.0);
    let mut wrong = 0u32;
    while account.passed() == 0.0 {
        wrong += 1;
        assert!(wrong < 1 << 30, "a loop takes time");
    }
}

/// The thread that wakes others takes the samples, and those that wait decide by what they cost.
#[test]
fn threads_learn_from_others_what_samples_cost() {
    let _turn = TURN.lock();
    forget();
    TICKS.store(1f64.to_bits(), Ordering::Relaxed);
    let (recorder, chooser) = (Account::new(), Account::new());
    for sample in 0..10 * SAMPLES {
        // Also where there are more events than samples, so that no settlement has seen many samples.
        if sample % 10 == 0 {
            recorder.settle(Profile::Mutex, 1, BUDGET.to_bits(), 0.0);
        }
        if recorder.shares[1].count_sample() {
            recorder.shares[1].add_cost(5.0 * COST, &SHARED[1]);
        }
    }
    chooser.settle(Profile::Mutex, 1, BUDGET.to_bits(), 0.0);
    let cost = chooser.shares[1].cost.get();
    assert!((cost - 5.0 * COST).abs() < 1.0, "{cost}");
}

/// A settlement in an unlock runs between two calls of the program, which may look at `errno` after the second.
#[test]
fn a_settlement_keeps_errno() {
    let _turn = TURN.lock();
    forget();
    TICKS.store(1f64.to_bits(), Ordering::Relaxed);
    let account = Account::new();
    errno::set(libc::EDOM);
    let before = errno::get();
    // The block profile is off, and its rate 0.
    account.settle(Profile::Mutex, 1, BUDGET.to_bits(), account.passed());
    assert_eq!(errno::get(), before);
}
