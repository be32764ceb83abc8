//! Reads what the block and mutex profiles have recorded.

use rtprof_profiler::contention::{BlockCount, block_counts, mutex_counts};
use rtprof_runtime::counters::{self, CountedProfile};
use rtprof_runtime::stack;

/// One of the two profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// The block profile: stacks that waited.
    Block,
    /// The mutex profile: stacks that made others wait.
    Mutex,
}

impl Profile {
    fn counts(self) -> Vec<BlockCount> {
        match self {
            Self::Block => block_counts(),
            Self::Mutex => mutex_counts(),
        }
    }

    /// Returns the number of events so far, scaled as profiles scale them: at rate 1 each event counts as 1.
    pub(crate) fn events(self) -> f64 {
        self.counts().iter().map(|record| record.count).sum()
    }

    /// Returns the number of frames of the stack that recorded most while `f` ran.
    ///
    /// # Panics
    /// When nothing was recorded.
    pub(crate) fn frames_of(self, f: impl FnOnce()) -> usize {
        let before = self.counts();
        f();
        let grown = |record: &BlockCount| {
            let old = before.iter().find(|old| old.stack.as_ptr() == record.stack.as_ptr());
            record.count - old.map_or(0.0, |old| old.count)
        };
        let after = self.counts();
        let most = after.iter().max_by(|a, b| grown(a).total_cmp(&grown(b)));
        let most = most.filter(|record| grown(record) > 0.0).expect("at rate 1 every wait is recorded");
        most.stack.len()
    }
}

/// Returns the number of badly recorded events, whose cost is not that of a whole event: those without room for their
/// stack, or without a stack.
pub(crate) fn dropped() -> f64 {
    (counters::total(CountedProfile::Block) + stack::NOT_CAPTURED.get()) as f64
}

/// Sets both rates: nanoseconds of the block profile, fraction of the mutex profile.
pub(crate) fn set_rates(block: usize, mutex: usize) {
    rtprof::set_block_profile_rate(block as u64);
    rtprof::set_mutex_profile_fraction(mutex as i64);
}
