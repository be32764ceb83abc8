//! An estimate of the tasks that wait for ever.
//!
//! A task cannot be woken by anything known to rtprof if its future suspended without keeping a clone of the waker, or
//! if all clones were dropped unused: a hand-written future has not registered its waker, or the callback's source is
//! gone. Go finds such goroutines exactly, by its garbage collector (`goroutineleak`); ours is an estimate:
//!
//! - The code that polls the task (`select!`, `join!`, an executor that polls its tasks over and over) may still poll
//!   or drop it. So a task counts only after it has waited for a while.
//! - A lock that is never released and a channel whose sender was leaked keep the waker, and a task that waits for one
//!   of them does not count.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::recorded::Recorded;
use super::tasks::{self, forks_looked_at};
use crate::clock;
use crate::task::{Seen, TASKS};

/// See [`set_leak_limit`].
const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

static LIMIT: AtomicU64 = AtomicU64::new(DEFAULT_LIMIT.as_nanos() as u64);

/// Sets the time after which a waiting task that nothing can wake enters the profile `goroutineleak`; returns the
/// previous limit. The default is one minute.
pub fn set_leak_limit(limit: Duration) -> Duration {
    let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(LIMIT.swap(nanos, Ordering::Relaxed))
}

/// Returns the time after which a waiting task that nothing can wake enters the profile `goroutineleak`.
pub fn leak_limit() -> Duration {
    Duration::from_nanos(LIMIT.load(Ordering::Relaxed))
}

/// Returns the limit in ticks of [`clock`]. Must not be called in a hook.
pub(super) fn limit_ticks() -> u64 {
    (leak_limit().as_secs_f64() * clock::ticks_per_second() as f64) as u64
}

/// Returns the estimated number of tasks that wait for ever. Must not be called in a hook.
pub fn count_leaked() -> usize {
    leaked(clock::ticks()).count()
}

/// Returns the tasks that are estimated to wait for ever, in the order of their ids. Allocates: must not be called in a
/// hook.
pub fn leaked_tasks() -> Vec<Recorded> {
    let now = clock::ticks();
    let mut all: Vec<Recorded> = leaked(now).map(|seen| tasks::waiting(seen, now)).collect();
    all.sort_unstable_by_key(|task| task.id);
    all
}

fn leaked(now: u64) -> impl Iterator<Item = Seen> {
    let (forks, limit) = (forks_looked_at(), limit_ticks());
    let candidates = TASKS.iter().filter(|task| task.waits_without_waker());
    let seen = candidates.filter_map(move |task| task.read(task.id(), forks));
    seen.filter(move |seen| seen.is_leaked(limit, now))
}
