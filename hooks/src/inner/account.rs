//! The account of a contended lock: how long its waiters have waited, and which unlock is charged for it.
//!
//! Problem: the mutex profile must show which threads made others wait, and for how long. A lock that is unlocked while
//! n threads wait has delayed all of them, since it was taken or since they arrived, whichever was later. A queue that
//! drains through several holders was delayed by each of them for a part of the time. Walking the queue at every unlock
//! would cost more than the waiting itself. Go keeps the times of the first and the last waiter and interpolates
//! (go#61015, go#73760).
//!
//! Scheme: n and the sum of the waiters' start ticks suffice.
//!
//! ```text
//!   join at t       n += 1, sum += t
//!   unlock at t     charge n·t − sum  =  Σ (t − start)      to who unlocks
//!                   sum = n·t                               from here on the next holder pays
//!                   of those n, k are woken: n −= k, sum −= k·t
//!   time out at t   n −= 1, sum −= start, or the last charge if that was later
//! ```
//!
//! Every tick between a waiter's join and its wake is charged exactly once, to the unlock that ended it. So both
//! profiles have the same total, except for waiters that give up: the time since the last unlock is in the block
//! profile only, because no unlock ended it.
//!
//! Each wait is also *counted* once, at the first unlock that is charged for it.
//!
//! A waiter that was woken but found the lock taken again rejoins with the tick of its wake, so that no part of its
//! wait is lost.
//!
//! Sums wrap; a difference of two of them does not, as long as all waits together are shorter than
//! 2^63 ticks (97 years at 3 GHz).

/// The account of one lock. Protected by the lock of the wait queue at the lock's address.
pub(crate) struct Account {
    /// Threads in the queue.
    waiters: u32,
    /// Waiters that no unlock was charged for yet.
    fresh: u32,
    /// Sum of the waiters' starts, each at least the last charge that counted it.
    sum: u64,
    /// The tick of the last charge. No two charges have the same tick, so a stake shows whether there was a charge
    /// since it was made.
    charged: u64,
}

/// More ticks than the counters of two cores differ by: 0.4 ms at 3 GHz.
const SKEW: u64 = 1 << 20;

/// A waiter's stake in an account, so that it can be taken out again.
#[derive(Clone, Copy, Default)]
pub(crate) struct Stake {
    start: u64,
    /// `Account::charged` when it joined.
    charged: u64,
    is_fresh: bool,
}

/// What an unlock is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// Waits that are counted to it.
    pub(crate) waits: u64,
    /// Ticks that all waiters together have waited since the last charge.
    pub(crate) ticks: u64,
}

impl Charge {
    /// Adds `waits` of `ticks` in total, `weight` times.
    #[cfg(any(rtprof_interposed, all(test, loom)))]
    pub(crate) fn add(&mut self, weight: u64, waits: u64, ticks: u64) {
        self.waits = self.waits.saturating_add(weight.saturating_mul(waits));
        self.ticks = self.ticks.saturating_add(weight.saturating_mul(ticks));
    }
}

impl Account {
    pub(crate) const EMPTY: Self = Self { waiters: 0, fresh: 0, sum: 0, charged: 0 };

    /// Adds a thread that has waited since `start`. `is_fresh` says that the wait was in no account before.
    pub(crate) fn join(&mut self, start: u64, is_fresh: bool) -> Stake {
        self.waiters += 1;
        self.fresh += u32::from(is_fresh);
        self.sum = self.sum.wrapping_add(start);
        Stake { start, charged: self.charged, is_fresh }
    }

    /// Charges an unlock at `now`, at which `woken` of the waiters leave the queue.
    pub(crate) fn charge(&mut self, now: u64, woken: u32) -> Charge {
        // The counters of two cores differ a little, and slow counters stand still between two unlocks. A counter that
        // is far back was reset, because the machine has slept.
        let now = if self.charged.wrapping_sub(now) < SKEW { self.charged.wrapping_add(1) } else { now };
        let all = u64::from(self.waiters).wrapping_mul(now);
        // Negative only because the counters of two cores differ.
        let ticks = (all.wrapping_sub(self.sum) as i64).max(0) as u64;
        let charge = Charge { waits: u64::from(self.fresh), ticks };
        self.waiters -= woken;
        self.fresh = 0;
        self.charged = now;
        self.sum = u64::from(self.waiters).wrapping_mul(now);
        charge
    }

    /// Removes a waiter that gives up, or that an unlock has let in without naming it. Returns the tick of the last
    /// charge for it, if there was one.
    pub(crate) fn leave(&mut self, stake: Stake) -> Option<u64> {
        let was_charged = stake.charged != self.charged;
        let start = if was_charged { self.charged } else { stake.start };
        self.waiters -= 1;
        self.fresh -= u32::from(stake.is_fresh && !was_charged);
        self.sum = self.sum.wrapping_sub(start);
        was_charged.then_some(self.charged)
    }

    /// Whether no thread waits and nothing is left of earlier waiters.
    #[cfg(test)]
    pub(crate) fn is_settled(&self) -> bool {
        (self.waiters, self.fresh, self.sum) == (0, 0, 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn all_waiters_are_charged_to_the_holder() {
        let mut account = Account::EMPTY;
        for start in [100, 110, 120] {
            account.join(start, true);
        }
        assert_eq!(account.charge(200, 1), Charge { waits: 3, ticks: 100 + 90 + 80 });
        // The second holder had two waiting behind it for 50, the third one for 7.
        assert_eq!(account.charge(250, 1), Charge { waits: 0, ticks: 100 });
        assert_eq!(account.charge(257, 1), Charge { waits: 0, ticks: 7 });
        assert!(account.is_settled());
    }

    #[test]
    fn who_gives_up_takes_the_rest_along() {
        let mut account = Account::EMPTY;
        let early = account.join(100, true);
        let late = account.join(150, true);
        account.leave(late);
        assert_eq!(account.charge(200, 0), Charge { waits: 1, ticks: 100 });
        account.join(220, true);
        account.leave(early);
        assert_eq!(account.charge(300, 1), Charge { waits: 1, ticks: 80 });
        assert!(account.is_settled());
    }

    #[test]
    fn a_wait_goes_on_after_a_lost_race() {
        let mut account = Account::EMPTY;
        account.join(100, true);
        let first = account.charge(150, 1);
        account.join(150, false);
        let second = account.charge(180, 1);
        assert_eq!((first.waits, second.waits), (1, 0));
        assert_eq!(first.ticks + second.ticks, 80);
    }

    #[test]
    fn counters_near_their_end_wrap() {
        let mut account = Account::EMPTY;
        for start in [u64::MAX - 10, u64::MAX - 5, 3] {
            account.join(start, true);
        }
        assert_eq!(account.charge(5, 3), Charge { waits: 3, ticks: 16 + 11 + 2 });
        assert!(account.is_settled());
    }

    #[test]
    fn charges_in_one_tick_are_told_apart() {
        let mut account = Account::EMPTY;
        account.join(50, true);
        assert_eq!(account.charge(100, 0).waits, 1);
        let stakes = [100, 100].map(|start| account.join(start, true));
        assert_eq!(account.charge(100, 0).waits, 2);
        for stake in stakes {
            assert!(account.leave(stake).is_some(), "they were charged for");
        }
        let uncharged = account.join(101, true);
        assert_eq!(account.leave(uncharged), None);
        // The clock goes back.
        let late = account.join(101, true);
        assert_eq!(account.charge(90, 1).waits, 1);
        assert!(account.leave(late).is_some());
        assert!(account.is_settled());
    }

    #[test]
    fn a_clock_that_begins_anew_spoils_one_charge() {
        let mut account = Account::EMPTY;
        let start = 1 << 50;
        account.join(start, true);
        account.charge(start + 100, 0);
        // The machine slept.
        account.join(1_000_000, true);
        assert_eq!(account.charge(1_003_000, 2), Charge { waits: 1, ticks: 0 });
        account.join(2_000_000, true);
        assert_eq!(account.charge(2_003_000, 1), Charge { waits: 1, ticks: 3000 });
        let stake = account.join(3_000_000, true);
        assert_eq!(account.leave(stake), None);
        assert!(account.is_settled());
    }

    #[test]
    fn a_skewed_counter_charges_nothing() {
        let mut account = Account::EMPTY;
        account.join(100, true);
        assert_eq!(account.charge(98, 1), Charge { waits: 1, ticks: 0 });
    }
}
