//! A trace that is written while it is recorded.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rtprof_runtime::hook::hidden::{self, Calls};
use rtprof_runtime::labels;

use super::{Options, Reader, TraceError};

/// Starts a trace that a separate thread writes to `w`, until [`stop`](super::stop). No thread is stopped. Go:
/// `trace.Start`.
///
/// `w` is written to about once a second, and more often if there are many events. If `w` fails, recording ends and
/// `stop` returns the error; if `w` is slower than the program, events are lost and counted.
///
/// # Errors
/// [`TraceError::AlreadyStarted`] if a trace is in progress; others if the system grants no memory, cannot start a
/// thread, or is not supported.
pub fn start(w: impl Write + Send + 'static) -> Result<(), TraceError> {
    start_with(w, Options::default())
}

/// Like [`start`], with options.
///
/// # Errors
/// The same as of [`start`].
pub fn start_with(w: impl Write + Send + 'static, options: Options) -> Result<(), TraceError> {
    let reader = Reader::start_with(options)?;
    // If no thread can be started, the closure is dropped with the reader, which ends the trace.
    let thread = std::thread::Builder::new().name("rtprof-trace".into());
    let writer = hidden::hiding(Calls::THREADS, || thread.spawn(move || write(reader, w)));
    writer.map(drop).map_err(TraceError::NoThread)
}

fn write(mut reader: Reader, mut w: impl Write) {
    let _labels = labels::set_own("trace");
    let session = reader.session().clone();
    let copy = AssertUnwindSafe(|| copy(&mut reader, &mut w));
    let end = catch_unwind(copy)
        .unwrap_or_else(|_| Err(io::Error::other("it panicked")))
        .map_err(|error| TraceError::Write(error, Box::default()));
    if end.is_err() {
        session.stop();
    }
    // Another trace can be started as soon as `stop` returns; so the writer's drop must be over by then.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(w)));
    reader.finish(end);
}

fn copy(reader: &mut Reader, w: &mut impl Write) -> io::Result<()> {
    while let Some(chunk) = reader.chunk_to_write() {
        w.write_all(chunk)?;
        reader.written();
    }
    w.flush()
}
