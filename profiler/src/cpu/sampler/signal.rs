//! The signal that a thread receives when a period is over, and its handler.
//!
//! The first choice is one of the signals that are ignored by default, which the sampler shares with goroutine snapshots
//! ([`shared_signal`]). The remaining candidates, for a program that has handlers for those, end a process by default: their
//! pending signals are dropped when the program's disposition is restored, but a signal that becomes pending in the middle of
//! `exec` ends the new program. None of them is a real-time signal: real-time signals queue up in a thread that blocks them,
//! and the kernel sends `SIGIO`, which ends the process, when the queue is full.
//!
//! Effects on the program: a system call that the signal interrupts is restarted (`SA_RESTART`), except for those that
//! never are (signal(7): `poll`, `epoll_wait`, `nanosleep` and others), which return `EINTR`. Only running threads are
//! signalled, so that happens to a call that was about to begin. Signals of this number that others send act as they
//! would without rtprof.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rtprof_runtime::hook::errno;
use rtprof_runtime::signal::alternate_stack;
use rtprof_runtime::signal::disposition;
use rtprof_runtime::signal::shared_signal::{self, Sample, SharedSignal, User};
use rtprof_runtime::stack::Interrupted;

use super::event::Cause;
use super::sampling::SAMPLING;
use super::thread::CpuThread;

/// In the order in which they are tried, after the shared ones.
const CANDIDATES: [c_int; 3] = [libc::SIGPROF, libc::SIGSTKFLT, libc::SIGVTALRM];

/// The one of these that has our handler, or 0, and whether the process ignored it before, instead of having the default
/// action.
static TAKEN: AtomicI32 = AtomicI32::new(0);
static WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// A signal that has our handler, until this is dropped.
pub(super) enum Signal {
    Shared(SharedSignal),
    Own(c_int),
}

impl Signal {
    /// Takes a signal. Returns `None` if the program has handlers for all of them. One at a time in a process.
    pub(super) fn take() -> Option<Self> {
        let signal = Self::take_one()?;
        signal.wait_for_handlers();
        Some(signal)
    }

    /// Keeps the signal away from the program's handlers on alternate stacks ([`alternate_stack`]). Called now and then, for
    /// handlers that the program has installed since.
    pub(super) fn wait_for_handlers(&self) {
        alternate_stack::wait_for_handlers(self.number());
    }

    fn take_one() -> Option<Self> {
        shared_signal::sample_with(&(sample as Sample));
        if let Some(shared) = shared_signal::take(User::Sampler) {
            return Some(Self::Shared(shared));
        }
        // SAFETY: the handler does only what a handler may do, and lives as long as this code, which stays loaded
        // (`init`).
        let install =
            |signal| unsafe { disposition::install(signal, handle, &[libc::SIG_DFL, libc::SIG_IGN]) };
        let (number, before) = CANDIDATES.into_iter().find_map(|signal| Some((signal, install(signal)?)))?;
        WAS_IGNORED.store(before == libc::SIG_IGN, Ordering::Relaxed);
        TAKEN.store(number, Ordering::Release);
        Some(Self::Own(number))
    }

    pub(super) fn number(&self) -> c_int {
        match self {
            Self::Shared(shared) => shared.number(),
            Self::Own(number) => *number,
        }
    }

    /// Returns whether our handler is still installed.
    pub(super) fn is_ours(&self) -> bool {
        match self {
            Self::Shared(shared) => shared.is_ours(),
            Self::Own(number) => disposition::is_handled_by(*number, handle),
        }
    }

    /// Returns whether the signal is in this set, whose bit 0 stands for signal 1.
    pub(super) fn is_in(&self, set: u64) -> bool {
        set >> (self.number() - 1) & 1 != 0
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        if let Self::Own(_) = self {
            give_back();
        }
    }
}

/// Restores the process's previous actions in a forked child, which has inherited our handlers.
pub(super) fn forked() {
    give_back();
    shared_signal::forked();
}

/// Restores the process's previous action for our signal, if it is not a shared one.
fn give_back() {
    let signal = TAKEN.swap(0, Ordering::AcqRel);
    if signal != 0 {
        let before = if WAS_IGNORED.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
        disposition::restore(signal, handle, before);
    }
}

/// Returns whether the signal would end the process without rtprof, when others send it.
fn ends_the_process(signal: c_int) -> bool {
    // If the program has installed a handler after ours and calls ours, the program decides.
    !WAS_IGNORED.load(Ordering::Relaxed) && disposition::is_handled_by(signal, handle)
}

// Never inlined, so that it has one address, which identifies it.
#[inline(never)]
unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    errno::kept(|| {
        // SAFETY: the arguments are this handler's.
        let is_ours = unsafe { sample_for(&*info, context) };
        if !is_ours && ends_the_process(signal) {
            disposition::end_as_without_us(signal);
        }
    });
}

/// Handles a shared signal, which may be of another sender.
///
/// # Safety
/// The arguments are those of a signal handler.
unsafe fn sample(info: &libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the caller passes a handler's arguments.
    unsafe { sample_for(info, context) };
}

/// Takes a sample for the event of which a signal tells. Returns `false` for a signal of another sender.
///
/// # Safety
/// As for [`sample`].
unsafe fn sample_for(info: &libc::siginfo_t, context: *mut c_void) -> bool {
    let Some(cause) = Cause::of(info) else { return false };
    SAMPLING.with(|sampling| {
        if let Some(thread) = CpuThread::of(cause) {
            // SAFETY: `context` is a handler's third argument.
            sampling.sample(thread, cause, unsafe { Interrupted::new(context) });
        }
    });
    true
}
