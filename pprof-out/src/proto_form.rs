//! A snapshot as gzipped profile.proto. Go: `profileBuilder`, `printCountCycleProfile`.

use std::io::{self, Write};

use rtprof_symbols::symbolizer::Symbolization;
use rtprof_symbols::view::View;

use crate::encode::{Encoder, Header, TASK_LABEL, number_label, text_label};
use crate::proto::Label;
use crate::record::{Detail, Record};
use crate::sink::Sink;
use crate::snapshot::Snapshot;
use crate::strings::StringTable;

impl Snapshot {
    /// Writes gzipped profile.proto.
    ///
    /// # Errors
    /// Those of the writer; [`OutOfMemory`](io::ErrorKind::OutOfMemory) if a limit of the address space leaves too little.
    pub fn write_proto(&self, mut w: impl Write, symbolization: Symbolization) -> io::Result<()> {
        self.check_room()?;
        write(self, self.view(symbolization), &mut Sink::new(&mut w))
    }
}

/// Writes a snapshot as profile.proto.
fn write(snapshot: &Snapshot, view: View, sink: &mut Sink<'_>) -> io::Result<()> {
    let kind = &snapshot.kind;
    let mut locations = snapshot.locations(view);
    let comments = locations.comments(&snapshot.comments);
    let (period_type, period) = kind.period();
    let mut encoder = Encoder::new(
        sink,
        &Header {
            sample_types: &kind.sample_types(),
            period_type,
            period,
            default_sample_type: kind.default_sample_type(),
            drop_frames: kind.drop_frames(),
            comments: &comments,
            time: snapshot.time,
        },
    );
    for record in snapshot.records.iter() {
        if !record.is_shown(&mut locations) {
            continue;
        }
        let visible = record.frames(&mut locations).visible;
        let values = kind.values(record);
        encoder.sample(&locations, visible, |sample, strings| {
            sample.value.extend_from_slice(&values);
            labels(record, strings, &mut sample.label);
        })?;
    }
    encoder.finish(&locations)
}

fn labels(record: &Record, strings: &mut StringTable, out: &mut Vec<Label>) {
    out.extend(record.labels.iter().map(|(key, value)| text_label(strings, key, value)));
    match &record.detail {
        Detail::None | Detail::Wake { .. } | Detail::Waits(_) => {}
        Detail::Objects { size, .. } => out.push(number_label(strings, "bytes", *size as i64, "bytes")),
        Detail::Samples(sampled) => {
            // A label of the program with the same key takes precedence.
            let is_free = || record.labels.iter().all(|(key, _)| key != TASK_LABEL);
            if let Some(name) = sampled.task.as_ref().filter(|_| is_free()) {
                out.push(text_label(strings, TASK_LABEL, name));
            }
            if let Some((id, name)) = &sampled.thread {
                out.push(number_label(strings, "thread id", i64::from(*id), ""));
                out.push(text_label(strings, "thread name", name));
            }
        }
    }
}
