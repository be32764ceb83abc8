//! A trace that is written as it comes.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rtprof_runtime::hidden::{self, Calls};
use rtprof_runtime::labels;

use super::{Options, Reader, TraceError};

/// Starts a trace that is written to `w`, by a thread of its own, until [`stop`](super::stop). Nobody is stopped. Go:
/// `trace.Start`.
///
/// `w` is written to about once a second, and more often if much happens. If it fails recording ends, and `stop` returns
/// the error; if it is slower than the program, events are lost and counted.
///
/// # Errors
/// [`TraceError::AlreadyStarted`] if a trace goes on; others if the system gives no memory or no thread, or is not
/// supported.
pub fn start(w: impl Write + Send + 'static) -> Result<(), TraceError> {
    start_with(w, Options::default())
}

/// As [`start`], with options.
///
/// # Errors
/// As [`start`].
pub fn start_with(w: impl Write + Send + 'static, options: Options) -> Result<(), TraceError> {
    let reader = Reader::start_with(options)?;
    // Dropped with the closure if there is no thread for it, the reader ends the trace.
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
    // Another trace can be started as soon as `stop` returns; whatever the writer does in its drop is part of that.
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
