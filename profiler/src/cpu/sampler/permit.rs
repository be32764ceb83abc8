//! The permit for the one sampling of a process, and which sampling yields to which.
//!
//! A user has requested a profile and waits for it. Samples requested by a trace only add to the trace, and those of a
//! profile are in the trace as well. So a profile that starts ends the sampling for a trace, and not the other way
//! round:
//!
//! | running \ starting | profile | for a trace |
//! |---|---|---|
//! | profile | refused | refused |
//! | for a trace | ends it and starts | refused |
//! | one that is ending | waits for its end | waits for its end |

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use rtprof_runtime::goroutine;
use rtprof_runtime::hook::own_process;

use crate::cpu::error::CpuProfileError;

/// Set in [`HOLDER`] of a sampling that a profile may end.
const YIELDS: u64 = 1 << 62;
/// Set in [`HOLDER`] of a sampling that must end.
const ENDING: u64 = 1 << 63;

/// The current sampling: bits 0 to 31 are its process, 32 to 61 its serial number; 0 for none. In a forked child it
/// names the parent, which counts as 0.
static HOLDER: AtomicU64 = AtomicU64::new(0);
/// The serial number of the next sampling.
static SERIAL: AtomicU32 = AtomicU32::new(0);
/// Changes when the sampler thread must wake up.
static CALLS: AtomicU32 = AtomicU32::new(0);

/// Wakes the sampler thread.
fn call() {
    CALLS.fetch_add(1, Ordering::Release);
    const WAKE: libc::c_int = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: wakes a thread that waits for the word. At most one thread waits.
    unsafe { libc::syscall(libc::SYS_futex, CALLS.as_ptr(), WAKE, 1) };
}

/// Waits for a wake-up since `seen`, for `time` at most.
fn wait_for_call(seen: u32, time: Duration) {
    let time = libc::timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos() as _ };
    const WAIT: libc::c_int = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: waits while the word is `seen`; the time is a local.
    unsafe { libc::syscall(libc::SYS_futex, CALLS.as_ptr(), WAIT, seen, &raw const time) };
}

/// The permit to sample, until it is dropped.
pub(super) struct Permit(Ticket);

/// Identifies a sampling, also after it is over.
#[derive(Clone, Copy)]
pub(super) struct Ticket(u64);

impl Permit {
    /// Takes the permit; waits while another sampling is ending. A sampling that `yields` can be ended by one that does
    /// not.
    pub(super) fn take(yields: bool) -> Result<Self, CpuProfileError> {
        let own = own_process();
        let serial = u64::from(SERIAL.fetch_add(1, Ordering::Relaxed) % (1 << 30));
        let word = u64::from(own) | serial << 32 | if yields { YIELDS } else { 0 };
        let mut tries = 0;
        loop {
            let holder = HOLDER.load(Ordering::Acquire);
            if holder as u32 != own {
                let order = (Ordering::AcqRel, Ordering::Relaxed);
                if HOLDER.compare_exchange(holder, word, order.0, order.1).is_ok() {
                    return Ok(Self(Ticket(word)));
                }
                continue;
            }
            if holder & ENDING == 0 {
                if yields || holder & YIELDS == 0 {
                    return Err(CpuProfileError::AlreadyStarted);
                }
                Ticket(holder).end();
            }
            goroutine::give_way(&mut tries);
        }
    }

    pub(super) fn ticket(&self) -> Ticket {
        self.0
    }

    /// Waits for `time`, or until the sampling must end. Returns whether it must. Called by the sampler thread.
    pub(super) fn wait_for_end(&self, time: Duration) -> bool {
        let is_ending = || HOLDER.load(Ordering::Acquire) != self.0.0;
        let calls = CALLS.load(Ordering::Acquire);
        if !is_ending() {
            wait_for_call(calls, time);
        }
        is_ending()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        HOLDER.store(0, Ordering::Release);
    }
}

impl Ticket {
    /// Tells the sampler thread to end the sampling. Does nothing if that was done before, or the sampling is over.
    pub(super) fn end(self) {
        if HOLDER.compare_exchange(self.0, self.0 | ENDING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            call();
        }
    }
}
