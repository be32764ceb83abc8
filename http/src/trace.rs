//! Records a trace and streams it to the client, or the window of the flight recorder. Go: `pprof.Trace`.

use std::io;
use std::time::Duration;

use http::{Response, StatusCode};
use rtprof_pprof_out::Symbolization;
use rtprof_trace_out::{FlightRecorder, Format, Options, Reader, TraceError};

use crate::answer::{self, Refusal};
use crate::body::Body;
use crate::worker::{Failure, Worker};

/// Returns the file name under which a client saves a trace.
fn name(format: Format) -> &'static str {
    match format {
        Format::Perfetto => "trace.perfetto-trace",
        _ => "trace",
    }
}

/// The same for a window of the flight recorder.
const FLIGHT_NAME: &str = "flight.trace";

/// Records a trace of this length and writes it while it is recorded. The trace ends when the client goes away.
pub(crate) fn answer(worker: &mut Worker, length: Duration, options: Options) -> Result<(), Failure> {
    worker.take_turn()?;
    let name = name(options.format);
    let mut reader = Reader::start_with(options).map_err(refused)?;
    worker.begin_waiting(|body| answer::attachment(name, body))?;
    reader.stop_after(length);
    reader.stop_when(worker.is_gone());
    io::copy(&mut reader, worker)?;
    Ok(())
}

/// Returns the answer to a HEAD, without a body; nothing is recorded.
pub(crate) fn head(format: Format) -> Response<Body> {
    answer::attachment(name(format), Body::left_out())
}

/// Writes the window of the flight recorder, up to now.
pub(crate) fn flight(worker: &mut Worker) -> Result<(), Failure> {
    let recorder = enabled()?;
    worker.begin(|body| answer::attachment(FLIGHT_NAME, body))?;
    match recorder.write_with(&mut *worker, Symbolization::Background) {
        Ok(_) => Ok(()),
        Err(TraceError::Write(error, _)) => Err(error.into()),
        // It was stopped since.
        Err(error) => Err(io::Error::other(error).into()),
    }
}

/// Returns the answer to a HEAD of the window, without a body.
pub(crate) fn flight_head() -> Result<Response<Body>, Refusal> {
    enabled().map(|_| answer::attachment(FLIGHT_NAME, Body::left_out()))
}

fn enabled() -> Result<FlightRecorder, Refusal> {
    let disabled = "no flight recorder is enabled; the program enables one with \
                    rtprof::trace::FlightRecorder::new(Options::default()).start()";
    FlightRecorder::current().ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, disabled))
}

/// Returns the refusal in Go's words, which clients show.
fn refused(error: TraceError) -> Refusal {
    let reason = match error {
        TraceError::AlreadyStarted => "execution tracer already enabled".to_owned(),
        error => error.to_string(),
    };
    Refusal::internal(format!("Could not enable tracing: {reason}"))
}

/// Returns the options of the recording in this format; with CPU samples if a rate is given. A thread that gives way to
/// the program finds the function names, and the reader of the trace waits for them.
pub(crate) fn options(format: Format, startup_frames: bool, cpu_hz: Option<u32>) -> Options {
    let cpu_hz = cpu_hz.unwrap_or(0);
    let symbolization = Symbolization::Background;
    Options { format, symbolization, startup_frames, cpu_hz, ..Options::default() }
}
