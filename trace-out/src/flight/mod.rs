//! The flight recorder: the last seconds of a program that is traced all the time.
//!
//! Locks: `CURRENT` guards which flight recorder is enabled. A flight recorder's `state` guards its encoder and its
//! ring; under it, the locks of [`super::recording`] are taken. No lock is held while a window is written.

mod directory;
mod files;
mod format;
mod ring;
mod window;

use std::fmt;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rtprof_runtime::clock;
use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_runtime::hook::{self, own_process};
use rtprof_runtime::labels;
use rtprof_runtime::lock::fork_safe::ForkMutex;
use rtprof_symbols::symbolizer::Symbolization;
use rtprof_symbols::view::View;
use rtprof_tracer::drain::Counts;

use super::recording::{Consumer, Kind, Limits, QueuedGeneration};
use super::samples::Samples;
use crate::encode::Clock;
use crate::error::TraceError;
use crate::options::{Format, Options};
use crate::stats::Stats;

pub use files::{LatencyGuard, WindowFiles, WindowOptions};

use format::Encoder;
use ring::Ring;
use window::Window;

/// How often the recorder looks for work while the program records much, and while it records little.
const LOOK: Duration = Duration::from_millis(10);
const IDLE_LOOK: Duration = Duration::from_millis(50);
/// How long it leaves the lock to others after each generation, when another one is ready.
const BREATH: Duration = Duration::from_millis(1);

/// The parts of [`Options::max_bytes`] that one generation takes: the fewer, the less is lost with the oldest one.
const GENERATIONS: usize = 8;
/// The fewest bytes of records that end a generation: each generation states every goroutine.
const LEAST: usize = 256 << 10;

static CURRENT: ForkMutex<Option<FlightRecorder>> = ForkMutex::new(None);

/// Keeps the last seconds of an execution trace, to be written when something has gone wrong. Go:
/// `trace.FlightRecorder`.
///
/// It records all the time, and keeps whole generations of the trace: the newest one always, and older ones until they
/// take more than [`Options::max_bytes`] or reach back further than [`Options::min_age`]; the one that crosses a limit
/// is still kept. A generation lasts about a second at most. Names of functions are looked up when a window is written;
/// only the names of functions at which async tasks await are looked up earlier, to determine what the tasks wait for.
///
/// Unlike in Go, several threads may write windows at once. A trace may be taken at the same time, with
/// [`start`](super::start). At most one flight recorder is enabled at a time.
///
/// ```
/// # mod rtprof { pub use rtprof_trace_out as trace; }
/// use rtprof::trace::{FlightRecorder, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let flight = FlightRecorder::new(Options::default());
/// flight.start()?;
/// // … when something has gone wrong:
/// let mut window = Vec::new();
/// flight.write_to(&mut window)?;
/// assert!(window.starts_with(b"go 1.26 trace\0\0\0"));
/// flight.stop();
/// # Ok(())
/// # }
/// ```
///
/// Clones are the same flight recorder. Dropping them all does not stop it: [`current`](Self::current) returns it
/// anywhere in the program.
///
/// When the program has recorded more than 49,152 distinct stacks or names the window begins anew, because there is
/// room for 65,536. A trace that is being taken at that time delays this until the trace ends.
#[derive(Clone)]
pub struct FlightRecorder(Arc<Inner>);

struct Inner {
    options: Options,
    /// What it records while it is enabled.
    flight: ForkMutex<Option<Arc<Flight>>>,
}

/// A flight recorder from its start to its stop.
struct Flight {
    process: u32,
    options: Options,
    /// `None` once it was stopped.
    state: Mutex<Option<State>>,
    stopped: Condvar,
}

struct State {
    /// `None` if recording could not begin anew.
    live: Option<Live>,
    samples: Option<Samples>,
    /// The counts of what has recorded before it began anew.
    past: Counts,
    past_encoded: Stats,
    started: Instant,
}

/// What records.
struct Live {
    consumer: Consumer,
    encoder: Encoder,
    ring: Ring,
    begun: Instant,
    /// Whether the tables of stacks and names had room when it began.
    had_room: bool,
    counts: Counts,
}

impl FlightRecorder {
    /// Returns a flight recorder that is not enabled. Go: `trace.NewFlightRecorder`.
    pub fn new(options: Options) -> Self {
        Self(Arc::new(Inner { options, flight: ForkMutex::new(None) }))
    }

    /// Returns the flight recorder that is enabled, if any.
    pub fn current() -> Option<Self> {
        CURRENT.lock()?.as_ref().filter(|current| current.enabled()).cloned()
    }

    /// Enables the flight recorder. Go: `FlightRecorder.Start`.
    ///
    /// # Errors
    /// [`TraceError::FlightEnabled`] if this or another one is enabled; [`TraceError::FlightFormat`] if
    /// [`Options::format`] has no windows, which is the case of [`Format::V1`]; [`TraceError::WriterBusy`] if a trace
    /// was stopped whose data is still being read; others as of [`start`](super::start).
    pub fn start(&self) -> Result<(), TraceError> {
        let _untracked = hook::untracked();
        let options = &self.0.options;
        format::version(options.format)?;
        let mut current = CURRENT.lock().ok_or(TraceError::Forked)?;
        if current.as_ref().is_some_and(Self::enabled) {
            return Err(TraceError::FlightEnabled);
        }
        let samples = Samples::start(options.cpu_hz).map_err(TraceError::CpuSamples)?;
        let live = Some(Live::start(options)?);
        let state = State {
            live,
            samples,
            past: Counts::default(),
            past_encoded: Stats::default(),
            started: Instant::now(),
        };
        let flight = Arc::new(Flight {
            process: own_process(),
            options: options.clone(),
            state: Mutex::new(Some(state)),
            stopped: Condvar::new(),
        });
        let thread = std::thread::Builder::new().name("rtprof-flight".into());
        let runs = flight.clone();
        let spawned = hidden::hiding(Calls::THREADS, || thread.spawn(move || runs.run()));
        spawned.map_err(|error| {
            flight.stop();
            TraceError::NoThread(error)
        })?;
        *self.0.flight.lock().ok_or(TraceError::Forked)? = Some(flight);
        *current = Some(self.clone());
        Ok(())
    }

    /// Ends recording, and forgets the window. Windows that are being written are completed. Does nothing if the
    /// recorder is not enabled. Go: `FlightRecorder.Stop`.
    pub fn stop(&self) {
        // Held until the recording has ended, so that a start that comes at the same time succeeds.
        let _current = CURRENT.lock();
        let flight = self.0.flight.lock().and_then(|mut flight| flight.take_if(|flight| flight.is_here()));
        if let Some(flight) = flight {
            flight.stop();
        }
    }

    /// Whether it records: [`start`](Self::start) has succeeded, and [`stop`](Self::stop) was not called since. Go:
    /// `FlightRecorder.Enabled`.
    pub fn enabled(&self) -> bool {
        self.flight().is_some()
    }

    /// Writes the window, up to now, and returns its length in bytes. Any thread may call it, also several at once.
    /// Recording goes on while it writes. Go: `FlightRecorder.WriteTo`.
    ///
    /// The time that it takes has three parts: the writes to `w`; the look-up of functions' names, which reads the
    /// program's debug information the first time; and the encoding of what was recorded last.
    ///
    /// # Errors
    /// [`TraceError::FlightDisabled`] if the recorder is not enabled; [`TraceError::Write`] if `w` fails;
    /// [`TraceError::WriterBusy`] if the window is beginning anew at this moment.
    pub fn write_to(&self, w: impl Write) -> Result<u64, TraceError> {
        self.write_with(w, self.0.options.symbolization)
    }

    /// Like [`write_to`](Self::write_to), with another [`Options::symbolization`].
    ///
    /// # Errors
    /// As of [`write_to`](Self::write_to).
    pub fn write_with(&self, w: impl Write, symbolization: Symbolization) -> Result<u64, TraceError> {
        self.window(symbolization)?.write(w)
    }

    /// Returns the counts of what was recorded and lost since [`start`](Self::start). `bytes` is the memory of the
    /// window now, and `unnamed_addresses` is not known. All zero if the recorder is not enabled.
    pub fn stats(&self) -> Stats {
        let _untracked = hook::untracked();
        let Some(flight) = self.flight() else { return Stats::default() };
        let state = flight.state();
        state.as_ref().map_or_else(Stats::default, State::stats)
    }

    /// Ends the present generation, and returns all that are kept.
    fn window(&self, symbolization: Symbolization) -> Result<Window, TraceError> {
        let _untracked = hook::untracked();
        let flight = self.flight().ok_or(TraceError::FlightDisabled)?;
        let mut state = flight.state();
        let state = state.as_mut().ok_or(TraceError::FlightDisabled)?;
        let live = state.live.as_mut().ok_or(TraceError::WriterBusy)?;
        live.consumer.cut();
        live.catch_up();
        Ok(Window {
            format: flight.options.format,
            parts: live.ring.parts(),
            tables: live.consumer.tables().clone(),
            view: View { symbolization, ..flight.options.view() },
        })
    }

    /// Returns the format of its windows, [`Options::format`].
    pub fn format(&self) -> Format {
        self.0.options.format
    }

    fn flight(&self) -> Option<Arc<Flight>> {
        self.0.flight.lock()?.as_ref().filter(|flight| flight.is_here()).cloned()
    }
}

impl Flight {
    /// Whether this process is the one that records. In a forked child another thread may hold `state` for ever.
    fn is_here(&self) -> bool {
        self.process == own_process()
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        let _untracked = hook::untracked();
        let state = self.state().take();
        drop(state);
        self.stopped.notify_all();
    }

    /// Encodes what is recorded, until the recorder is stopped.
    fn run(&self) {
        let _labels = labels::set_own("flight");
        let _untracked = hook::untracked();
        let mut guard = self.state();
        while let Some(state) = guard.as_mut() {
            let pause = state.go_on(&self.options);
            guard = match self.stopped.wait_timeout(guard, pause) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

impl State {
    /// Encodes what is recorded. Returns when to look again.
    fn go_on(&mut self, options: &Options) -> Duration {
        let Some(live) = &mut self.live else {
            self.live = Live::start(options).ok();
            return IDLE_LOOK;
        };
        let is_busy = live.go_on() || live.consumer.tables().is_nearly_full();
        if let Some(samples) = &mut self.samples {
            samples.go_on();
        }
        if live.must_begin_anew(options) {
            self.past = self.past.and(&live.counts);
            self.past_encoded = live.encoded(&self.past_encoded);
            // The tables are emptied between the two.
            self.live = None;
            self.live = Live::start(options).ok();
            return LOOK;
        }
        match (live.consumer.ready(), is_busy) {
            (1.., _) => BREATH,
            (0, true) => LOOK,
            (0, false) => IDLE_LOOK,
        }
    }

    fn stats(&self) -> Stats {
        let live = self.live.as_ref();
        let mut stats = Stats {
            bytes: live.map_or(0, |live| live.ring.memory() as u64),
            duration: self.started.elapsed(),
            ..live.map_or(self.past_encoded, |live| live.encoded(&self.past_encoded))
        };
        stats.count(live.map_or(self.past, |live| self.past.and(&live.counts)));
        stats
    }
}

impl Live {
    fn start(options: &Options) -> Result<Self, TraceError> {
        // Measured before the first event, because it may take a few milliseconds.
        let ticks_per_second = clock::ticks_per_second();
        let full = (options.max_bytes / GENERATIONS / format::growth(options.format)).max(LEAST);
        // Records for more than a window would be encoded in vain.
        let limits = Limits { memory: options.buffer_memory, full, backlog: options.max_bytes.max(2 * full) };
        let consumer = Consumer::start(Kind::Flight, limits)?;
        let clock = Clock { ticks_per_second, start: consumer.begin() };
        let procs = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Ok(Self {
            encoder: Encoder::new(options.format, clock, procs, options.view())?,
            ring: Ring::new(options.max_bytes, options.min_age),
            had_room: !consumer.tables().is_nearly_full(),
            consumer,
            begun: Instant::now(),
            counts: Counts::default(),
        })
    }

    /// Encodes the generations that are complete now. Those that are completed during this call come the next time: a
    /// program that records faster than this encodes would otherwise keep it here for ever.
    fn catch_up(&mut self) {
        for _ in 0..self.consumer.ready() {
            let Some(part) = self.consumer.next() else { return };
            self.encode(part);
        }
    }

    /// Encodes one generation, if one is complete. Returns whether it was ended by its size.
    fn go_on(&mut self) -> bool {
        // Also while others are ready: otherwise this one would grow while those are encoded, and with it the window.
        self.consumer.cut_if_due();
        self.consumer.next().is_some_and(|part| self.encode(part))
    }

    fn encode(&mut self, part: QueuedGeneration) -> bool {
        let before = self.counts.bytes;
        self.counts = self.consumer.counts(&part);
        let Some(generation) = part.generation() else { return false };
        let begin = generation.begin;
        let encoded = self.encoder.part(&generation, &**self.consumer.tables());
        drop(generation);
        drop(part);
        self.ring.push(begin, encoded);
        self.counts.bytes - before > LEAST as u64 / 2
    }

    /// Returns the encoder's counts, and those of earlier ones.
    fn encoded(&self, past: &Stats) -> Stats {
        let mut stats = Stats::default();
        stats.count_encoded(self.encoder.counts());
        Stats {
            lifted_events: stats.lifted_events + past.lifted_events,
            largest_lift: stats.largest_lift.max(past.largest_lift),
            omitted_events: stats.omitted_events + past.omitted_events,
            ..Stats::default()
        }
    }

    /// Whether the tables are nearly full, and can be emptied.
    fn must_begin_anew(&self, options: &Options) -> bool {
        let tables = self.consumer.tables();
        // Else a trace or a window uses them; the drain has one, and the consumer.
        let is_alone = Arc::strong_count(tables) == 2;
        // If they could not be emptied the last time, a window without some stacks is better than none.
        let may_help = self.had_room || self.begun.elapsed() > options.min_age.saturating_mul(2);
        tables.is_nearly_full() && is_alone && may_help
    }
}

impl fmt::Debug for FlightRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { min_age, max_bytes, .. } = self.0.options;
        let enabled = self.enabled();
        f.debug_struct("FlightRecorder")
            .field("min_age", &min_age)
            .field("max_bytes", &max_bytes)
            .field("enabled", &enabled)
            .finish_non_exhaustive()
    }
}
