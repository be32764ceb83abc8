//! The wait for `unpark`.

use std::time::Duration;

use super::parked;
use crate::frame;
use crate::inner::wait::{Wait, WaitReason};

/// Waits until another thread calls [`Thread::unpark`](super::Thread::unpark) on this one. Returns at once if one did
/// since the last `park`. May return without a reason. As `std::thread::park`.
///
/// The block profile counts the wait if it took a microsecond or more.
#[inline(always)]
pub fn park() {
    wait(std::thread::park);
}

/// As [`park`], for at most `dur`. As `std::thread::park_timeout`.
#[inline(always)]
pub fn park_timeout(dur: Duration) {
    wait(|| std::thread::park_timeout(dur));
}

/// Inlined into the program's function, whose frame must be on the stack when it is captured.
#[inline(always)]
fn wait(park: impl FnOnce()) {
    parked::note();
    let wait = Wait::begin(WaitReason::Park);
    park();
    // std does not report whether an earlier `unpark` made the wait unnecessary.
    wait.end_if_slept();
    frame::keep();
}
