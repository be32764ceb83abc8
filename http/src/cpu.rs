//! Taking a CPU profile and sending it. Go: `pprof.Profile`.

use http::Response;
use rtprof_pprof_out::{CpuCapture, CpuProfileError, CpuProfileOptions};

use crate::answer::Refusal;
use crate::body::Body;
use crate::capture;
use crate::engine::Link;
use crate::names;
use crate::recording;
use crate::request::{CpuAsked, Form};
use crate::slots::CapturePermits;
use crate::stream;

/// The name that a client saves it under.
const NAME: &str = "profile";

/// The answer to a request for a CPU profile. On the engine's thread. When the client goes away, the profile ends.
pub(crate) async fn answer(
    link: Link,
    slots: CapturePermits,
    asked: CpuAsked,
) -> Result<Response<Body>, Refusal> {
    let place = slots.take().await?;
    let CpuAsked { length, hz, form, thread_labels, startup_frames } = asked;
    let mut options = CpuProfileOptions { thread_labels, startup_frames, ..CpuProfileOptions::default() };
    options.hz = hz.unwrap_or(options.hz);
    let capture = link.computing(move || CpuCapture::start(&options)).await?.map_err(refused)?;
    if let Form::FlameGraph(sample_type) = form {
        let finish = move || capture.finish().map_err(|error| error.to_string());
        return recording::answer(link, place, NAME, length, sample_type, finish);
    }
    tokio::time::sleep(length).await;
    let finished = link.computing(move || capture.finish()).await?;
    let snapshot = finished.map_err(|_| capture::not_collected())?;
    let snapshot = names::found(&link, snapshot, form.patience(true)).await?;
    let body = stream::body(&link, place, None, move |w| capture::write(&snapshot, form, w));
    Ok(capture::with_head(form, NAME, body.await?))
}

/// The answer without its body, for a HEAD: nothing is taken.
pub(crate) fn head(form: Form) -> Response<Body> {
    capture::with_head(form, NAME, Body::left_out())
}

/// Go's words, which clients show.
fn refused(error: CpuProfileError) -> Refusal {
    let reason = match error {
        CpuProfileError::AlreadyStarted => "cpu profiling already in use".to_owned(),
        error => error.to_string(),
    };
    Refusal::internal(format!("Could not enable CPU profiling: {reason}"))
}
