//! A trace in chunks, for callers that read it instead of having it written.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rtprof_runtime::clock;
use rtprof_tracer::{TableView, drain};

use super::recording::{Consumer, Kind, Limits, QueuedGeneration};
use super::samples::Samples;
#[cfg(any(test, feature = "self-check"))]
use super::self_check::Others;
use super::session::Session;
use crate::encode::{Clock, Encode};
use crate::encoders;
use crate::error::TraceError;
use crate::options::Options;
use crate::stats::{self, Stats};

/// How often the reader looks for work. Threads that record wake no reader.
const LOOK: Duration = Duration::from_millis(10);

/// Starts a trace and reads it in chunks as they come. Go: `runtime.StartTrace`, `ReadTrace`, `StopTrace`.
///
/// The owner must read regularly: unread data is kept, up to [`Options::buffer_memory`]. Dropping the reader ends the
/// trace.
///
/// ```
/// # mod rtprof { pub use rtprof_trace_out as trace; }
/// use std::io::Read;
/// use rtprof::trace;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut reader = trace::Reader::start()?;
/// // … elsewhere, or after a while:
/// reader.stop();
/// let mut bytes = Vec::new();
/// reader.read_to_end(&mut bytes)?;
/// assert!(bytes.starts_with(b"go 1.26 trace\0\0\0"));
/// # Ok(())
/// # }
/// ```
pub struct Reader {
    session: Arc<Session>,
    /// Kept until everything was read, or written: no other trace can begin before.
    consumer: Option<Arc<Consumer>>,
    /// Whether everything was encoded.
    is_over: bool,
    /// Kept while it records, if the options request samples.
    samples: Option<Samples>,
    encoder: Box<dyn Encode + Send + Sync>,
    #[cfg(any(test, feature = "self-check"))]
    others: Others,
    /// Encoded data that is not read yet, from `at` on.
    chunk: Vec<u8>,
    at: usize,
    start: u64,
    /// When recording ends automatically.
    deadline: Option<Instant>,
    is_done: Box<dyn Fn() -> bool + Send + Sync>,
    /// Whether the drop of this reader also closes the session, which otherwise waits for a call of `stop`.
    is_session: bool,
}

impl Reader {
    /// Starts a trace with [`Options::default`].
    ///
    /// # Errors
    /// [`TraceError::AlreadyStarted`] if a trace is in progress; others if the system grants no memory, or is not
    /// supported.
    pub fn start() -> Result<Self, TraceError> {
        Self::start_with(Options::default())
    }

    /// Starts a trace.
    ///
    /// # Errors
    /// The same as of [`Reader::start`], and [`TraceError::CpuSamples`] if there are no samples for
    /// [`Options::cpu_hz`].
    pub fn start_with(options: Options) -> Result<Self, TraceError> {
        let session = Session::open(options)?;
        let samples = Samples::start(session.options.cpu_hz).map_err(|error| {
            session.close();
            TraceError::CpuSamples(error)
        })?;
        // Measured before the first event, because it may take a few milliseconds.
        let ticks_per_second = clock::ticks_per_second();
        let limits = Limits { memory: session.options.buffer_memory, full: usize::MAX, backlog: usize::MAX };
        let consumer = Consumer::start(Kind::Trace, limits).inspect_err(|_| session.close())?;
        let start = consumer.begin();
        let consumer = Arc::new(consumer);
        session.records(&consumer);
        let procs = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let Options { format, .. } = session.options;
        let (clock, view) = (Clock { ticks_per_second, start }, session.options.view());
        let mut encoder = encoders::encoder(format, clock, procs, view);
        #[cfg(any(test, feature = "self-check"))]
        let others = Others::begin(format, |other| encoders::encoder(other, clock, procs, view));
        let mut chunk = Vec::new();
        encoder.begin(&mut chunk);
        Ok(Self {
            session,
            consumer: Some(consumer),
            is_over: false,
            samples,
            encoder,
            #[cfg(any(test, feature = "self-check"))]
            others,
            chunk,
            at: 0,
            start,
            deadline: None,
            is_done: Box::new(|| false),
            is_session: true,
        })
    }

    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Ends recording. The recorded data remains to be read.
    pub fn stop(&self) {
        self.session.stop();
    }

    /// Ends recording after this time from now, or when it is stopped, if that is earlier.
    pub fn stop_after(&mut self, time: Duration) {
        self.deadline = Instant::now().checked_add(time);
    }

    /// Ends recording when `is_done` returns true. A waiting read calls it every few milliseconds. While the program is
    /// idle a read returns no bytes, so a caller that passes the bytes on cannot rely on a failed write to notice that
    /// the trace has lost its reader.
    pub fn stop_when(&mut self, is_done: impl Fn() -> bool + Send + Sync + 'static) {
        self.is_done = Box::new(is_done);
    }

    /// Returns the present statistics.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.session.note(|noted| stats = *noted);
        stats
    }

    /// Returns the next bytes; `None` when the trace was stopped and everything was read. Waits for bytes, up to a
    /// second while little is recorded.
    pub fn read_chunk(&mut self) -> Option<Vec<u8>> {
        self.fill();
        let chunk = match self.at {
            0 => std::mem::take(&mut self.chunk),
            at => self.chunk.split_off(at),
        };
        (self.chunk, self.at) = (Vec::new(), 0);
        self.session.note(|stats| stats.bytes += chunk.len() as u64);
        self.look_for_the_end();
        (!chunk.is_empty()).then_some(chunk)
    }

    /// Like [`Reader::read_chunk`], for a caller that calls [`Reader::written`] after it has written the chunk.
    pub(super) fn chunk_to_write(&mut self) -> Option<&[u8]> {
        self.fill();
        Some(&self.chunk[self.at..]).filter(|chunk| !chunk.is_empty())
    }

    /// Marks the chunk as written.
    pub(super) fn written(&mut self) {
        let len = self.chunk.len() - self.at;
        self.at = self.chunk.len();
        self.session.note(|stats| stats.bytes += len as u64);
    }

    /// Ends the trace with this result, which the present or a later call of `stop` returns.
    pub(super) fn finish(mut self, end: Result<(), TraceError>) {
        self.consumer = None;
        self.is_session = false;
        self.session.end(end);
    }

    /// Lets `stop` return when everything was read.
    fn look_for_the_end(&mut self) {
        if (self.is_over || self.consumer.is_none()) && self.at == self.chunk.len() {
            self.consumer = None;
            self.session.end(Ok(()));
        }
    }

    /// Provides bytes to read, unless everything was read.
    fn fill(&mut self) {
        let workspace = rtprof_runtime::hook::workspace();
        if !self.session.is_here() {
            // A forked child: the trace belongs to the parent.
            self.consumer = None;
            return;
        }
        while self.at == self.chunk.len() {
            let Some(consumer) = self.consumer.clone().filter(|_| !self.is_over) else { return };
            let left = self.deadline.map_or(LOOK, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() || workspace.lifted(|| (self.is_done)()) {
                self.session.stop();
            }
            let Some(part) = consumer.next() else {
                self.session.pause(LOOK.min(left));
                continue;
            };
            (self.chunk, self.at) = (Vec::new(), 0);
            let (end, is_last, counts) = (part.end, part.is_last, consumer.counts(&part));
            self.encode(part, consumer.tables());
            if is_last {
                self.is_over = true;
                self.samples = None;
                self.encoder.end(end, &**consumer.tables(), &mut self.chunk);
                #[cfg(any(test, feature = "self-check"))]
                self.others.end(end, &**consumer.tables());
            } else if let Some(samples) = &mut self.samples {
                samples.go_on();
            }
            self.note(end, counts);
        }
    }

    fn encode(&mut self, part: QueuedGeneration, tables: &TableView) {
        let Some(generation) = part.generation() else { return };
        self.encoder.generation(&generation, tables, &mut self.chunk);
        #[cfg(any(test, feature = "self-check"))]
        self.others.generation(&generation, tables);
        drop(generation);
        // Its buffers can be used again while names are looked up.
        drop(part);
        self.encoder.end_generation(tables, &mut self.chunk);
        #[cfg(any(test, feature = "self-check"))]
        self.others.end_generation(tables);
    }

    fn note(&self, end: u64, recorded: drain::Counts) {
        let encoded = self.encoder.counts();
        self.session.note(|stats| {
            stats.count(recorded);
            stats.count_encoded(encoded);
            stats.duration = stats::time_of(clock::since(self.start, end));
        });
    }
}

impl io::Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        self.fill();
        let chunk = &self.chunk[self.at..];
        let len = chunk.len().min(into.len());
        into[..len].copy_from_slice(&chunk[..len]);
        self.at += len;
        self.session.note(|stats| stats.bytes += len as u64);
        self.look_for_the_end();
        Ok(len)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The consumer is dropped first, so that another trace can be started.
        self.consumer = None;
        self.session.end(Ok(()));
        if self.is_session {
            self.session.close();
        }
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
