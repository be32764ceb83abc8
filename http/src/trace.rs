//! Recording a trace and sending it as it comes. Go: `pprof.Trace`.

use std::io;
use std::time::Duration;

use http::Response;
use rtprof_pprof_out::Symbolization;
use rtprof_trace_out::{Options, Reader, TraceError};

use crate::answer::{self, Refusal};
use crate::body::Body;
use crate::engine::Link;
use crate::slots::CapturePermits;
use crate::stream::{self, ChannelWriter};

/// The name that a client saves it under.
const NAME: &str = "trace";

/// The answer to a request for a trace of this length. On the engine's thread. When the client goes away, the trace ends.
pub(crate) async fn answer(
    link: Link,
    slots: CapturePermits,
    length: Duration,
    options: Options,
) -> Result<Response<Body>, Refusal> {
    let place = slots.take().await?;
    let reader = link.computing(move || Reader::start_with(options)).await?.map_err(refused)?;
    let body = stream::body_at_once(&link, place, move |writer| write(reader, length, writer))?;
    Ok(answer::attachment(NAME, body))
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

/// By a writer.
fn write(mut reader: Reader, length: Duration, writer: &mut ChannelWriter<'_>) -> io::Result<()> {
    reader.stop_after(length);
    reader.stop_when(writer.is_gone());
    io::copy(&mut reader, writer)?;
    Ok(())
}
