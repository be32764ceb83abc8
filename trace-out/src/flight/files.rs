//! Files of windows, written when something took too long and when the program panics.
//!
//! | lock | guards | held |
//! |---|---|---|
//! | `Inner::slow` | when the last window of a slow operation was begun | for a comparison |
//! | `Inner::panic` | the same for panics, and the window in progress | for a comparison |
//! | `Progress::step` | how far that window is | for an assignment |
//!
//! No lock is held while another one is taken, or while a file is written. A file is written on a thread of ours: the
//! look-up of functions may take seconds, which a request should not wait for.

use std::fmt;
use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_runtime::hook::{self, own_process};
use rtprof_runtime::labels;
use rtprof_runtime::lock::fork_safe::ForkMutex;

use super::directory::Directory;
use crate::{FlightRecorder, TraceError};

/// Where [`WindowFiles`] writes, and how often.
#[derive(Clone, Debug)]
pub struct WindowOptions {
    /// The directory, `.` by default. It is created if it does not exist.
    pub directory: PathBuf,
    /// The number of files that are kept, at least 1; 10 by default. When there are more, the oldest are removed: files
    /// named `flight-TIME-….trace` or `flight-TIME-….perfetto-trace` in this directory, with any reason, and also those
    /// of other processes.
    pub max_files: usize,
    /// The least time between two windows of slow operations, and between two windows of panics; 10 s by default. A
    /// program in which every operation is slow writes no more windows than that.
    pub min_interval: Duration,
    /// How long a thread that panics waits for its window, at most; 10 s by default.
    pub panic_timeout: Duration,
    /// Called after each window that rtprof has written automatically, on a thread of rtprof. The arguments are the
    /// reason, and the file or the error because of which there is no file. By default it writes a line to standard
    /// error. It should not wait for locks that a thread may hold while it panics, because that thread waits for this
    /// function, for a fifth of a second at most.
    pub report: fn(&str, &Result<PathBuf, TraceError>),
}

impl Default for WindowOptions {
    fn default() -> Self {
        Self {
            directory: ".".into(),
            max_files: 10,
            min_interval: Duration::from_secs(10),
            panic_timeout: Duration::from_secs(10),
            report: report_to_stderr,
        }
    }
}

fn report_to_stderr(reason: &str, result: &Result<PathBuf, TraceError>) {
    let mut stderr = io::stderr();
    // There may be no standard error.
    let _ = match result {
        Ok(path) => writeln!(stderr, "rtprof: {reason}: the last seconds are in {}", path.display()),
        Err(error) => writeln!(stderr, "rtprof: {reason}: the last seconds were not written: {error}"),
    };
}

/// Writes windows of a [`FlightRecorder`] to files when something took too long, and when the program panics.
///
/// ```no_run
/// # mod rtprof { pub use rtprof_trace_out as trace; }
/// use std::time::Duration;
/// use rtprof::trace::{FlightRecorder, Options, WindowFiles, WindowOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let flight = FlightRecorder::new(Options::default());
/// flight.start()?;
/// let options = WindowOptions { directory: "/var/tmp/traces".into(), ..WindowOptions::default() };
/// let files = WindowFiles::new(&flight, options)?;
/// files.on_panic();
/// // For each request:
/// {
///     let _limit = files.if_slower("checkout", Duration::from_millis(200));
///     // … the request
/// }
/// # Ok(())
/// # }
/// ```
///
/// A file is named `flight-TIME-PROCESS-REASON.trace`, with the time in ms since 1970 and the extension of
/// [`Options::format`](crate::Options::format), and only its owner can read it. Until the file is complete, its name
/// ends in `.partial`. If the process ends before that, the file keeps this name, and viewers show its complete
/// generations. Clones share the directory and the intervals.
#[derive(Clone)]
pub struct WindowFiles(Arc<Inner>);

struct Inner {
    flight: FlightRecorder,
    directory: Directory,
    options: WindowOptions,
    slow: ForkMutex<Option<Instant>>,
    panic: ForkMutex<Option<Panic>>,
    has_hook: AtomicBool,
}

/// The last panic of which a window was written.
struct Panic {
    process: u32,
    at: Instant,
    progress: Arc<Progress>,
}

/// The writing of a window.
#[derive(Default)]
struct Progress {
    step: Mutex<Step>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    #[default]
    Writing,
    Written,
    Reported,
}

/// Sets the last step when dropped: at the end of the thread that writes, or at once if there is none.
struct ProgressGuard(Arc<Progress>);

/// How long a thread that panics waits for the report. It may hold a lock that the report needs, such as that of
/// standard error.
const REPORT_TIMEOUT: Duration = Duration::from_millis(200);

impl WindowFiles {
    /// Creates the directory if it does not exist.
    ///
    /// # Errors
    /// Those of the file system, if the directory or a file in it cannot be created.
    pub fn new(flight: &FlightRecorder, options: WindowOptions) -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            flight: flight.clone(),
            directory: Directory::new(&options.directory, options.max_files)?,
            options,
            slow: ForkMutex::new(None),
            panic: ForkMutex::new(None),
            has_hook: AtomicBool::new(false),
        })))
    }

    /// Limits the time of an operation: if more than `limit` has passed when the guard is dropped, a window is written.
    /// It has all of the operation that the recorder still keeps, and a message of category `slow` at its end.
    ///
    /// The window is written by another thread. No window is written if the last window of a slow operation is not
    /// older than [`WindowOptions::min_interval`], or if the recorder is not enabled. An operation that never ends is
    /// not noticed; `/debug/pprof/flight` shows what it is doing.
    pub fn if_slower<'a>(&'a self, name: &'a str, limit: Duration) -> LatencyGuard<'a> {
        LatencyGuard { files: self, name, limit, start: Instant::now() }
    }

    /// Writes a window at each panic, from now on.
    ///
    /// The trace has the panic's text as a message of category `panic`; anyone who has the trace can read it. While
    /// another thread writes the window, the previous panic hook is called; then the thread that panics waits until the
    /// window is written, for at most [`WindowOptions::panic_timeout`], because the process may be about to end. No
    /// window is written within [`WindowOptions::min_interval`] of the last panic's window, or if the recorder is not
    /// enabled.
    ///
    /// A panic hook that ends the process should be set after this one and should call this one; otherwise it ends the
    /// process before the window is written. While a thread waits, std lets no other thread change the hook. Calling
    /// this again changes nothing, nor does a call while the thread panics.
    pub fn on_panic(&self) {
        // Hooks cannot be changed by a thread that panics.
        if std::thread::panicking() || self.0.has_hook.swap(true, Ordering::Relaxed) {
            return;
        }
        let files = self.clone();
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let progress = files.panicked(info);
            previous(info);
            if let Some(progress) = progress {
                progress.wait(files.0.options.panic_timeout);
            }
        }));
    }

    /// Writes a window now, on this thread, and returns its file. `reason` becomes a part of the file's name.
    ///
    /// # Errors
    /// [`TraceError::FlightDisabled`] if the recorder is not enabled; [`TraceError::Write`] if the file cannot be
    /// written; then there is no file.
    pub fn write(&self, reason: &str) -> Result<PathBuf, TraceError> {
        if !self.0.flight.enabled() {
            return Err(TraceError::FlightDisabled);
        }
        let format = self.0.flight.format();
        self.0.directory.write((reason, format), |file| self.0.flight.write_to(file).map(drop))
    }

    #[cold]
    fn was_slow(&self, name: &str, limit: Duration, took: Duration) {
        let Inner { flight, options, slow, .. } = &*self.0;
        if !flight.enabled() {
            return;
        }
        let reason = format!("{name} took {took:.1?}, more than {limit:?}");
        rtprof_tracer::log("slow", &reason);
        {
            let Some(mut last) = slow.lock() else { return };
            if last.is_some_and(|last| last.elapsed() < options.min_interval) {
                return;
            }
            *last = Some(Instant::now());
        }
        self.write_in_background(reason, name.to_owned(), None);
    }

    /// Starts writing the window of a panic. Returns its progress, or that of the last one.
    fn panicked(&self, info: &PanicHookInfo<'_>) -> Option<Arc<Progress>> {
        let Inner { flight, options, panic, .. } = &*self.0;
        // A panic in rtprof may hold the locks that writing needs; a panic in `report` would wait for itself.
        if hook::is_own_work() || !flight.enabled() {
            return None;
        }
        let reason = info.to_string().replacen(":\n", ": ", 1);
        rtprof_tracer::log("panic", &reason);
        let process = own_process();
        let progress = Arc::<Progress>::default();
        {
            let mut last = panic.lock()?;
            if let Some(last) = &*last
                && last.process == process
                && last.at.elapsed() < options.min_interval
            {
                return Some(last.progress.clone());
            }
            *last = Some(Panic { process, at: Instant::now(), progress: progress.clone() });
        }
        self.write_in_background(reason, "panic".into(), Some(ProgressGuard(progress.clone())));
        Some(progress)
    }

    fn write_in_background(&self, reason: String, name: String, progress: Option<ProgressGuard>) {
        let report = self.0.options.report;
        let files = self.clone();
        let failed = reason.clone();
        let write = move || {
            let _labels = labels::set_own("window");
            let _untracked = hook::untracked();
            let result = files.write(&name);
            if let Some(ProgressGuard(progress)) = &progress {
                progress.set(Step::Written);
            }
            // Its panic was printed, and concerns only the report.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| report(&reason, &result)));
            drop(progress);
        };
        let thread = std::thread::Builder::new().name("rtprof-window".into());
        let spawned = {
            let _untracked = hook::untracked();
            hidden::hiding(Calls::THREADS, || thread.spawn(write))
        };
        if let Err(error) = spawned {
            // Not the program's report: if it panicked here, during a panic, the process would be aborted.
            report_to_stderr(&failed, &Err(TraceError::NoThread(error)));
        }
    }
}

/// Guard of an operation that should not take longer than a limit. See [`WindowFiles::if_slower`].
#[must_use = "the operation's time ends when the guard is dropped"]
pub struct LatencyGuard<'a> {
    files: &'a WindowFiles,
    name: &'a str,
    limit: Duration,
    start: Instant,
}

impl Drop for LatencyGuard<'_> {
    fn drop(&mut self) {
        let took = self.start.elapsed();
        if took > self.limit {
            self.files.was_slow(self.name, self.limit, took);
        }
    }
}

impl Progress {
    fn set(&self, step: Step) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = step;
        self.changed.notify_all();
    }

    /// Waits until the window is written, and a moment more for the report.
    fn wait(&self, timeout: Duration) {
        // The wait is rtprof's and not the program's.
        let _untracked = hook::untracked();
        for (wanted, timeout) in [(Step::Written, timeout), (Step::Reported, REPORT_TIMEOUT)] {
            let step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_timeout_while(step, timeout, |step| *step < wanted);
            if waited.is_ok_and(|(_, waited)| waited.timed_out()) {
                return;
            }
        }
    }
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.0.set(Step::Reported);
    }
}

impl fmt::Debug for WindowFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowFiles")
            .field("flight", &self.0.flight)
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for LatencyGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, limit, start, .. } = self;
        f.debug_struct("LatencyGuard")
            .field("name", name)
            .field("limit", limit)
            .field("elapsed", &start.elapsed())
            .finish_non_exhaustive()
    }
}
