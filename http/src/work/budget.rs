//! The budget of answers: how much processor time they take at the program's own priority.
//!
//! Problem: an answer must be sent in time when the program keeps all cores busy, so its writer cannot give way to the
//! program. But many clients, or one that sends requests without a pause, would then take cores from the program.
//! Scheme: writers have the program's priority while they take [`SHARE`] of a core in the long run, and up to [`BURST`]
//! at once. That is ten times what a scrape of all profiles every ten seconds takes, or one heap profile of some
//! 300,000 records. A writer that finds the budget spent when it begins, or at one of its pieces, gives way to the
//! program from there on (nice 10), and its client waits longer. The work before the first piece is charged to the same
//! budget, but done at the program's priority: this work is short, and a thread that has given way cannot take that
//! back.
//!
//! The account is a single instant (the generic cell rate algorithm): the instant at which all work until now is within
//! the share. Work moves the instant into the future, and time catches up with it.
//!
//! Locks: `within_share`, for the length of a comparison.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rtprof_runtime::thread::kernel_thread;

/// The share of a core: one part in a hundred.
const SHARE: u32 = 100;
/// How much processor time may be spent at once.
const BURST: Duration = Duration::from_millis(250);

/// The processor time that is left for writers at the program's priority.
pub(crate) struct Budget {
    within_share: Mutex<Instant>,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { within_share: Mutex::new(Instant::now()) }
    }

    fn is_left_at(&self, now: Instant) -> bool {
        self.lock().saturating_duration_since(now) < BURST * SHARE
    }

    fn spend_at(&self, now: Instant, work: Duration) {
        let mut within_share = self.lock();
        // The last piece may exceed the burst. The excess is paid back, but only up to this limit.
        let most = now + 2 * BURST * SHARE;
        *within_share = ((*within_share).max(now) + work.min(2 * BURST) * SHARE).min(most);
    }

    fn lock(&self) -> MutexGuard<'_, Instant> {
        self.within_share.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The account of what the current thread spends, from `open` until the account is dropped.
pub(crate) struct Account {
    budget: Arc<Budget>,
    /// The thread's processor time up to which everything is charged to the budget, or precedes the account.
    spent: Duration,
    has_given_way: bool,
}

impl Account {
    pub(crate) fn open(budget: &Arc<Budget>) -> Self {
        Self { budget: budget.clone(), spent: kernel_thread::thread_time(), has_given_way: false }
    }

    /// Charges the budget. If nothing is left, the thread gives way to the program for the rest of its life.
    pub(crate) fn settle(&mut self) {
        self.spend();
        if !self.has_given_way && !self.budget.is_left_at(Instant::now()) {
            kernel_thread::give_way();
            self.has_given_way = true;
        }
    }

    fn spend(&mut self) {
        let before = std::mem::replace(&mut self.spent, kernel_thread::thread_time());
        if !self.has_given_way {
            self.budget.spend_at(Instant::now(), self.spent.saturating_sub(before));
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.spend();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_gives_way_when_the_burst_is_spent() {
        fn nice() -> i64 {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("a line");
            let after_name = stat.rsplit_once(") ").expect("a name").1;
            after_name.split(' ').nth(16).expect("a field").parse().expect("a number")
        }
        let budget = Arc::new(Budget::new());
        let work = move || {
            let before = nice();
            let begin = kernel_thread::thread_time();
            let mut account = Account::open(&budget);
            account.settle();
            assert_eq!(nice(), before, "nothing was done yet");
            while kernel_thread::thread_time() < begin + BURST * 2 {
                std::hint::spin_loop();
            }
            account.settle();
            assert_eq!(nice(), (before + 10).min(19));
            drop(account);
            assert!(!budget.is_left_at(Instant::now()));
        };
        std::thread::spawn(work).join().expect("a thread that ends well");
    }

    #[test]
    fn a_burst_and_then_a_share() {
        let budget = Budget::new();
        let start = Instant::now();
        let piece = BURST / 10;
        for _ in 0..10 {
            assert!(budget.is_left_at(start));
            budget.spend_at(start, piece);
        }
        assert!(!budget.is_left_at(start));
        let moment = Duration::from_millis(1);
        for share in 1..10 {
            let now = start + Duration::from_secs(10) * share;
            assert!(!budget.is_left_at(now - Duration::from_secs(10)), "{share}");
            assert!(budget.is_left_at(now), "{share}");
            budget.spend_at(now, Duration::from_secs(10) / SHARE);
            assert!(!budget.is_left_at(now), "{share}");
        }
        // One large piece is paid back within the time of two bursts, no more.
        let now = start + Duration::from_secs(100);
        budget.spend_at(now, Duration::from_secs(1000));
        assert!(!budget.is_left_at(now + BURST * SHARE));
        assert!(budget.is_left_at(now + BURST * SHARE + moment));
        let later = start + Duration::from_secs(3600);
        budget.spend_at(later, BURST - piece);
        assert!(budget.is_left_at(later), "a whole burst, and no more");
        budget.spend_at(later, piece);
        assert!(!budget.is_left_at(later));
    }
}
