//! The session: the trace that the process records or reads, and what a forked child knows of it.
//!
//! Problem: `fork` copies the recorder, but not the threads that record and read. A child that went on would fill
//! buffers that are never read, and end a trace that is not its own. Scheme: the session belongs to one process. A child
//! finds that out by the number of the process, even when it was made without the C library's knowledge, and records
//! nothing for the rest of its life.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rtprof_runtime::hook::listeners::{self, Listener};
use rtprof_runtime::hook::own_process;
use rtprof_runtime::task;

use crate::thread::{self, RECORDER};

/// The process whose trace is not over; 0 for none.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Set in a forked process that inherited a trace which it cannot end.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Why nothing can be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// A trace is being recorded, or read.
    AlreadyStarted,
    /// This process was forked while its parent recorded.
    Forked,
    /// The kernel grants no memory.
    NoMemory,
    /// The platform is not supported.
    Unsupported,
}

/// Returns the number of the present trace.
pub(crate) fn number() -> u32 {
    RECORDER.epoch.session.load(Ordering::Relaxed)
}

/// Checks that a trace may begin. The caller holds the lock of starts.
///
/// # Errors
/// One is there, of this process or of its parent.
pub(crate) fn check() -> Result<(), StartError> {
    if IS_FORKED.load(Ordering::Relaxed) {
        return Err(StartError::Forked);
    }
    match OWNER.load(Ordering::Acquire) {
        0 => Ok(()),
        owner if owner == own_process() => Err(StartError::AlreadyStarted),
        // The process was forked without the C library's knowledge.
        _ => Err(StartError::Forked),
    }
}

/// Begins a session of this process, and returns its number. The caller has called [`check`], and holds the lock of
/// starts.
pub(crate) fn begin() -> u32 {
    OWNER.store(own_process(), Ordering::Release);
    RECORDER.epoch.session.fetch_add(1, Ordering::Relaxed);
    number()
}

/// Ends the session, when everything was read.
pub(crate) fn end() {
    OWNER.store(0, Ordering::Release);
}

/// Whether a trace of this process is being recorded or read.
pub(crate) fn is_active() -> bool {
    OWNER.load(Ordering::Acquire) == own_process()
}

/// Abandons the parent's trace in a forked child, which does not own it.
pub(crate) fn forked() {
    if OWNER.load(Ordering::Relaxed) != 0 {
        IS_FORKED.store(true, Ordering::Relaxed);
        RECORDER.epoch.generation.store(0, Ordering::Relaxed);
        listeners::set(Listener::Tracer, false);
        task::note_trace(false);
        thread::forget_lane();
    } else {
        thread::close_lane();
    }
}
