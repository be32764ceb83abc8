//! Tasks that wait for ever, as far as can be told.
//!
//! A task whose future suspended and kept no clone of the waker, or whose clones were all dropped unused, cannot be woken by
//! anything that we see: a hand-written future has not registered its waker, or what was to call it back is gone. Go finds such
//! goroutines by its garbage collector (`goroutineleak`), which knows; ours is an estimate:
//!
//! - What polls the task (`select!`, `join!`, an executor that polls its tasks over and over) may poll or drop it all the same. So
//!   only a task counts that has waited for a while.
//! - A lock that is never released and a channel whose sender was leaked keep the waker, and such a task does not count.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::tasks::forks_looked_at;
use super::{Recorded, tasks};
use crate::clock;
use crate::task::{Seen, TASKS};

/// See [`set_leak_limit`].
const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

static LIMIT: AtomicU64 = AtomicU64::new(DEFAULT_LIMIT.as_nanos() as u64);

/// Sets for how long a task that nothing can wake has waited before it is in the profile `goroutineleak`; returns the previous
/// limit. A minute at first.
pub fn set_leak_limit(limit: Duration) -> Duration {
    let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(LIMIT.swap(nanos, Ordering::Relaxed))
}

/// For how long a task that nothing can wake has waited before it is in the profile `goroutineleak`.
pub fn leak_limit() -> Duration {
    Duration::from_nanos(LIMIT.load(Ordering::Relaxed))
}

/// The limit, in ticks of [`clock`]. Not for hooks.
pub(super) fn limit_ticks() -> u64 {
    (leak_limit().as_secs_f64() * clock::ticks_per_second() as f64) as u64
}

/// How many tasks there are that wait for ever, as far as can be told. Not for hooks.
pub fn count_leaked() -> usize {
    leaked(clock::ticks()).count()
}

/// These tasks. Allocates: not for hooks.
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
