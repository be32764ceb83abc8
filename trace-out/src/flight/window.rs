//! A window of a flight recorder, while it is written.

use std::io::{self, Write};
use std::sync::Arc;

use rtprof_runtime::hook;
use rtprof_symbols::view::View;
use rtprof_tracer::TableView;

use crate::v2::Part;
use crate::{Stats, TraceError};

/// The generations of a window. Its writer holds no lock of the recorder, so `w` may take as long as it wants.
pub(super) struct Window {
    pub(super) header: &'static [u8],
    pub(super) parts: Vec<Arc<Part>>,
    pub(super) tables: Arc<TableView>,
    pub(super) view: View,
}

impl Window {
    /// Writes it, and returns its length.
    pub(super) fn write(self, mut w: impl Write) -> Result<u64, TraceError> {
        let mut written = 0;
        let written_all = self.write_all(&mut w, &mut written);
        written_all.map_err(|error| {
            TraceError::Write(error, Box::new(Stats { bytes: written, ..Stats::default() }))
        })?;
        Ok(written)
    }

    fn write_all(self, w: &mut impl Write, written: &mut u64) -> io::Result<()> {
        let mut write = |bytes: &[u8]| {
            w.write_all(bytes)?;
            *written += bytes.len() as u64;
            io::Result::Ok(())
        };
        write(self.header)?;
        for part in self.parts {
            write(part.events())?;
            let mut names = Vec::new();
            {
                let _workspace = hook::workspace();
                part.put_names(&*self.tables, self.view, &mut names);
            }
            write(&names)?;
        }
        w.flush()
    }
}
