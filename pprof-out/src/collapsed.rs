//! Collapsed stacks: the lines that flame graph tools read (`stackcollapse` of Brendan Gregg's scripts).

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::call_tree::each_function;
use crate::sink::Sink;
use crate::snapshot::Snapshot;
use rtprof_symbols::symbolizer::Symbolization;
use rtprof_symbols::view::View;

impl Snapshot {
    /// Writes collapsed stacks, the form that flame graph tools read: a line for each stack, its functions from the
    /// outermost to the leaf with semicolons between, a space, and the value. `sample_type` is an index in
    /// [`sample_types`](Self::sample_types). Stacks without that value are left out.
    ///
    /// # Errors
    /// Those of the writer; if there is no such sample type; [`OutOfMemory`](io::ErrorKind::OutOfMemory) if a limit of the
    /// address space leaves too little.
    pub fn write_collapsed(
        &self,
        mut w: impl Write,
        sample_type: usize,
        symbolization: Symbolization,
    ) -> io::Result<()> {
        self.check_sample_type(sample_type)?;
        self.check_room()?;
        write(self, sample_type, self.view(symbolization), &mut Sink::new(&mut w))
    }
}

/// Writes a line for each record that has a value of this sample type. Lines of equal stacks (of objects of different
/// sizes) are not merged, because the reader adds them up.
fn write(snapshot: &Snapshot, sample_type: usize, view: View, sink: &mut Sink<'_>) -> io::Result<()> {
    let mut text = String::new();
    let mut bytes = Vec::new();
    let mut names = Vec::new();
    snapshot.for_each(view, |frames, values| {
        if values[sample_type] == 0 {
            return Ok(());
        }
        names.clear();
        each_function(frames, |name, _| names.push(name));
        for (at, name) in names.iter().rev().enumerate() {
            if at > 0 {
                text.push(';');
            }
            // A semicolon in a name, as in `[u8; 4]`, would end the name, and a line break the line.
            text.extend(name.chars().map(|c| match c {
                ';' => ',',
                c if c.is_control() => ' ',
                c => c,
            }));
        }
        let _ = writeln!(text, " {}", values[sample_type]);
        bytes.extend_from_slice(text.as_bytes());
        text.clear();
        sink.drain_chunk(&mut bytes)
    })?;
    sink.drain(&mut bytes)?;
    sink.flush()
}
