//! Takes a profile and sends it.

use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

use http::{Response, StatusCode};
use rtprof_pprof_out::{Profile, Since, Snapshot, Symbolization};
use rtprof_profiler::mem;

use crate::answer::{self, Refusal};
use crate::body::Body;
use crate::endpoints::flame_graph;
use crate::request::limits::Limits;
use crate::request::profile::{Form, ProfileRequest, RequestedProfile};
use crate::request::query::Query;
use crate::work::name_search::{self, Patience, Searching};
use crate::work::response_writer::{Failure, ResponseWriter, not_collected};

/// Reads the parameters of a request for this profile.
pub(crate) fn request(
    query: &Query<'_>,
    profile: &Profile,
    limits: Limits,
) -> Result<ProfileRequest, Refusal> {
    let sample_types = profile.sample_types();
    let names: Vec<&str> = sample_types.iter().map(|(name, _)| *name).collect();
    let subject = RequestedProfile {
        name: profile.name(),
        has_delta: profile.is_built_in(),
        has_dump: profile.has_dump(),
        sample_types: &names,
        default_sample_type: profile.default_sample_type(),
    };
    ProfileRequest::of(query, &subject, limits)
}

/// Takes a profile and writes it.
pub(crate) fn answer(
    response: &mut ResponseWriter,
    profile: &Profile,
    request: ProfileRequest,
) -> Result<(), Failure> {
    response.charge()?;
    if request.publish {
        publish();
    }
    let form = request.form;
    let patience = form.patience(request.over.is_some());
    let mut snapshot = take(profile)?;
    if let Some(over) = request.over {
        snapshot = after(response, profile, &snapshot, over, patience)?;
    }
    name_search::find(response, &snapshot, patience)?;
    snapshot = request.view.of_profile(snapshot);
    if let Some(goroutines) = &request.goroutines {
        snapshot = snapshot.with_goroutines(goroutines.filter());
    }
    let name = request.saved_as(profile);
    response.begin(move |body| with_head(form, &name, body))?;
    Ok(write(&snapshot, form, response)?)
}

impl ProfileRequest {
    /// Returns the file name under which a client saves the profile.
    fn saved_as(&self, profile: &Profile) -> String {
        let delta = if self.over.is_some() { "-delta" } else { "" };
        format!("{}{delta}", profile.name())
    }
}

/// Writes a profile with the names that are known.
pub(crate) fn write(snapshot: &Snapshot, form: Form, w: &mut dyn Write) -> io::Result<()> {
    match form {
        Form::Proto(names) => snapshot.write_proto(w, names.symbolization()),
        Form::Text(names) => snapshot.write_text(w, names.symbolization()),
        Form::Dump(names) => snapshot.write_dump(w, names.symbolization()),
        Form::Groups(names) => snapshot.write_groups(w, names.symbolization()),
        Form::Collapsed(sample_type) => snapshot.write_collapsed(w, sample_type, Symbolization::Known),
        Form::Top(sample_type) => snapshot.write_top(w, sample_type, Symbolization::Known),
        Form::FlameGraph(sample_type) => flame_graph::Page::of(snapshot, sample_type).write(w),
    }
}

/// Returns the answer to a HEAD, without a body; nothing is captured.
pub(crate) fn head(profile: &Profile, request: ProfileRequest) -> Response<Body> {
    with_head(request.form, &request.saved_as(profile), Body::left_out())
}

/// Returns the answer in this form.
pub(crate) fn with_head(form: Form, name: &str, body: Body) -> Response<Body> {
    match form {
        Form::Proto(_) => answer::attachment(name, body),
        Form::Text(_) | Form::Dump(_) | Form::Groups(_) | Form::Collapsed(_) | Form::Top(_) => {
            answer::of_type(answer::TEXT, body)
        }
        Form::FlameGraph(_) => answer::page(body),
    }
}

/// Takes a snapshot of a profile.
pub(crate) fn take(profile: &Profile) -> Result<Snapshot, Refusal> {
    profile.snapshot().map_err(|error| match error.kind() {
        ErrorKind::OutOfMemory => Refusal::busy(error.to_string()),
        // A fork has lost the profile.
        _ => not_collected(),
    })
}

/// Waits for `over`, and returns the changes since `earlier`. While it waits, the names of `earlier` are searched; most
/// of them are in the result too.
fn after(
    response: &mut ResponseWriter,
    profile: &Profile,
    earlier: &Snapshot,
    over: Duration,
    patience: Patience,
) -> Result<Snapshot, Failure> {
    let start = Instant::now();
    let _searching = (patience != Patience::Nothing).then(|| Searching::begin(earlier));
    response.sleep(over.saturating_sub(start.elapsed()))?;
    response.charge()?;
    Ok(take(profile)?.since(earlier, Since::Everything))
}

pub(crate) fn unknown() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "Unknown profile")
}

/// Makes the next heap profile show everything up to now, as `runtime.GC` does in Go. Without a collector every profile
/// does so anyway.
pub(crate) fn publish() {
    // An event is counted two cycles ahead.
    for _ in 0..2 {
        mem::advance_cycle();
        mem::flush_cycle();
    }
}
