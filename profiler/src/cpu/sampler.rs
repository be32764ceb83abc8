//! The beginning and the end of a sampling, and the sampler thread, which manages it.
//!
//! ```text
//!   sampler thread: each 10 to 50 ms: /proc/self/task ──► an event for each new thread
//!   thread:    begins, if the profiler sees it ──► an event for itself
//!   thread:    a period of its time is over ──► signal ──► handler ──► Samples
//! ```

mod account;
mod attach;
pub(super) mod cpu_time;
mod event;
mod gaps;
mod looks;
mod noted_name;
mod perf;
mod permit;
mod rest;
pub(super) mod sampling;
mod signal;
mod thread;
mod threads;
mod timer;

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use crate::comments;
use rtprof_runtime::clock::NANOS;
use rtprof_runtime::counters::CountedProfile;
use rtprof_runtime::goroutine;
use rtprof_runtime::goroutine::observer::{self, ThreadObserver};
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::hook::own_process;
use rtprof_runtime::labels::LabelSetId;
use rtprof_runtime::lock::fork_safe::ForkMutex;
use rtprof_runtime::modules;
use rtprof_runtime::process::proc;
use rtprof_runtime::snapshot;
use rtprof_runtime::stack::marker;
use rtprof_runtime::thread::helper_thread;
use rtprof_runtime::thread::kernel_thread::thread_id as kernel_thread_id;

use super::current::Ended;
use super::error::CpuProfileError;
use super::options::{CpuSamples, CpuSource, MAX_HZ, Options, SampledBy};
use super::samples::{CpuCount, CpuKey, Samples};
use super::task_names::TaskName;
use attach::{Attacher, Way};
use perf::PerfEvent;
use permit::{Permit, Ticket};
use rtprof_runtime::hook;
use sampling::{SAMPLING, Sampling};
use signal::Signal;
use threads::Threads;
use timer::Timer;

static OBSERVER: ThreadObserver = ThreadObserver { began: sampling::thread_began, forked };

/// Interval at which the sampler thread reads the number of threads. Each read costs some 60 microseconds in a virtual
/// machine, most of it for waking up.
const LOOK: Duration = Duration::from_millis(50);
/// Interval at which it lists the threads although their number is the same.
const FULL_LOOK: Duration = Duration::from_millis(100);
/// Interval at which it lists the threads when some have begun or ended lately, as others are likely to follow.
const BUSY_LOOK: Duration = Duration::from_millis(10);
/// The number of listings at this interval after the last change.
const BUSY_LOOKS: u32 = 100;
/// Listing takes at most one part in this many of the sampler thread's time.
const SHARE: u32 = 10;
/// How long it waits for handlers at the end.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it waits before that for threads that are behind because their cores are busy.
const HURRY: Duration = Duration::from_millis(50);

/// Resets the sampler in a forked child.
pub(super) fn forked() {
    SAMPLING.forget();
    thread::forked();
    signal::forked();
}

/// The state shared by the sampler thread and the thread that stops it.
struct Shared {
    /// The samples, once the sampler thread has ended.
    end: ForkMutex<Option<CpuSamples>>,
    has_ended: AtomicBool,
}

/// A running sampling. Ended when dropped.
pub(super) struct Running {
    shared: Arc<Shared>,
    process: u32,
    ticket: Ticket,
    sampled_by: SampledBy,
}

struct SamplerThread {
    shared: Arc<Shared>,
    threads: Threads,
    options: Options,
    period: u64,
    started: Instant,
    /// Nanoseconds that the process had used at the start.
    used: u64,
    sampled_by: SampledBy,
    /// Held until the end.
    permit: Option<Permit>,
}

/// Starts a sampling; see [`start`](super::start).
pub(super) fn start(options: Options) -> Result<Running, CpuProfileError> {
    if options.hz == 0 || options.hz > MAX_HZ {
        return Err(CpuProfileError::InvalidRate(options.hz));
    }
    rtprof_runtime::init::open();
    observer::observe_threads(&OBSERVER);
    if !snapshot::thread_signals() {
        return Err(CpuProfileError::SignalsOff);
    }
    let _untracked = hook::untracked();
    modules::refresh();
    let permit = Permit::take(options.for_trace)?;
    let ticket = permit.ticket();
    let period = NANOS / u64::from(options.hz);
    let signal = Signal::take().ok_or(CpuProfileError::NoSignal)?;
    let (way, sampled_by) = way(options.source, signal.number(), period)?;
    let samples = if options.for_trace {
        Samples::not_kept()
    } else {
        Samples::new().ok_or(CpuProfileError::NoMemory)?
    };
    let (used, started) = (cpu_time::of_process().unwrap_or(0), Instant::now());
    let by_thread = options.by_thread;
    let attacher = Attacher::new(way, period, signal.number());
    SAMPLING.begin(Box::new(Sampling { samples, attacher, by_thread }));
    let mut threads = Threads::new(by_thread, signal);
    SAMPLING.with(|sampling| threads.look(&sampling.attacher, &sampling.samples));
    let shared = Arc::new(Shared { end: ForkMutex::new(None), has_ended: AtomicBool::new(false) });
    let (process, shown) = (own_process(), sampled_by.clone());
    let running = Running { shared: shared.clone(), process, ticket, sampled_by: shown };
    let permit = Some(permit);
    let sampler = SamplerThread { shared, threads, options, period, started, used, sampled_by, permit };
    // If no thread is available, the sampler thread is dropped, which ends the sampling.
    helper_thread::spawn(c"rtprof-cpu", Box::new(move || sampler.run()))
        .map_err(CpuProfileError::NoThread)?;
    Ok(running)
}

/// Returns the way in which threads can be signalled under these options.
fn way(wanted: CpuSource, signal: i32, period: u64) -> Result<(Way, SampledBy), CpuProfileError> {
    let own = kernel_thread_id();
    let perf = |user_only| PerfEvent::open(own, period, user_only)?.route(own, signal);
    let refused = match wanted {
        CpuSource::Timers => None,
        CpuSource::Auto | CpuSource::Perf => match perf(false) {
            Ok(()) => return Ok((Way::Perf { user_only: false }, SampledBy::Perf)),
            Err(error) if wanted == CpuSource::Auto => Some(error),
            Err(error) => {
                perf(true).map_err(|_| CpuProfileError::NoPerf(error))?;
                return Ok((Way::Perf { user_only: true }, SampledBy::PerfUserOnly));
            }
        },
    };
    // A trial timer that will not fire.
    match Timer::start(own, signal, 0, u64::MAX >> 4, u64::MAX >> 4) {
        Ok(_) => Ok((Way::Timers, SampledBy::Timers { refused: refused.map(|error| error.to_string()) })),
        Err(timers) => Err(CpuProfileError::NoSource { perf: refused, timers }),
    }
}

/// Returns the means that [`start`] would use.
pub(super) fn probe() -> Option<SampledBy> {
    match PerfEvent::open(kernel_thread_id(), NANOS, false) {
        Ok(_) => Some(SampledBy::Perf),
        Err(error) => Some(SampledBy::Timers { refused: Some(error.to_string()) }),
    }
}

impl Running {
    pub(super) fn sampled_by(&self) -> &SampledBy {
        &self.sampled_by
    }

    /// Returns what was sampled so far; nothing in a forked child.
    pub(super) fn so_far(&self) -> Vec<CpuCount> {
        if self.process != own_process() {
            return Vec::new();
        }
        let _untracked = hook::untracked();
        SAMPLING.with(|sampling| sampling.samples.counts()).unwrap_or_default()
    }

    /// Ends the sampling and returns the samples. Returns `None` in a forked child.
    pub(super) fn stop(&self) -> Option<CpuSamples> {
        if self.process != own_process() {
            return None;
        }
        SAMPLING.with(Sampling::settle_own);
        self.ticket.end();
        let mut tries = 0;
        while !self.has_ended() {
            goroutine::give_way(&mut tries);
        }
        self.shared.end.lock()?.take()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Acquire)
    }
}

impl Drop for Running {
    /// Does not wait: the next `start` does.
    fn drop(&mut self) {
        if self.process == own_process() {
            self.ticket.end();
        }
    }
}

impl SamplerThread {
    fn run(mut self) {
        let _untracked = hook::untracked();
        // This thread does nothing that a trace records, so a trace would draw it as running all the time.
        if let Some(own) = goroutine::current() {
            observer::waits(own, WaitReason::Sleep);
        }
        let (mut threads, mut busy_looks) = (proc::count(), 0_u32);
        // This thread is new, but that does not indicate new threads of the program.
        SAMPLING.with(|sampling| self.threads.look(&sampling.attacher, &sampling.samples));
        let mut not_before = Instant::now();
        let mut full_look = not_before + FULL_LOOK;
        loop {
            let is_busy = busy_looks > 0 || self.threads.has_young();
            let pause = if is_busy { BUSY_LOOK } else { LOOK };
            if self.permit.as_ref().is_none_or(|permit| permit.wait_for_end(pause)) {
                return;
            }
            let now = Instant::now();
            if now < not_before {
                continue;
            }
            let count = proc::count();
            let is_due = now >= full_look;
            if is_due {
                full_look = now + FULL_LOOK;
            }
            if is_due || busy_looks > 0 || count != threads {
                let look = |sampling: &Sampling| self.threads.look(&sampling.attacher, &sampling.samples);
                let has_changed = SAMPLING.with(look).unwrap_or(false);
                busy_looks = if has_changed { BUSY_LOOKS } else { busy_looks.saturating_sub(1) };
                threads = count;
            }
            SAMPLING.with(|sampling| self.threads.look_at_young(&sampling.attacher));
            if is_due {
                // Handlers need to walk through libraries that were loaded since.
                modules::refresh();
                SAMPLING.with(|sampling| self.threads.hurry(&sampling.attacher));
                SAMPLING.with(|sampling| self.threads.look_again(&sampling.attacher, &sampling.samples));
            }
            not_before = now + now.elapsed() * SHARE;
        }
    }

    fn finish(&mut self) -> Option<CpuSamples> {
        let is_given_up = self.threads.has_lost_its_signal();
        SAMPLING.with(|sampling| sampling.attacher.gaps.close());
        let begun = Instant::now();
        let hurry = |sampling: &Sampling| self.threads.hurry(&sampling.attacher);
        while !self.options.for_trace && SAMPLING.with(hurry)? && begun.elapsed() < HURRY {
            std::thread::sleep(HURRY / 25);
        }
        SAMPLING.with(|sampling| self.threads.finish(&sampling.attacher, &sampling.samples))?;
        let duration = self.started.elapsed();
        let used = cpu_time::of_process().unwrap_or(0).saturating_sub(self.used);
        let (begun, mut tries) = (Instant::now(), 0);
        let ended = SAMPLING.end(|| {
            goroutine::give_way(&mut tries);
            begun.elapsed() < PATIENCE
        })?;
        // A thread may have attached itself until `SAMPLING` ended.
        threads::sweep();
        if matches!(ended, Ended::InUse(_)) {
            self.threads.leak_events();
        }
        self.threads.close();
        let sampled: u64 = ended.samples.counts().iter().map(|count| count.samples).sum();
        let tally = self.threads.tally;
        let unseen = unseen(used / self.period, sampled, tally.all());
        if unseen > 0 {
            let key = CpuKey { labels: LabelSetId::NONE, thread: 0, task: TaskName::NONE };
            ended.samples.add(key, &[marker::frame(marker::cpu_time_not_sampled)], unseen);
        }
        let counts = ended.samples.counts();
        let in_place_of_perf = if ended.attacher.prefers_perf() { tally.timers } else { 0 };
        let mut remarks =
            remarks(self.options.hz, &self.sampled_by, in_place_of_perf, tally.refused, is_given_up);
        remarks.extend(comments::of(CountedProfile::Cpu));
        let mut names: Vec<(u32, String)> = self.threads.names.drain().collect();
        names.sort_unstable();
        Some(CpuSamples {
            counts,
            period_nanos: self.period,
            duration,
            sampled_by: self.sampled_by.clone(),
            names,
            remarks,
        })
    }
}

impl Drop for SamplerThread {
    fn drop(&mut self) {
        let end = self.finish();
        // Another sampling can be started as soon as the end of this one is visible.
        self.permit = None;
        if let Some(mut told) = self.shared.end.lock() {
            *told = end;
        }
        self.shared.has_ended.store(true, Ordering::Release);
    }
}

/// Returns the samples of threads that ended before they were found, or before their first sample: the unsampled time
/// of the process, in periods, if it is more than rounding explains for this number of threads.
fn unseen(due: u64, sampled: u64, threads: usize) -> u64 {
    let left = due.saturating_sub(sampled);
    let rounding = 2.0 + 2.0 * (threads as f64).sqrt();
    if left as f64 > rounding { left } else { 0 }
}

/// Returns remarks for the reader on how threads were sampled.
fn remarks(
    hz: u32,
    sampled_by: &SampledBy,
    in_place_of_perf: usize,
    refused: usize,
    is_given_up: bool,
) -> Vec<String> {
    let mut remarks = vec![format!("rtprof: {hz} samples in a second of processor time, by {sampled_by}")];
    if in_place_of_perf > 0 {
        remarks.push(format!(
            "rtprof: {} threads had timers instead: events were more than a quarter of RLIMIT_NOFILE, or refused",
            in_place_of_perf
        ));
    }
    if refused > 0 {
        remarks.push(format!(
            "rtprof: the kernel gave no timer for {refused} threads (RLIMIT_SIGPENDING?); their time is under cpu_time_not_sampled"
        ));
    }
    if is_given_up {
        remarks.push(
            "rtprof: the program has taken every signal that could serve; samples are missing from then on"
                .into(),
        );
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_not_taken_for_threads_that_were_not_seen() {
        assert_eq!(unseen(100, 98, 1), 0);
        assert_eq!(unseen(100, 90, 1), 10);
        assert_eq!(unseen(1000, 980, 100), 0, "each of a hundred threads is rounded");
        assert_eq!(unseen(90, 100, 1), 0);
    }
}
