//! The way out to the caller's writer.
//!
//! Everything an export allocates comes from the workspace and stays out of the profile, or each export would show up
//! in the next. What the caller's writer allocates belongs to the caller and is sampled as usual, so the mark is
//! lifted for exactly the calls of the writer. Output is handed over in large pieces.

use std::io::{self, Write};

use rtprof_runtime::hook::{self, Untracked};

/// Above this many bytes the output goes to the writer.
pub(crate) const CHUNK: usize = 64 << 10;

/// A writer of the caller, and the mark that keeps our own allocations out of the profile.
pub(crate) struct Sink<'w> {
    writer: &'w mut dyn Write,
    workspace: Untracked,
}

impl<'w> Sink<'w> {
    /// From here on this thread's allocations are not sampled, except inside the writer.
    pub(crate) fn new(writer: &'w mut dyn Write) -> Self {
        Self { writer, workspace: hook::workspace() }
    }

    /// Hands `bytes` over and empties it.
    pub(crate) fn drain(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let Self { writer, workspace } = self;
        workspace.lifted(|| writer.write_all(bytes))?;
        bytes.clear();
        Ok(())
    }

    /// Hands `bytes` over if they are worth a call.
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
