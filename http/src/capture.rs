//! Taking a profile and sending it.

use std::io::{self, Write};
use std::time::Duration;

use http::{Response, StatusCode};
use rtprof_pprof_out::{Profile, Since, Snapshot, Symbolization};
use rtprof_profiler::mem;
use tokio::time::Instant;

use crate::answer::{self, Refusal};
use crate::body::Body;
use crate::engine::{GivenUp, Link};
use crate::flame_graph;
use crate::names::{self, Names, Patience};
use crate::request::{Asked, Form};
use crate::slots::CapturePermits;
use crate::stream;
use crate::symbol::Words;

/// The answer to a request for a profile. On the engine's thread; given up when the client is gone.
pub(crate) async fn answer(
    link: Link,
    slots: CapturePermits,
    profile: Profile,
    asked: Asked,
) -> Result<Response<Body>, Refusal> {
    let place = slots.take().await?;
    if asked.publish {
        publish(&link).await?;
    }
    let form = asked.form;
    let patience = form.patience(asked.over.is_some());
    let mut snapshot = take(&link, &profile).await?;
    if let Some(over) = asked.over {
        snapshot = after(&link, &profile, snapshot, over, patience).await?;
    }
    let name = match asked.over {
        Some(_) => format!("{}-delta", profile.name()),
        None => profile.name().to_owned(),
    };
    let mut snapshot = names::found(&link, snapshot, patience).await?;
    if asked.startup_frames {
        snapshot = snapshot.with_startup_frames();
    }
    let body = stream::body(&link, place, None, move |w| write(&snapshot, form, w));
    Ok(with_head(form, &name, body.await?))
}

impl Form {
    /// How long an answer in this form waits for names, after `seconds=` or without.
    pub(crate) fn patience(self, after_seconds: bool) -> Patience {
        match self {
            Self::Proto(names) => names.patience(after_seconds),
            Self::Text(Names::None) | Self::Dump(Names::None) => Patience::Nothing,
            Self::Text(_) | Self::Dump(_) | Self::Collapsed(_) | Self::FlameGraph(_) => Patience::UntilFound,
        }
    }
}

/// Writes a profile with the names that are known. By a writer.
pub(crate) fn write(snapshot: &Snapshot, form: Form, w: &mut dyn Write) -> io::Result<()> {
    match form {
        Form::Proto(names) => snapshot.write_proto(w, names.symbolization()),
        Form::Text(names) => snapshot.write_text(w, names.symbolization()),
        Form::Dump(names) => snapshot.write_dump(w, names.symbolization()),
        Form::Collapsed(sample_type) => snapshot.write_collapsed(w, sample_type, Symbolization::Known),
        Form::FlameGraph(sample_type) => flame_graph::Page::of(snapshot, sample_type).write(w),
    }
}

/// The answer without its body, for a HEAD: nothing is captured.
pub(crate) fn head(profile: &Profile, asked: Asked) -> Response<Body> {
    let name = profile.name();
    let name = if asked.over.is_some() { format!("{name}-delta") } else { name.to_owned() };
    with_head(asked.form, &name, Body::left_out())
}

/// The answer in this form.
pub(crate) fn with_head(form: Form, name: &str, body: Body) -> Response<Body> {
    match form {
        Form::Proto(_) => answer::attachment(name, body),
        Form::Text(_) | Form::Dump(_) | Form::Collapsed(_) => answer::of_type(answer::TEXT, body),
        Form::FlameGraph(_) => answer::page(body),
    }
}

/// The records of a profile now.
pub(crate) async fn take(link: &Link, profile: &Profile) -> Result<Snapshot, Refusal> {
    let profile = profile.clone();
    match link.computing(move || profile.snapshot()).await {
        Ok(Ok(snapshot)) => Ok(snapshot),
        // Lost in a fork, or a panic.
        Ok(Err(_)) | Err(GivenUp) => Err(not_collected()),
    }
}

/// What is added from `earlier` on while `over` passes. Names are looked for meanwhile, those of `earlier`: most of them
/// are in the result.
async fn after(
    link: &Link,
    profile: &Profile,
    earlier: Snapshot,
    over: Duration,
    patience: Patience,
) -> Result<Snapshot, Refusal> {
    let end = Instant::now().checked_add(over);
    let (earlier, _searching) = match patience {
        Patience::Nothing => (earlier, None),
        _ => {
            let (earlier, searching) = names::search(link, earlier).await?;
            (earlier, Some(searching))
        }
    };
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => tokio::time::sleep(over).await,
    }
    let later = take(link, profile).await?;
    let delta = link.computing(move || later.since(&earlier, Since::Everything)).await;
    delta.map_err(|_| Refusal::internal("failed to compute delta"))
}

pub(crate) fn not_collected() -> Refusal {
    Refusal::internal("failed to collect profile")
}

impl From<GivenUp> for Refusal {
    fn from(_: GivenUp) -> Self {
        not_collected()
    }
}

pub(crate) fn unknown_profile() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "Unknown profile")
}

/// Makes the next heap profile show everything up to now, as `runtime.GC` does for Go's. Without a collector every
/// profile does.
pub(crate) async fn publish(link: &Link) -> Result<(), Refusal> {
    let published = link.computing(|| {
        // An event is counted two cycles ahead.
        for _ in 0..2 {
            mem::advance_cycle();
            mem::flush_cycle();
        }
    });
    Ok(published.await?)
}

/// The body of an answer that is small and computed at once.
pub(crate) async fn computed(
    link: Link,
    slots: CapturePermits,
    compute: impl FnOnce() -> String + Send + 'static,
) -> Result<Body, Refusal> {
    let _place = slots.take().await?;
    Ok(Body::whole(link.computing(compute).await?))
}

/// The body of an answer to addresses.
pub(crate) async fn symbols(link: Link, slots: CapturePermits, words: Words) -> Result<Body, Refusal> {
    let place = slots.take().await?;
    let asked = link.computing(move || words.addresses()).await?;
    let asked = names::found(&link, asked, Patience::UntilFound).await?;
    let found = link.computing(move || asked.named()).await?;
    stream::body(&link, place, None, move |w| found.write(w)).await
}
