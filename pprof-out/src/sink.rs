//! Output to the caller's writer.
//!
//! All allocations of an export come from the workspace and stay out of the profile; otherwise each export would show
//! up in the next. Allocations of the caller's writer belong to the caller and are sampled as usual, so the mark of the
//! workspace is lifted for exactly the calls of the writer. Output is passed on in large pieces.

use std::io::{self, Write};

use rtprof_runtime::hook::{self, Untracked};

/// The output is passed to the writer when it reaches this many bytes.
pub(crate) const CHUNK: usize = 64 << 10;

/// The caller's writer, with the mark that keeps our own allocations out of the profile.
pub(crate) struct Sink<'w> {
    writer: &'w mut dyn Write,
    workspace: Untracked,
}

impl<'w> Sink<'w> {
    /// Begins the workspace: from now on this thread's allocations are not sampled, except inside the writer.
    pub(crate) fn new(writer: &'w mut dyn Write) -> Self {
        Self { writer, workspace: hook::workspace() }
    }

    /// Writes `bytes` and clears it.
    pub(crate) fn drain(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let Self { writer, workspace } = self;
        workspace.lifted(|| writer.write_all(bytes))?;
        bytes.clear();
        Ok(())
    }

    /// Writes `bytes` if there are enough of them to be worth a call.
    pub(crate) fn drain_chunk(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        if bytes.len() >= CHUNK {
            self.drain(bytes)?;
        }
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Self { writer, workspace } = self;
        workspace.lifted(|| writer.flush())
    }
}
