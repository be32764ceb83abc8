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
use crate::work::worker::{Failure, Worker, not_collected};

/// Takes a CPU profile and writes it. The profile ends when the client goes away.
pub(crate) fn answer(worker: &mut Worker, request: CpuRequest) -> Result<(), Failure> {
    let CpuRequest { length, hz, form, thread_labels, view } = request;
    let mut options = CpuProfileOptions { thread_labels, ..CpuProfileOptions::default() };
    options.hz = hz.unwrap_or(options.hz);
    worker.charge()?;
    let capture = CpuCapture::start(&options).map_err(refused)?;
    if let Form::FlameGraph(sample_type) = form {
        return record(worker, capture, request, sample_type);
    }
    let patience = form.patience(true);
    wait_for_end(worker, &capture, length, patience)?;
    let snapshot = capture.finish().map_err(|_| not_collected())?;
    name_search::find(worker, &snapshot, patience)?;
    worker.begin(move |body| profile::with_head(form, CPU.name(), body))?;
    Ok(profile::write(&view.of_profile(snapshot), form, worker)?)
}

/// Waits for `length`, and meanwhile has the names found of what was sampled so far: after a quarter of the time and after
/// three quarters, because each search opens the debug information anew.
fn wait_for_end(
    worker: &mut Worker,
    capture: &CpuCapture,
    length: Duration,
    patience: Patience,
) -> io::Result<()> {
    let start = Instant::now();
    let mut searches = Vec::new();
    if patience != Patience::Nothing {
        for part in [length / 4, length - length / 4] {
            worker.sleep(part.saturating_sub(start.elapsed()))?;
            worker.charge()?;
            searches.push(Searching::begin(capture));
        }
    }
    worker.sleep(length.saturating_sub(start.elapsed()))
}

/// Writes a page that says that the profile is being recorded, and then becomes the flame graph. Browsers show the
/// received part of a page that is still being sent, so one answer to one request is enough.
fn record(
    worker: &mut Worker,
    capture: CpuCapture,
    request: CpuRequest,
    sample_type: usize,
) -> Result<(), Failure> {
    worker.begin_waiting(answer::page)?;
    Page::write_beginning(CPU.name(), request.length, worker)?;
    wait_for_end(worker, &capture, request.length, Patience::UntilFound)?;
    let snapshot = match capture.finish() {
        Ok(snapshot) => snapshot,
        Err(error) => return Ok(Page::write_failure(&error.to_string(), worker)?),
    };
    name_search::find(worker, &snapshot, Patience::UntilFound)?;
    worker.charge()?;
    Ok(Page::of(&request.view.of_profile(snapshot), sample_type).write_rest(worker)?)
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
