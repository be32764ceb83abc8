//! The processor time of a thread for which samples were counted.
//!
//! # The weight of a sample
//!
//! A signal says that a period of the thread's processor time is over, but not that it is the first since the last
//! sample: the kernel keeps one pending signal of a kind, however many were due while the thread was deep in a system
//! call or blocked signals, and checks timers only at its ticks. So the handler reads the clock and charges its stack
//! with all completed periods:
//!
//! ```text
//!   charged ──── period ────┼──── period ────┼── …        samples = round((now - charged) / period)
//!                                          now            charged += samples · period
//! ```
//!
//! Over a thread's life the sum is its time in periods: to within two, or to within 20 ms if that is more and a timer signals
//! it. Where other programs take the cores, ticks find a thread so seldom that it may be more.
//!
//! # Sums over many threads
//!
//! A service has a hundred threads that use a few periods each, so a profile of a few seconds must be right in the sum,
//! which needs each thread to be right on average. Three things see to that.
//!
//! *The first period is cut to a random part*, and `charged` begins earlier by the rest: a thread that uses less than a
//! period in all has a sample with the probability of its part, and a thousand of these threads together have the right
//! number. Go: the random first expiry of `setThreadCPUProfiler`. A thread that was found some milliseconds after its
//! birth has used time by then, which is included in its first sample: in whole periods, rounded at random.
//!
//! *The quotient is rounded at a random point*, the same for all samples of a thread. An event's clock runs only while the
//! thread does, but not during the switch to it, which is the thread's processor time too: 1 to 2 µs of each turn, a fifth
//! of the time of a thread that runs for 10 µs at a time. So signals come late, by a part `e` of their interval, and the
//! quotient is 1.2 again and again. Rounded to the nearest it would be 1 until the thread is half a period behind.
//! Rounded up with the probability of its fraction it is right on average after each sample. The point is included in
//! `charged`, and the quotient is then rounded to the nearest.
//!
//! *The first sample counts for as much as those that follow*. Its random part of a period became longer by `e`, and so
//! would the rest of that period have become. Its weight includes that: otherwise a thread would lack `e / 2` of a sample.
//! A signal also takes some microseconds to arrive, which are no part of its interval. They would count for much in a short
//! one, so first samples after less than a quarter of a period are left out, and the others count for them too.
//! Signals of timers come late in another way, see [`gaps`](super::gaps).

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI64, AtomicU64};

use super::gaps::Gaps;

/// The time from which a thread is sampled.
#[derive(Clone, Copy)]
pub(super) struct Start {
    /// Nanoseconds that it has used so far.
    pub(super) now: u64,
    /// Nanoseconds until it is signalled for the first time.
    pub(super) first: u64,
    /// The additional weight of its first sample, in periods.
    pub(super) before: u64,
}

/// Times are in nanoseconds of the thread's processor time; `now` is its total, and `period` one period.
#[derive(Default)]
pub(super) struct Account {
    /// The time up to which samples were counted. While the thread is signalled, the point at which quotients are rounded
    /// is included.
    charged: AtomicI64,
    /// When the thread's event or timer was set.
    armed: AtomicU64,
    /// The time from then on until the first signal.
    first: AtomicU64,
    /// Of a thread with a timer: the time of its last signal, 0 before the first; the gaps of it that were added; and the time
    /// that it was granted because gaps differ.
    last: AtomicU64,
    gaps: Gaps,
    granted: AtomicI64,
}

/// The gaps of a thread that count for others, so that many threads with few signals count beside a busy one.
const GAPS: u64 = 8;

/// The numbers of gaps below which their mean says nothing: of the thread, and of all.
const LEAST_OWN: u64 = 4;
const LEAST_OF_ALL: u64 = 20;

/// How many times what it was granted a thread may have used since its last signal: if gaps vary as widely as the ticks that
/// happen to find a thread, one moment in `e⁶ = 400` is later in its gap than that.
const USUAL: u64 = 6;

/// Nanoseconds between the kernel's ticks where they are the longest.
const LONGEST_TICK: u64 = 10_000_000;

impl Account {
    /// Resets this for another thread, which is not signalled yet.
    pub(super) fn open(&self, start: Start, period: u64) {
        let Start { now, first, before } = start;
        self.charged.store((now + first) as i64 - ((1 + before) * period) as i64, Relaxed);
        self.last.store(0, Relaxed);
        self.gaps.clear();
        self.granted.store(0, Relaxed);
    }

    /// Notes that the thread will be signalled for the first time after `first`, and that quotients are rounded up from
    /// `point` of a period on, a random number below `period`. Called before the event or timer is set.
    pub(super) fn arm(&self, now: u64, first: u64, point: u64, period: u64) {
        self.armed.store(now, Relaxed);
        self.first.store(first, Relaxed);
        self.charged.fetch_add(point as i64 - (period / 2) as i64, Relaxed);
    }

    /// Notes that the event is enabled at `now`: the thread may have used some time since [`arm`](Self::arm), to make it.
    pub(super) fn enable(&self, now: u64) {
        self.armed.store(now, Relaxed);
    }

    /// Takes back [`arm`](Self::arm) with this `point`, as the thread got neither event nor timer.
    pub(super) fn disarm(&self, point: u64, period: u64) {
        self.charged.fetch_sub(point as i64 - (period / 2) as i64, Relaxed);
    }

    /// Gives the first sample, which is due now, the weight of the samples that will follow. Called in the handler, for
    /// an event.
    pub(super) fn complete_first(&self, now: u64, period: u64) {
        let first = self.first.load(Relaxed);
        if first < period / 4 {
            return;
        }
        let late = now.saturating_sub(self.armed.load(Relaxed)).saturating_sub(first);
        // A signal may also be late because the thread was deep in the kernel, which says nothing of other signals.
        let part = (late as f64 / first as f64).min(0.5);
        // The mean of `1 - first` over all parts of a period, divided by that over the last three quarters.
        const FOR_ALL: f64 = 16.0 / 9.0;
        self.charged.fetch_sub((period.saturating_sub(first) as f64 * part * FOR_ALL) as i64, Relaxed);
    }

    /// Grants the thread the time that signals at unequal intervals leave over at the end. Called in the handler, for a
    /// timer.
    pub(super) fn grant(&self, now: u64, period: u64, of_all: &Gaps) {
        let longest = 16 * period.max(LONGEST_TICK);
        let gap = now.saturating_sub(self.last.swap(now, Relaxed));
        // Before the first signal there is none, and a longer one says that the thread has blocked the signal.
        if gap < now && gap < longest {
            self.gaps.add(gap);
            if self.gaps.count() <= GAPS {
                of_all.add(gap);
            }
        }
        let age = match of_all.are_closed() {
            true => Some(0),
            false => self.gaps.mean_age(LEAST_OWN).or_else(|| of_all.mean_age(LEAST_OF_ALL)),
        };
        if let Some(age) = age {
            let more = (age.min(longest / 8) as i64 - (period / 2) as i64).max(0);
            self.charged.fetch_sub(more - self.granted.swap(more, Relaxed), Relaxed);
        }
    }

    /// Charges and returns the periods completed since the last sample. Called in the handler.
    pub(super) fn charge(&self, now: u64, period: u64) -> u64 {
        let charged = self.charged();
        let due = periods(now as i64 - charged, period);
        match self.charged.compare_exchange(charged, charged + (due * period) as i64, Relaxed, Relaxed) {
            Ok(_) => due,
            // The sampler thread, which ends the thread's sampling, has counted them.
            Err(_) => 0,
        }
    }

    /// Returns the time up to which samples were counted.
    pub(super) fn charged(&self) -> i64 {
        self.charged.load(Relaxed)
    }

    /// Returns the whole periods that the thread has used since its last sample.
    pub(super) fn missed(&self, now: u64, period: u64) -> u64 {
        whole_periods(now as i64 - self.charged(), period)
    }

    /// Returns the time until the thread's next period is over.
    pub(super) fn until_due(&self, now: u64, period: u64) -> u64 {
        let used = (now as i64 - self.charged()).max(0) as u64;
        period - used % period
    }

    /// Charges all whole periods that have no sample, so that the caller counts them instead of the handler, and returns
    /// their number. Called for a thread that nothing signals.
    pub(super) fn settle(&self, now: u64, period: u64) -> u64 {
        self.settle_from(1, now, period)
    }

    /// As [`settle`](Self::settle), for a thread that is signalled: nothing, unless there are more than the two whose signals
    /// may be on their way, and more than the [usual](USUAL) since the last signal of a timer. Called by the thread itself and
    /// by the sampler thread.
    pub(super) fn settle_overdue(&self, now: u64, period: u64) -> u64 {
        self.settle_from(2 + USUAL * self.granted.load(Relaxed) as u64 / period, now, period)
    }

    fn settle_from(&self, least: u64, now: u64, period: u64) -> u64 {
        let charged = self.charged();
        let missed = whole_periods(now as i64 - charged, period);
        let settled = charged + (missed * period) as i64;
        // If this fails, a handler or another caller has counted them.
        if missed >= least && self.charged.compare_exchange(charged, settled, Relaxed, Relaxed).is_ok() {
            missed
        } else {
            0
        }
    }
}

/// Returns the number of whole periods in a span of processor time.
fn whole_periods(nanos: i64, period: u64) -> u64 {
    nanos.max(0) as u64 / period
}

/// Returns the number of periods in a span of processor time, rounded to the nearest.
fn periods(nanos: i64, period: u64) -> u64 {
    (nanos.max(0) as u64 + period / 2) / period
}

#[cfg(test)]
mod tests {
    use rtprof_runtime::random;

    use super::*;

    const PERIOD: u64 = 1_000_000;

    fn opened(now: u64, first: u64, before: u64) -> Account {
        let account = Account::default();
        account.open(Start { now, first, before }, 1000);
        account
    }

    #[test]
    fn a_moment_early_or_late_is_on_time() {
        let periods = |nanos| periods(nanos, 1000);
        assert_eq!([990, 1010, 1490, 1510, 4000].map(periods), [1, 1, 1, 2, 4]);
        assert_eq!([-5, 0, 400].map(periods), [0, 0, 0]);
    }

    #[test]
    fn the_first_period_is_a_part_and_counts_as_one() {
        let account = opened(5_000, 300, 0);
        assert_eq!(account.charged(), 4_300, "so that it is over at 5300");
        assert_eq!([5_299, 5_300, 6_299, 6_300].map(|now| account.missed(now, 1000)), [0, 1, 1, 2]);
        assert_eq!([5_299, 5_300, 6_200].map(|now| account.until_due(now, 1000)), [1, 1000, 100]);
        let settle = |(now, least)| account.settle_from(least, now, 1000);
        assert_eq!([(6_299, 2), (6_300, 2), (6_300, 2), (7_299, 1), (7_300, 1)].map(settle), [0, 2, 0, 0, 1]);
        assert_eq!((account.charged(), account.missed(0, 1000)), (7_300, 0));
        let account = opened(5_000, 300, 5);
        assert_eq!(account.missed(5_300, 1000), 6, "those before it was found are the first sample's");
    }

    #[test]
    fn a_thread_without_event_and_timer_is_rounded_down() {
        let account = opened(5_000, 300, 0);
        account.arm(5_000, 300, 900, 1000);
        assert_eq!(account.missed(5_300, 1000), 0);
        account.disarm(900, 1000);
        assert_eq!([5_299, 5_300].map(|now| account.missed(now, 1000)), [0, 1]);
    }

    /// Returns the samples of a thread that uses `used` periods, while its event's clock runs slower by a part `late`, and
    /// each signal takes `way` periods to arrive.
    fn samples(used: f64, late: f64, way: f64) -> u64 {
        let (account, first) = (Account::default(), 1 + random::below(PERIOD));
        account.open(Start { now: 0, first, before: 0 }, PERIOD);
        account.arm(0, first, random::below(PERIOD), PERIOD);
        let interval = 0.9705 * PERIOD as f64;
        let signals = (0..)
            .map(|signal| (first as f64 + f64::from(signal) * interval) * (1.0 + late) + way * PERIOD as f64);
        let signals = signals.take_while(|now| *now <= used * PERIOD as f64);
        let counted = signals.enumerate().map(|(signal, now)| {
            if signal == 0 {
                account.complete_first(now as u64, PERIOD);
            }
            account.charge(now as u64, PERIOD)
        });
        counted.sum::<u64>() + account.settle_overdue((used * PERIOD as f64) as u64, PERIOD)
    }

    #[test]
    fn a_thread_that_blocked_the_signal_grants_nothing_to_others() {
        let (account, gaps) = (opened(0, 300, 0), Gaps::default());
        for signal in 1..100 {
            account.grant(signal * 1_000_000_000, 1000, &gaps);
        }
        assert_eq!((gaps.count(), account.granted.load(Relaxed)), (0, 0));
    }

    /// Returns the samples of a thread that uses `used` periods, if its timer expires `late` periods late, on average: at a
    /// tick of the kernel that finds it running.
    /// And the periods that are counted without a sample.
    fn samples_by_timer(used: f64, late: f64, gaps: &Gaps) -> (u64, u64) {
        let (account, first) = (Account::default(), 1 + random::below(PERIOD));
        account.open(Start { now: 0, first, before: 0 }, PERIOD);
        account.arm(0, first, random::below(PERIOD), PERIOD);
        let (interval, end) = (0.9705 * PERIOD as f64, used * PERIOD as f64);
        let (mut due, mut counted) = (first as f64, 0);
        loop {
            let now = due - random::uniform().ln() * late * PERIOD as f64;
            if now > end {
                return (counted, account.settle_overdue(end as u64, PERIOD));
            }
            account.grant(now as u64, PERIOD, gaps);
            counted += account.charge(now as u64, PERIOD);
            due += interval * ((now - due) / interval).floor() + interval;
        }
    }

    /// Returns the means of [`samples_by_timer`], for two halves of threads that are late by different times.
    fn means_by_timer(used: f64, late: [f64; 2]) -> [(f64, f64); 2] {
        const THREADS: u32 = 10_000;
        let (gaps, mut sums) = (Gaps::default(), [(0, 0); 2]);
        for thread in 0..2 * THREADS as usize {
            let (samples, missed) = samples_by_timer(used, late[thread % 2], &gaps);
            let sum = &mut sums[thread % 2];
            *sum = (sum.0 + samples, sum.1 + missed);
        }
        sums.map(|(samples, missed)| {
            (samples as f64 / f64::from(THREADS), missed as f64 / f64::from(THREADS))
        })
    }

    #[test]
    fn threads_whose_timers_are_late_have_the_right_sum() {
        random::reseed(76);
        for late in [0.0, 0.1, 0.4, 0.7] {
            for used in [10.0, 30.0] {
                for (mean, missed) in means_by_timer(used, [late; 2]) {
                    assert!((mean - used).abs() < 0.1, "{mean} samples of {used}, late by {late}");
                    assert!(mean + missed < used + 0.1, "{mean} and {missed} of {used}, late by {late}");
                }
            }
        }
    }

    /// At 1,000 Hz, beside threads that the kernel's ticks seldom find. Of those some have too few gaps by the end.
    #[test]
    fn a_thread_that_is_found_often_is_granted_nothing_for_others() {
        random::reseed(78);
        let [(often, none), (seldom, missed)] = means_by_timer(60.0, [0.5, 20.0]);
        assert!((often - 60.0).abs() < 0.2 && none < 0.2, "{often} and {none} of 60");
        assert!(seldom + missed > 50.0 && seldom + missed < 60.2, "{seldom} and {missed} of 60");
    }

    /// Those that are signalled while the sampling ends have used nothing since.
    #[test]
    fn what_was_granted_is_taken_back_at_the_end() {
        let (account, gaps) = (opened(0, 500, 0), Gaps::default());
        (1..=10).for_each(|signal| account.grant(signal * 4_000, 1000, &gaps));
        assert_eq!((account.granted.load(Relaxed), account.charged()), (1_500, -2_000));
        gaps.close();
        account.grant(44_000, 1000, &gaps);
        assert_eq!((account.granted.load(Relaxed), account.charged()), (0, -500));
    }

    /// As of threads that run for some microseconds at a time, and wait for each other.
    #[test]
    fn threads_whose_signals_are_late_have_the_right_sum() {
        random::reseed(75);
        const THREADS: u32 = 40_000;
        for (late, way) in [(0.0, 0.0), (0.05, 0.0), (0.2, 0.001), (0.4, 0.0), (0.0, 0.001), (0.0, 0.05)] {
            for used in [0.1, 0.5, 1.0, 1.5, 3.3, 10.0, 30.0] {
                let sum: u64 = (0..THREADS).map(|_| samples(used, late, way)).sum();
                let mean = sum as f64 / f64::from(THREADS);
                // One thread differs by less than two. 0.02 is the first period, which is not shortened as all others are.
                // First samples after a short time are not completed, and the way of the others is taken for lateness.
                let short = if used < 1.0 { late / 4.0 } else { 0.0 };
                let tolerance = 0.022 + short + 1.2 * way + 4.0 / f64::from(THREADS).sqrt();
                assert!((mean - used).abs() < tolerance, "{mean} samples of {used}, late by {late}, {way}");
            }
        }
    }

    /// Threads of 0.3 periods, whose few signals have a way of 5 µs at 1,000 Hz.
    #[test]
    fn short_threads_are_not_counted_for_more_than_they_use() {
        random::reseed(77);
        const THREADS: u32 = 200_000;
        let sum: u64 = (0..THREADS).map(|_| samples(0.3, 0.0, 0.005)).sum();
        let mean = sum as f64 / f64::from(THREADS);
        assert!((mean - 0.3).abs() < 0.012, "{mean} samples of 0.3");
    }
}
