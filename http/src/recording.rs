//! A flame graph of what happens from now on: a page that says that it is recording until it has become the flame graph.
//!
//! Browsers show what they have of a page that is still being sent, so all of it is one answer to one request.

use std::io;
use std::time::{Duration, Instant};

use http::Response;
use rtprof_pprof_out::Snapshot;

use crate::answer::{self, Refusal};
use crate::body::Body;
use crate::engine::Link;
use crate::flame_graph::Page;
use crate::names::{self, Patience};
use crate::slots::CapturePermit;
use crate::stream::{self, ChannelWriter};

/// How often it looks whether the client is gone.
const LOOK: Duration = Duration::from_millis(50);

/// The answer that shows what `finish` returns after `length`, of the profile of this name. Dropped, because the client is
/// gone, `finish` ends the recording.
pub(crate) fn answer(
    link: Link,
    place: CapturePermit,
    name: &'static str,
    length: Duration,
    sample_type: usize,
    finish: impl FnOnce() -> Result<Snapshot, String> + Send + 'static,
) -> Result<Response<Body>, Refusal> {
    let own = link.clone();
    let body = stream::body_at_once(&link, place, move |writer| {
        Page::write_beginning(name, length, writer)?;
        wait(length, writer)?;
        match finish() {
            Ok(snapshot) => show(&own, snapshot, sample_type, writer),
            Err(error) => Page::write_failure(&error, writer),
        }
    })?;
    Ok(answer::page(body))
}

/// By a writer.
fn wait(length: Duration, writer: &ChannelWriter<'_>) -> io::Result<()> {
    let is_gone = writer.is_gone();
    let end = Instant::now().checked_add(length);
    loop {
        let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(());
        }
        if is_gone() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        std::thread::sleep(LOOK.min(left));
    }
}

fn show(
    link: &Link,
    snapshot: Snapshot,
    sample_type: usize,
    writer: &mut ChannelWriter<'_>,
) -> io::Result<()> {
    let ended = |_| io::Error::other("the server has ended");
    let snapshot = link.wait_for(names::found(link, snapshot, Patience::UntilFound)).map_err(ended)?;
    // From here on it works as other writers do.
    writer.begin(link.wait_for(link.turn()).map_err(ended)?, link.account());
    Page::of(&snapshot, sample_type).write_rest(writer)
}
