//! The wait for `unpark`.

use std::time::Duration;

use super::possible_wait::PossibleWaitGuard;
use crate::wait::WaitReason;

/// Waits until somebody calls [`Thread::unpark`](super::Thread::unpark) on this thread; not at all if somebody
/// has since the last time. May return without. As `std::thread::park`.
///
/// A wait of the block profile if it slept.
pub fn park() {
    let wait = PossibleWaitGuard::begin(WaitReason::Park);
    std::thread::park();
    wait.end();
}

/// As [`park`], for at most `dur`. As `std::thread::park_timeout`.
pub fn park_timeout(dur: Duration) {
    let wait = PossibleWaitGuard::begin(WaitReason::Park);
    std::thread::park_timeout(dur);
    wait.end();
}
