//! The trace in progress: state shared by its reader and the thread that stops it.
//!
//! Locks: `CURRENT` guards which session is current, and is held only briefly. A session's `progress` guards its state,
//! and `changed` signals changes of it; never held while data is written or recorded.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rtprof_runtime::hook::own_process;
use rtprof_runtime::lock::fork_safe::ForkMutex;

use super::recording::Consumer;
use super::{Options, Stats, TraceError};

static CURRENT: ForkMutex<Option<Arc<Session>>> = ForkMutex::new(None);

pub(super) struct Session {
    process: u32,
    pub(super) options: Options,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    is_stopping: bool,
    /// What receives the records, once there are any.
    consumer: Weak<Consumer>,
    stats: Stats,
    /// The result, once everything was written, or nothing more will be.
    end: Option<Result<(), TraceError>>,
}

impl Session {
    /// Opens a session and makes it the current one.
    pub(super) fn open(options: Options) -> Result<Arc<Self>, TraceError> {
        let mut current = CURRENT.lock().ok_or(TraceError::Forked)?;
        match current.as_ref() {
            Some(session) if session.process != own_process() => return Err(TraceError::Forked),
            Some(_) => return Err(TraceError::AlreadyStarted),
            None => {}
        }
        let process = own_process();
        let session =
            Arc::new(Self { process, options, progress: Mutex::default(), changed: Condvar::new() });
        *current = Some(session.clone());
        Ok(session)
    }

    /// Closes the session: it is no longer current.
    pub(super) fn close(self: &Arc<Self>) {
        if let Some(mut current) = CURRENT.lock()
            && current.as_ref().is_some_and(|current| Arc::ptr_eq(current, self))
        {
            *current = None;
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the session records, for this consumer; ends it at once if the session was stopped before.
    pub(super) fn records(&self, consumer: &Arc<Consumer>) {
        let mut progress = self.progress();
        progress.consumer = Arc::downgrade(consumer);
        let is_stopping = progress.is_stopping;
        drop(progress);
        if is_stopping {
            consumer.stop();
        }
    }

    /// Ends recording of this trace, and of no later one. Nothing in a forked child.
    pub(super) fn stop(&self) {
        if !self.is_here() {
            return;
        }
        let mut progress = self.progress();
        progress.is_stopping = true;
        let consumer = progress.consumer.upgrade();
        drop(progress);
        if let Some(consumer) = consumer {
            consumer.stop();
        }
        self.changed.notify_all();
    }

    /// Whether this process is the one that records. In a forked child another thread may hold `progress` for ever.
    pub(super) fn is_here(&self) -> bool {
        self.process == own_process()
    }

    /// Waits for this time, or until the session is stopped.
    pub(super) fn pause(&self, time: Duration) {
        let progress = self.progress();
        if !progress.is_stopping {
            drop(self.changed.wait_timeout(progress, time));
        }
    }

    /// Updates the statistics. Nothing in a forked child.
    pub(super) fn note(&self, note: impl FnOnce(&mut Stats)) {
        if self.is_here() {
            note(&mut self.progress().stats);
        }
    }

    /// Ends the session: everything was written, or nothing more will be. Nothing in a forked child.
    pub(super) fn end(&self, end: Result<(), TraceError>) {
        if !self.is_here() {
            return;
        }
        let mut progress = self.progress();
        if progress.end.is_none() {
            progress.end = Some(end);
        }
        drop(progress);
        self.changed.notify_all();
    }

    /// Waits for the end of the session.
    fn wait(&self) -> Result<Stats, TraceError> {
        let deadline = Instant::now().checked_add(self.options.drain_timeout);
        let mut progress = self.progress();
        loop {
            let stats = progress.stats;
            match progress.end.take() {
                Some(Ok(())) => return Ok(stats),
                Some(Err(TraceError::Write(error, _))) => {
                    return Err(TraceError::Write(error, Box::new(stats)));
                }
                Some(Err(error)) => return Err(error),
                None => {}
            }
            let left = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(TraceError::WriterStalled(Box::new(stats)));
            }
            progress = match self.changed.wait_timeout(progress, left) {
                Ok((progress, _)) => progress,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

/// Ends the trace in progress, and returns its statistics when its writer has accepted everything. No thread is
/// stopped: threads record until this moment and not after it. Go: `trace.Stop`.
///
/// # Errors
/// - [`TraceError::NotStarted`] if no trace is in progress.
/// - [`TraceError::WriterStalled`] if the writer does not accept everything within [`Options::drain_timeout`].
/// - [`TraceError::Write`] if the writer failed, now or before.
pub fn stop() -> Result<Stats, TraceError> {
    let session = match CURRENT.lock() {
        // In a forked child the parent's session stays untouched.
        Some(mut current) => current.take_if(|session| session.process == own_process()),
        None => None,
    };
    let session = session.ok_or(TraceError::NotStarted)?;
    session.stop();
    session.wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_does_not_wait_for_a_lock_of_its_parent() {
        let session = Session {
            process: own_process() + 1,
            options: Options::default(),
            progress: Mutex::default(),
            changed: Condvar::new(),
        };
        let held = session.progress();
        session.note(|_| panic!("the statistics are the parent's"));
        session.stop();
        session.end(Ok(()));
        assert!(held.end.is_none() && !held.is_stopping);
    }
}
