//! Waits and system calls that the program announces.

use rtprof_profiler::contention::block_profile_rate;
use rtprof_runtime::goroutine;
use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_tracer::{is_enabled, states};

use crate::frame;
use crate::inner::wait::{Wait, WaitReason};

/// The reason of a [`wait`]: it decides the name in `go tool trace`, and the profile of `go tool trace -pprof=` that
/// contains the wait.
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

/// Runs `f`, which waits for something that rtprof does not see: a channel of another crate, a socket. The trace shows
/// the current goroutine waiting meanwhile, with its stack, and then waking by itself; the block profile counts the
/// wait, if it is on, has such waits ([`BlockKinds`](rtprof_profiler::BlockKinds): by default not those for the network
/// or for time), and `f` took about a microsecond or more. (A shorter `f` has not waited.)
///
/// If `f` itself causes an event, for example by locking a contended `rtprof::sync::Mutex` or calling
/// [`log`](rtprof_tracer::log), the announced wait ends there.
///
/// While neither a trace nor the block profile is on this is two loads; a trace that begins meanwhile shows the
/// goroutine running until `f` returns.
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

/// Runs `f`, which makes a system call that may block: reading a file, waiting for a process. The trace shows the current
/// goroutine in a system call meanwhile, with its stack, and its lane as free. Go: `runtime.entersyscall`.
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
    /// Which interposed calls were hidden before. Calls that the system call consists of are hidden meanwhile.
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
