//! Takes a CPU profile and writes it. Go: `pprof.Profile`.

use std::io;
use std::time::{Duration, Instant};

use http::Response;
use rtprof_pprof_out::{CPU, CpuCapture, CpuProfileError, CpuProfileOptions};

use crate::answer::{self, Refusal};
use crate::body::Body;
use crate::endpoints::flame_graph::Page;
use crate::endpoints::profile;
use crate::request::cpu::CpuRequest;
use crate::request::profile::Form;
use crate::work::name_search::{self, Patience, Searching};
use crate::work::response_writer::{Failure, ResponseWriter, not_collected};

/// Takes a CPU profile and writes it. The profile ends when the client goes away.
pub(crate) fn answer(response: &mut ResponseWriter, request: CpuRequest) -> Result<(), Failure> {
    let CpuRequest { length, hz, form, thread_labels, view } = request;
    let mut options = CpuProfileOptions { thread_labels, ..CpuProfileOptions::default() };
    options.hz = hz.unwrap_or(options.hz);
    response.charge()?;
    let capture = CpuCapture::start(&options).map_err(refused)?;
    if let Form::FlameGraph(sample_type) = form {
        return record(response, capture, request, sample_type);
    }
    let patience = form.patience(true);
    wait_for_end(response, &capture, length, patience)?;
    let snapshot = capture.finish().map_err(|_| not_collected())?;
    name_search::find(response, &snapshot, patience)?;
    response.begin(move |body| profile::with_head(form, CPU.name(), body))?;
    Ok(profile::write(&view.of_profile(snapshot), form, response)?)
}

/// Waits for `length`, and while it waits starts searches for the names of what was sampled so far: after a quarter of
/// the time and after three quarters, because each search opens the debug information anew.
fn wait_for_end(
    response: &mut ResponseWriter,
    capture: &CpuCapture,
    length: Duration,
    patience: Patience,
) -> io::Result<()> {
    let start = Instant::now();
    let mut searches = Vec::new();
    if patience != Patience::Nothing {
        for part in [length / 4, length - length / 4] {
            response.sleep(part.saturating_sub(start.elapsed()))?;
            response.charge()?;
            searches.push(Searching::begin(capture));
        }
    }
    response.sleep(length.saturating_sub(start.elapsed()))
}

/// Writes a page that says that the profile is being recorded, and then becomes the flame graph. Browsers show the
/// received part of a page that is still being sent, so one answer to one request is enough.
fn record(
    response: &mut ResponseWriter,
    capture: CpuCapture,
    request: CpuRequest,
    sample_type: usize,
) -> Result<(), Failure> {
    response.begin_waiting(answer::page)?;
    Page::write_beginning(CPU.name(), request.length, response)?;
    wait_for_end(response, &capture, request.length, Patience::UntilFound)?;
    let snapshot = match capture.finish() {
        Ok(snapshot) => snapshot,
        Err(error) => return Ok(Page::write_failure(&error.to_string(), response)?),
    };
    name_search::find(response, &snapshot, Patience::UntilFound)?;
    response.charge()?;
    Ok(Page::of(&request.view.of_profile(snapshot), sample_type).write_rest(response)?)
}

/// Returns the answer to a HEAD, without a body; no profile is taken.
pub(crate) fn head(form: Form) -> Response<Body> {
    profile::with_head(form, CPU.name(), Body::left_out())
}

/// Returns the refusal in Go's words, which clients show.
fn refused(error: CpuProfileError) -> Refusal {
    let reason = match error {
        CpuProfileError::AlreadyStarted => "cpu profiling already in use".to_owned(),
        error => error.to_string(),
    };
    Refusal::internal(format!("Could not enable CPU profiling: {reason}"))
}
