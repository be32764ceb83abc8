//! Waits of which only the time tells whether they were any: std does not say whether it slept.

use crate::wait::{Wait, WaitReason, clock};

/// What takes less has not slept. In ticks: about a microsecond, at the rates that counters run at. The kernel
/// cannot put a thread to sleep and wake it in less, and what does not sleep takes a tenth of it.
const LEAST_SLEEP: u64 = if cfg!(target_arch = "aarch64") { 50 } else { 2000 };

/// Dropped, it ends too: a panic that passes by has waited as well.
pub(super) struct PossibleWaitGuard {
    wait: Option<Wait>,
    start: u64,
}

impl PossibleWaitGuard {
    #[inline(always)]
    pub(super) fn begin(reason: WaitReason) -> Self {
        // The clock is read after the thread's first hook has registered it, which takes long.
        let mut wait = Wait::prepare(reason);
        let start = clock::ticks();
        wait.run();
        Self { wait: Some(wait), start }
    }

    /// Over now. In the caller's frame, which is hidden in profiles by its name.
    #[inline(always)]
    pub(super) fn end(mut self) {
        self.end_once();
    }

    #[inline(always)]
    fn end_once(&mut self) {
        if let Some(wait) = self.wait.take()
            && clock::since(self.start, clock::ticks()) >= LEAST_SLEEP
        {
            wait.end_now();
        }
    }
}

impl Drop for PossibleWaitGuard {
    fn drop(&mut self) {
        self.end_once();
    }
}
