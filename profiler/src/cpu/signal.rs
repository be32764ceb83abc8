//! The signal by which threads are told that a period is over, and its handler.
//!
//! Which one: `SIGURG`, unless the program has a handler for it. By default that signal is ignored, so one that comes late
//! does no harm: after the sampling, or in a program that this one has become by `exec`. (Go chose it for its own
//! interruptions for the same reason.) `SIGWINCH` is the other one of that kind that nothing waits for. Those after them end a
//! process by default: what is pending of them is dropped when the program's disposition is put back, but one that becomes
//! pending in the middle of `exec` ends the new program. None of them is a real-time signal: these queue up in a thread that blocks them, and
//! the kernel sends `SIGIO`, which ends the process, when the queue is full.
//!
//! What the program notices: a system call that a signal interrupts begins anew (`SA_RESTART`), but for those that never do
//! (signal(7): `poll`, `epoll_wait`, `nanosleep` and others), which return `EINTR`. Only threads that run are signalled, so
//! that happens to a call that was about to begin. Signals of this number that others send do what they did without us.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rtprof_runtime::disposition;
use rtprof_runtime::errno;
use rtprof_runtime::stack::Interrupted;

use super::event::Cause;
use super::sampling::SAMPLING;
use super::thread::CpuThread;

/// In the order in which they are tried.
const CANDIDATES: [c_int; 5] =
    [libc::SIGURG, libc::SIGWINCH, libc::SIGPROF, libc::SIGSTKFLT, libc::SIGVTALRM];

/// The one that has our handler; 0 for none. And whether the process ignored it before, rather than what is default.
static TAKEN: AtomicI32 = AtomicI32::new(0);
static WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// A signal that has our handler, until this is dropped.
pub(super) struct Signal(c_int);

impl Signal {
    /// `None` if the program has handlers for all. One at a time in a process.
    pub(super) fn take() -> Option<Self> {
        // SAFETY: the handler keeps to what a handler may do, and lives as long as this code, which stays loaded (`init`).
        let install =
            |signal| unsafe { disposition::install(signal, handle, &[libc::SIG_DFL, libc::SIG_IGN]) };
        let (number, before) = CANDIDATES.into_iter().find_map(|signal| Some((signal, install(signal)?)))?;
        WAS_IGNORED.store(before == libc::SIG_IGN, Ordering::Relaxed);
        TAKEN.store(number, Ordering::Release);
        Some(Self(number))
    }

    pub(super) fn number(&self) -> c_int {
        self.0
    }

    /// Whether the program has left it to us.
    pub(super) fn is_ours(&self) -> bool {
        disposition::is_handled_by(self.0, handle)
    }

    /// Whether it is in this set, whose bit 0 stands for signal 1.
    pub(super) fn is_in(&self, set: u64) -> bool {
        set >> (self.0 - 1) & 1 != 0
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Puts back what the process did with the signal that we have. In a forked child, which has our handler from its parent, too.
pub(super) fn give_back() {
    let signal = TAKEN.swap(0, Ordering::AcqRel);
    if signal != 0 {
        let before = if WAS_IGNORED.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
        disposition::restore(signal, handle, before);
    }
}

/// Whether it ends the process when somebody else sends it, without us.
fn ends_the_process(signal: c_int) -> bool {
    let is_ignored = [libc::SIGURG, libc::SIGWINCH].contains(&signal) || WAS_IGNORED.load(Ordering::Relaxed);
    // Called by a handler that the program has installed after us, it is the program's to say.
    !is_ignored && disposition::is_handled_by(signal, handle)
}

// Never inlined, it has one address, by which it is known.
#[inline(never)]
unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    errno::kept(|| {
        // SAFETY: the kernel passes a whole structure.
        let Some(cause) = Cause::of(unsafe { &*info }) else {
            if ends_the_process(signal) {
                disposition::end_as_without_us(signal);
            }
            return;
        };
        SAMPLING.with(|sampling| {
            if let Some(thread) = CpuThread::of(cause) {
                // SAFETY: this is the handler's third argument.
                sampling.sample(thread, cause, unsafe { Interrupted::new(context) });
            }
        });
    });
}
