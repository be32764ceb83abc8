//! The wait for time to pass.

use std::time::Duration;

use crate::inner::wait::{Wait, WaitReason};

/// Sleeps for at least `dur`. As `std::thread::sleep`. Not in the block profile, because no other thread can shorten
/// it. Go: `time.Sleep`.
pub fn sleep(dur: Duration) {
    let wait = Wait::begin(WaitReason::Sleep);
    std::thread::sleep(dur);
    wait.end_now();
}
