//! CPU profiles: written to a writer, between a start and a stop, or captured as a snapshot.
//!
//! Locks: `CURRENT` guards the profile in progress, and is held only briefly.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::time::{Duration, SystemTime};

use rtprof_profiler::cpu::{self, CpuProfileError, CpuSource, SampledBy, Sampler};
use rtprof_runtime::hook;
use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_runtime::hook::own_process;
use rtprof_runtime::labels;
use rtprof_runtime::lock::fork_safe::ForkMutex;

use crate::snapshot::Snapshot;
use rtprof_symbols::symbolizer::{NameSearch, Symbolization};

/// Options of a CPU profile. [`CpuProfileOptions::default`] suits most programs.
#[derive(Clone, Debug)]
pub struct CpuProfileOptions {
    /// Samples per second of a thread's processor time, from 1 to 10,000; 100 by default, as in Go. Higher rates are
    /// still exact where the kernel permits perf_event_open. Timers expire only 100 to 1000 times a second; at a higher
    /// rate each of their samples stands for several.
    pub hz: u32,
    /// The source of the interrupts. By default ([`CpuSource::Auto`]) perf_event_open where it also counts the time in
    /// the kernel, else timers.
    pub source: CpuSource,
    /// Whether samples carry the labels `thread id` and `thread name`; not by default, because each thread then has its
    /// own stacks.
    pub thread_labels: bool,
    /// Whether and how names of functions are resolved; [`Symbolization::Full`] by default.
    pub symbolization: Symbolization,
    /// Whether stacks include the frames of std between the beginning of a thread and the program's first function; not
    /// by default.
    pub startup_frames: bool,
    /// How long [`stop_cpu_profile`] waits for the writer to accept everything; 10 s by default.
    pub drain_timeout: Duration,
}

impl Default for CpuProfileOptions {
    fn default() -> Self {
        Self {
            hz: 100,
            source: CpuSource::Auto,
            thread_labels: false,
            symbolization: Symbolization::Full,
            startup_frames: false,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// Facts about a finished CPU profile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuProfileStats {
    /// Samples, each of one period of processor time.
    pub samples: u64,
    /// The time during which threads were sampled.
    pub duration: Duration,
    /// The source of the interrupts.
    pub sampled_by: SampledBy,
}

/// A CPU profile in progress, for callers that want a [`Snapshot`] of it instead of a written profile. Dropping it ends
/// the profile.
///
/// ```
/// # use rtprof_pprof_out as pprof;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let capture = pprof::CpuCapture::start(&pprof::CpuProfileOptions { hz: 500, ..Default::default() })?;
/// // … the program's work
/// let profile = capture.finish()?;
/// profile.write_collapsed(std::io::sink(), 1, pprof::Symbolization::Full)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CpuCapture {
    sampler: Sampler,
    start: SystemTime,
    startup_frames: bool,
}

impl CpuCapture {
    /// Starts to sample all threads of the process. The options `symbolization` and `drain_timeout` are ignored.
    ///
    /// # Errors
    /// The same as of [`start_cpu_profile_with`].
    pub fn start(options: &CpuProfileOptions) -> Result<Self, CpuProfileError> {
        let start = SystemTime::now();
        let sampler = cpu::start(cpu::Options {
            hz: options.hz,
            source: options.source,
            by_thread: options.thread_labels,
            for_trace: false,
        })?;
        Ok(Self { sampler, start, startup_frames: options.startup_frames })
    }

    /// Returns the source of the interrupts.
    pub fn sampled_by(&self) -> &SampledBy {
        self.sampler.sampled_by()
    }

    /// Starts a search for the names of the functions that were sampled so far, as [`Snapshot::find_names`] does, while
    /// the capture goes on. Most functions of a profile have their first sample early, so that few names are left to be
    /// found when it ends.
    pub fn find_names(&self, at_end: impl FnOnce() + Send + 'static) -> NameSearch {
        let snapshot = {
            let _workspace = hook::workspace();
            crate::cpu::unfinished(self.sampler.so_far())
        };
        snapshot.find_names(at_end)
    }

    /// Ends the capture and returns its samples. This takes milliseconds, somewhat longer where many threads keep the
    /// cores busy, and a second if a debugger has stopped a thread in the handler.
    ///
    /// # Errors
    /// [`CpuProfileError::Forked`] in a forked child, because the parent samples, not the child.
    pub fn finish(self) -> Result<Snapshot, CpuProfileError> {
        self.finish_with_stats().map(|(snapshot, _)| snapshot)
    }

    fn finish_with_stats(self) -> Result<(Snapshot, CpuProfileStats), CpuProfileError> {
        let _workspace = hook::workspace();
        let samples = self.sampler.stop().ok_or(CpuProfileError::Forked)?;
        let stats = CpuProfileStats {
            samples: samples.counts.iter().map(|count| count.samples).sum(),
            duration: samples.duration,
            sampled_by: samples.sampled_by.clone(),
        };
        let snapshot = crate::cpu::of(samples, self.start);
        Ok((if self.startup_frames { snapshot.with_startup_frames() } else { snapshot }, stats))
    }
}

/// A CPU profile in progress that will be written to a writer.
struct Session {
    process: u32,
    capture: CpuCapture,
    options: CpuProfileOptions,
    writer: Box<dyn Write + Send>,
}

#[derive(Default)]
struct Current {
    session: Option<Session>,
    /// The process that is about to start a profile.
    starting: Option<u32>,
    /// Alive as long as a writer that has not returned in time.
    stalled: Weak<()>,
}

static CURRENT: ForkMutex<Option<Current>> = ForkMutex::new(None);

/// Starts a CPU profile of all threads, including those that begin later. It is written to `w` as profile.proto when it
/// is stopped. Go: `pprof.StartCPUProfile`.
///
/// Each thread is interrupted by a signal each time it has used 10 ms of processor time. System calls continue
/// afterwards, except for some that return `EINTR` (docs/cpu.md). Only one CPU profile can run at a time, including one
/// that `/debug/pprof/profile` takes.
///
/// # Errors
/// [`CpuProfileError::AlreadyStarted`] if one is running; [`CpuProfileError::WriterBusy`] if the writer of the previous
/// profile has not returned yet; [`CpuProfileError::Forked`] in the child of a process that was about to start or end
/// one; others if the system provides neither perf events nor timers, no signal or no memory, or is not supported. In
/// each case this call starts no profile, and drops `w`.
pub fn start_cpu_profile(w: impl Write + Send + 'static) -> Result<(), CpuProfileError> {
    start_cpu_profile_with(w, CpuProfileOptions::default())
}

/// Like [`start_cpu_profile`], with options.
///
/// # Errors
/// The same, and [`CpuProfileError::InvalidRate`] for an `hz` that is not from 1 to 10,000.
pub fn start_cpu_profile_with(
    w: impl Write + Send + 'static,
    options: CpuProfileOptions,
) -> Result<(), CpuProfileError> {
    let own = own_process();
    {
        let mut current = CURRENT.lock().ok_or(CpuProfileError::Forked)?;
        let current = current.get_or_insert_default();
        match current.session.take_if(|session| session.process != own) {
            // The session belongs to the parent process: this process must not write the parent's data.
            Some(parents) => std::mem::forget(parents),
            None if current.session.is_some() || current.starting == Some(own) => {
                return Err(CpuProfileError::AlreadyStarted);
            }
            None if current.stalled.strong_count() > 0 => return Err(CpuProfileError::WriterBusy),
            None => {}
        }
        current.starting = Some(own);
    }
    let started = CpuCapture::start(&options);
    let mut current = CURRENT.lock().ok_or(CpuProfileError::Forked)?;
    let current = current.get_or_insert_default();
    current.starting = None;
    current.session = Some(Session { process: own, capture: started?, options, writer: Box::new(w) });
    Ok(())
}

/// Ends the running CPU profile, and returns when its writer has accepted all of it. Go: `pprof.StopCPUProfile`, which
/// does nothing if no profile is running.
///
/// # Errors
/// - [`CpuProfileError::NotStarted`] if no profile is running that [`start_cpu_profile`] has started.
/// - [`CpuProfileError::Write`] if the writer fails; what it has accepted is not a complete profile.
/// - [`CpuProfileError::WriterStalled`] if it does not accept everything within [`CpuProfileOptions::drain_timeout`].
pub fn stop_cpu_profile() -> Result<CpuProfileStats, CpuProfileError> {
    let session = match CURRENT.lock() {
        // In a forked child the parent's session stays untouched.
        Some(mut current) => current
            .as_mut()
            .and_then(|current| current.session.take_if(|session| session.process == own_process())),
        None => None,
    };
    let Session { capture, options, writer, .. } = session.ok_or(CpuProfileError::NotStarted)?;
    let (snapshot, stats) = capture.finish_with_stats()?;
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    snapshot.write_proto(&mut bytes, options.symbolization).map_err(CpuProfileError::Write)?;
    match written(bytes, writer, options.drain_timeout) {
        Ok(()) => Ok(stats),
        Err(error) => Err(error),
    }
}

type Job = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// Writes `bytes` on a separate thread, which is left behind if the writer stalls.
fn written(
    bytes: Vec<u8>,
    mut writer: Box<dyn Write + Send>,
    patience: Duration,
) -> Result<(), CpuProfileError> {
    let alive = Arc::new(());
    let held = alive.clone();
    let job: Job = Box::new(move || {
        let _held = held;
        let write = AssertUnwindSafe(|| writer.write_all(&bytes).and_then(|()| writer.flush()));
        let end = catch_unwind(write).unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        // The writer's drop, which may run any code, is part of the job.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(writer)));
        end
    });
    // If no thread can be started, the job is still here and runs on this thread.
    let job = Arc::new(Mutex::new(Some(job)));
    let take = |job: &Mutex<Option<Job>>| job.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (done, waiting) = mpsc::channel();
    let theirs = job.clone();
    let thread = std::thread::Builder::new().name("rtprof-profile".into());
    let run = move || {
        let _labels = labels::set_own("profile");
        let job = theirs.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(job) = job {
            // Fails if the receiver no longer waits.
            let _ = done.send(job());
        }
    };
    let end = match hidden::hiding(Calls::THREADS, || thread.spawn(run)) {
        Ok(_) => waiting.recv_timeout(patience).map_err(drop),
        Err(_) => take(&job).map_or(Err(()), |job| Ok(job())),
    };
    match end {
        Ok(end) => end.map_err(CpuProfileError::Write),
        Err(()) => {
            if let Some(mut current) = CURRENT.lock() {
                current.get_or_insert_default().stalled = Arc::downgrade(&alive);
            }
            Err(CpuProfileError::WriterStalled)
        }
    }
}
