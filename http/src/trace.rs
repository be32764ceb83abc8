//! Recording a trace and sending it as it comes. Go: `pprof.Trace`.

use std::io;
use std::time::Duration;

use http::Response;
use rtprof_pprof_out::Symbolization;
use rtprof_trace_out::{Options, Reader, TraceError};

use crate::answer::{self, Refusal};
use crate::body::Body;
use crate::worker::{Failure, Worker};

/// The name that a client saves it under.
const NAME: &str = "trace";

/// Records a trace of this length and writes it as it comes. When the client goes away, the trace ends.
pub(crate) fn answer(worker: &mut Worker, length: Duration, options: Options) -> Result<(), Failure> {
    worker.take_turn()?;
    let mut reader = Reader::start_with(options).map_err(refused)?;
    worker.begin_waiting(|body| answer::attachment(NAME, body))?;
    reader.stop_after(length);
    reader.stop_when(worker.is_gone());
    io::copy(&mut reader, worker)?;
    Ok(())
}

/// The answer without its body, for a HEAD: nothing is recorded.
pub(crate) fn head() -> Response<Body> {
    answer::attachment(NAME, Body::left_out())
}

/// Go's words, which clients show.
fn refused(error: TraceError) -> Refusal {
    let reason = match error {
        TraceError::AlreadyStarted => "execution tracer already enabled".to_owned(),
        error => error.to_string(),
    };
    Refusal::internal(format!("Could not enable tracing: {reason}"))
}

/// How it is recorded, with samples of the processor if there is a rate. The names of its functions are found by a thread that
/// gives way to the program. Who reads a trace waits for them.
pub(crate) fn options(startup_frames: bool, cpu_hz: Option<u32>) -> Options {
    let cpu_hz = cpu_hz.unwrap_or(0);
    Options { symbolization: Symbolization::Background, startup_frames, cpu_hz, ..Options::default() }
}
