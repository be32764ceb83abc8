//! Waits and system calls that the program announces.

use rtprof_profiler::contention::block_profile_rate;
use rtprof_runtime::goroutine;
use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_tracer::{is_enabled, states};

use crate::frame;
use crate::inner::wait::{Wait, WaitReason};

/// The reason of a [`wait`]: it decides the name of the wait in `go tool trace`, and which profile of
/// `go tool trace -pprof=` contains the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitKind {
    /// For another goroutine: a lock, a barrier. In `-pprof=sync`.
    Sync,
    /// For a condition. In `-pprof=sync`.
    Cond,
    /// For room in a channel. In `-pprof=sync`.
    Send,
    /// For a message. In `-pprof=sync`.
    Recv,
    /// For one of several things. In `-pprof=sync`.
    Select,
    /// For the network, or another device. In `-pprof=net`.
    Net,
    /// Until a time has passed. In no profile.
    Sleep,
}

impl WaitKind {
    pub(crate) fn reason(self) -> WaitReason {
        match self {
            Self::Sync => WaitReason::Sync,
            Self::Cond => WaitReason::CondWait,
            Self::Send => WaitReason::ChanSend,
            Self::Recv => WaitReason::ChanReceive,
            Self::Select => WaitReason::Select,
            Self::Net => WaitReason::Net,
            Self::Sleep => WaitReason::Sleep,
        }
    }
}

/// Runs `f`, which waits for something that rtprof does not see: a channel of another crate, a socket. While `f` runs,
/// the trace shows the current goroutine waiting, with its stack, and then waking by itself. The block profile counts
/// the wait if the profile is on, includes waits of this kind ([`BlockKinds`](rtprof_profiler::BlockKinds): by default
/// not those for the network or for time), and `f` took about a microsecond or more. (A shorter `f` has not waited.)
///
/// If `f` itself causes an event, for example by locking a contended `rtprof::sync::Mutex` or calling
/// [`log`](rtprof_tracer::log), the announced wait ends there.
///
/// While neither a trace nor the block profile is on, this costs two loads; a trace that begins while `f` runs then
/// shows the goroutine as running until `f` returns.
#[inline(always)]
pub fn wait<T>(kind: WaitKind, f: impl FnOnce() -> T) -> T {
    if !is_enabled() && block_profile_rate() == 0 {
        return f();
    }
    // If `f` panics, the wait is dropped and not recorded.
    let wait = Wait::announce(kind.reason());
    let result = f();
    wait.end_if_slept();
    frame::keep();
    result
}

/// Runs `f`, which makes a system call that may block: reading a file, waiting for a process. While `f` runs, the trace
/// shows the current goroutine in a system call, with its stack, and shows its lane as free. Go:
/// `runtime.entersyscall`.
///
/// If `f` itself causes an event, the system call ends there in the trace. While nothing is recorded this is one load.
#[inline(always)]
pub fn syscall<T>(f: impl FnOnce() -> T) -> T {
    if !is_enabled() {
        return f();
    }
    let _scope = Scope::enter();
    let result = f();
    frame::keep();
    result
}

/// A system call in progress.
struct Scope {
    /// Which interposed calls were hidden before. The calls of which the system call consists are hidden while it runs.
    hidden_before: hidden::Before,
}

impl Scope {
    fn enter() -> Self {
        states::enter_syscall();
        Self { hidden_before: hidden::hide(Calls::WAITS) }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        hidden::restore(self.hidden_before);
        if let Some(own) = goroutine::known() {
            states::resume(own);
        }
    }
}
