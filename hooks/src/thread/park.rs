//! The wait for `unpark`.

use std::time::Duration;

use crate::frame;
use crate::wait::{Wait, WaitReason, clock};

/// A park that took less has not slept: it found that somebody had called `unpark` before, which std keeps
/// to itself. In ticks: about a microsecond, at the rates that counters run at. The kernel cannot put a thread
/// to sleep and wake it in less, and what does not sleep takes a tenth of it.
const LEAST_SLEEP: u64 = if cfg!(target_arch = "aarch64") { 50 } else { 2000 };

/// Waits until somebody calls [`Thread::unpark`](super::Thread::unpark) on this thread; not at all if
/// somebody has since the last time. May return without. As `std::thread::park`.
///
/// A wait of the block profile if it took a microsecond or more.
#[inline(always)]
pub fn park() {
    wait(std::thread::park);
}

/// As [`park`], for at most `dur`. As `std::thread::park_timeout`.
#[inline(always)]
pub fn park_timeout(dur: Duration) {
    wait(|| std::thread::park_timeout(dur));
}

/// In the program's own frame, which must be there when its stack is taken.
#[inline(always)]
fn wait(park: impl FnOnce()) {
    // The clock is read after a thread's first hook has registered it, which takes long.
    let mut wait = Wait::prepare(WaitReason::Park);
    let start = clock::ticks();
    wait.run();
    park();
    if clock::since(start, clock::ticks()) >= LEAST_SLEEP {
        wait.end_now();
        frame::keep();
    }
}
