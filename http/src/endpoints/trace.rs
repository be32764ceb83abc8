//! Records a trace and streams it to the client, or the window of the flight recorder. Go: `pprof.Trace`.

use std::io::{self, Read, Write};

use http::{Response, StatusCode};
use rtprof_pprof_out::Symbolization;
use rtprof_trace_out::{FlightRecorder, Format, Options, Reader, TraceError};

use crate::answer::Refusal;
use crate::body::Body;
use crate::request::coding::Coding;
use crate::request::trace::TraceRequest;
use crate::work::response_writer::{Failure, ResponseWriter};

/// Returns the file name under which a client saves a trace.
fn name(format: Format) -> &'static str {
    match format {
        Format::Perfetto => "trace.perfetto-trace",
        _ => "trace",
    }
}

/// The same for a window of the flight recorder.
fn flight_name(format: Format) -> String {
    format!("flight.{}", format.file_extension())
}

/// Records a trace of this length and writes it while it is recorded. The trace ends when the client goes away.
pub(crate) fn answer(
    response: &mut ResponseWriter,
    request: TraceRequest,
    coding: Coding,
) -> Result<(), Failure> {
    response.charge()?;
    let name = name(request.format);
    let mut reader = Reader::start_with(options(request)).map_err(refused)?;
    response.begin_waiting(move |body| coding.attachment(name, body))?;
    reader.stop_after(request.length);
    reader.stop_when(response.is_gone());
    coding.write(response, |w| Ok(copy(&mut reader, w)?))
}

/// Copies a trace that is being recorded, and sends each part of it before it waits for the next one: a compressor would
/// keep what it has until the end.
fn copy(reader: &mut impl Read, w: &mut dyn Write) -> io::Result<()> {
    let mut buffer = vec![0; 32 << 10];
    loop {
        let len = reader.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        w.write_all(&buffer[..len])?;
        w.flush()?;
    }
}

/// Returns the answer to a HEAD, without a body; nothing is recorded.
pub(crate) fn head(format: Format, coding: Coding) -> Response<Body> {
    coding.attachment(name(format), Body::left_out())
}

/// Writes the window of the flight recorder, up to now.
pub(crate) fn flight(
    response: &mut ResponseWriter,
    format: Option<Format>,
    coding: Coding,
) -> Result<(), Failure> {
    let recorder = enabled(format)?;
    let name = flight_name(recorder.format());
    response.begin(move |body| coding.attachment(&name, body))?;
    coding.write(response, |w| match recorder.write_with(w, Symbolization::Background) {
        Ok(_) => Ok(()),
        Err(TraceError::Write(error, _)) => Err(error.into()),
        // It was stopped since.
        Err(error) => Err(io::Error::other(error).into()),
    })
}

/// Returns the answer to a HEAD of the window, without a body.
pub(crate) fn flight_head(format: Option<Format>, coding: Coding) -> Result<Response<Body>, Refusal> {
    let recorder = enabled(format)?;
    Ok(coding.attachment(&flight_name(recorder.format()), Body::left_out()))
}

/// Returns the flight recorder that is enabled, if its windows have this format.
fn enabled(format: Option<Format>) -> Result<FlightRecorder, Refusal> {
    let disabled = "no flight recorder is enabled; the program enables one with \
                    rtprof::trace::FlightRecorder::new(Options::default()).start()";
    let recorder = FlightRecorder::current().ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, disabled))?;
    match format {
        Some(format) if format != recorder.format() => Err(Refusal::bad_request(format!(
            "the flight recorder keeps its window in the format \"{}\", which the program chooses with \
             rtprof::trace::Options::format; it cannot be sent as \"{}\"",
            recorder.format().name(),
            format.name()
        ))),
        _ => Ok(recorder),
    }
}

/// Returns the refusal in Go's words, which clients show.
fn refused(error: TraceError) -> Refusal {
    let reason = match error {
        TraceError::AlreadyStarted => "execution tracer already enabled".to_owned(),
        error => error.to_string(),
    };
    Refusal::internal(format!("Could not enable tracing: {reason}"))
}

/// Returns the options of the recording. A thread that gives way to the program finds the function names, and the reader
/// of the trace waits for them.
fn options(request: TraceRequest) -> Options {
    let TraceRequest { format, startup_frames, cpu_hz, .. } = request;
    let cpu_hz = cpu_hz.unwrap_or(0);
    let symbolization = Symbolization::Background;
    Options { format, symbolization, startup_frames, cpu_hz, ..Options::default() }
}
