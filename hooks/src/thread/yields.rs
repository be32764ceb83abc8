//! Giving up the core.

use rtprof_runtime::goroutine;
use rtprof_tracer::{is_enabled, states};

/// Lets other threads run. As `std::thread::yield_now`. A trace shows it as an event of the scheduler. Go:
/// `runtime.Gosched`.
#[inline]
pub fn yield_now() {
    if is_enabled() {
        states::yields();
        std::thread::yield_now();
        if let Some(own) = goroutine::known() {
            states::resume(own);
        }
    } else {
        std::thread::yield_now();
    }
}
