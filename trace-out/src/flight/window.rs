//! A window of a flight recorder, while it is written.

use std::io::Write;
use std::sync::Arc;

use rtprof_runtime::hook;
use rtprof_symbols::view::View;
use rtprof_tracer::TableView;

use crate::error::TraceError;
use crate::options::Format;
use crate::stats::Stats;

use super::format::{EncodedGeneration, File};

/// The generations of a window. Its writer holds no lock of the recorder, so `w` may take as long as it wants.
pub(super) struct Window {
    pub(super) format: Format,
    pub(super) parts: Vec<Arc<EncodedGeneration>>,
    pub(super) tables: Arc<TableView>,
    pub(super) view: View,
}

impl Window {
    /// Writes it, and returns its length.
    pub(super) fn write(self, mut w: impl Write) -> Result<u64, TraceError> {
        let mut written = 0;
        let failed =
            |written, error| TraceError::Write(error, Box::new(Stats { bytes: written, ..Stats::default() }));
        let mut write = |bytes: &[u8]| {
            w.write_all(bytes).map_err(|error| failed(written, error))?;
            written += bytes.len() as u64;
            Ok::<(), TraceError>(())
        };
        let mut bytes = Vec::new();
        let mut file = {
            let _workspace = hook::workspace();
            File::begin(self.format, &mut bytes)?
        };
        for part in self.parts {
            write(&bytes)?;
            bytes.clear();
            let _workspace = hook::workspace();
            file.put(&part, &*self.tables, self.view, &mut bytes);
        }
        write(&bytes)?;
        w.flush().map_err(|error| failed(written, error))?;
        Ok(written)
    }
}
