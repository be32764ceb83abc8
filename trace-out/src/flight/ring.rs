//! The generations that a flight recorder keeps.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rtprof_runtime::clock;

use crate::stats::time_of;

use super::format::EncodedGeneration;

/// The newest generations, oldest first.
pub(super) struct Ring {
    kept: VecDeque<Kept>,
    /// The memory of all of them.
    memory: usize,
    max_bytes: usize,
    min_age: Duration,
}

struct Kept {
    /// The tick at which it began.
    begin: u64,
    memory: usize,
    part: Arc<EncodedGeneration>,
}

impl Ring {
    pub(super) fn new(max_bytes: usize, min_age: Duration) -> Self {
        Self { kept: VecDeque::new(), memory: 0, max_bytes, min_age }
    }

    /// Adds a generation that has just ended, and drops old ones. Go: `recorder.endGeneration`.
    pub(super) fn push(&mut self, begin: u64, part: EncodedGeneration) {
        self.push_at(clock::ticks(), begin, part.memory(), Arc::new(part));
    }

    fn push_at(&mut self, now: u64, begin: u64, memory: usize, part: Arc<EncodedGeneration>) {
        self.kept.push_back(Kept { begin, memory, part });
        self.memory += memory;
        // The generation that crosses a limit is kept, the ones before it are not.
        while let [oldest, next, ..] = self.kept.make_contiguous()
            && (self.memory - oldest.memory > self.max_bytes
                || time_of(clock::since(next.begin, now)) > self.min_age)
        {
            self.memory -= oldest.memory;
            self.kept.pop_front();
        }
    }

    /// Returns all generations, oldest first.
    pub(super) fn parts(&self) -> Vec<Arc<EncodedGeneration>> {
        self.kept.iter().map(|kept| kept.part.clone()).collect()
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v2;

    /// Pushes generations of these bytes, each a second long, and returns how many are kept.
    fn kept(max_bytes: usize, min_age: u64, memory: &[usize]) -> Vec<usize> {
        let mut ring = Ring::new(max_bytes, Duration::from_secs(min_age));
        let second = clock::ticks_per_second();
        for (at, &memory) in memory.iter().enumerate() {
            let begin = (at as u64 + 1) * second;
            ring.push_at(
                begin + second,
                begin,
                memory,
                Arc::new(EncodedGeneration::Go(v2::UnnamedGeneration::empty())),
            );
            assert_eq!(ring.memory(), ring.kept.iter().map(|kept| kept.memory).sum::<usize>());
        }
        ring.kept.iter().map(|kept| kept.memory).collect()
    }

    #[test]
    fn the_generation_that_crosses_a_limit_is_kept() {
        assert_eq!(kept(10, 1000, &[1, 2, 3, 4]), [1, 2, 3, 4]);
        // 9 bytes are not beyond the limit, so the one before is kept.
        assert_eq!(kept(10, 1000, &[1, 2, 9]), [2, 9]);
        assert_eq!(kept(10, 1000, &[1, 2, 10]), [2, 10]);
        assert_eq!(kept(10, 1000, &[1, 2, 11]), [11]);
        assert_eq!(kept(0, 1000, &[1, 2, 3]), [3]);
        // At the end of the last generation the ones before began 2, 3 and 4 s ago.
        assert_eq!(kept(10, 2, &[1, 1, 1, 1]), [1, 1, 1]);
        assert_eq!(kept(10, 0, &[1, 1, 1, 1]), [1]);
        assert_eq!(kept(10, 0, &[100]), [100]);
    }
}
