//! The wait for `unpark`.

use std::time::Duration;

use super::parked;
use crate::frame;
use crate::wait::{Wait, WaitReason};

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
    parked::note();
    let wait = Wait::begin(WaitReason::Park);
    park();
    // It may have found that somebody had called `unpark` before, which std keeps to itself.
    wait.end_if_slept();
    frame::keep();
}
