//! Writes profile.proto without holding the whole profile in memory.
//!
//! A protobuf message is the concatenation of its fields in any order. So each sample is compressed and passed to the
//! writer as soon as it is known, and the objects to which the samples refer (locations, functions, mappings, texts)
//! follow at the end. Memory is bounded by the number of distinct locations, however many samples there are.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::encoding;

use rtprof_symbols::frames::Visible;
use rtprof_symbols::locations::Locations;

use crate::functions::Functions;
use crate::location_ids::LocationIds;
use crate::profile_time::ProfileTime;
use crate::proto::{Label, Sample, ValueType};
use crate::sink::Sink;
use crate::strings::StringTable;

/// Uncompressed bytes that are collected before they are compressed.
const PLAIN_CHUNK: usize = 32 << 10;

/// The fields at the head of a profile.
pub(crate) struct Header<'a> {
    /// Type and unit of each value of a sample.
    pub(crate) sample_types: &'a [(&'a str, &'a str)],
    pub(crate) period_type: (&'a str, &'a str),
    pub(crate) period: i64,
    /// Empty for none.
    pub(crate) default_sample_type: &'a str,
    /// Empty for none.
    pub(crate) drop_frames: &'a str,
    pub(crate) comments: &'a [String],
    pub(crate) time: ProfileTime,
}

/// Writes a profile.
pub(crate) struct Encoder<'s, 'w> {
    output: Output<'s, 'w>,
    strings: StringTable,
    locations: LocationIds,
    sample: Sample,
}

/// Encoded fields on their way through the compressor.
struct Output<'s, 'w> {
    sink: &'s mut Sink<'w>,
    // The compressor does not wrap the writer itself: dropped after an error, it would write once more.
    gzip: GzEncoder<Vec<u8>>,
    plain: Vec<u8>,
}

impl<'s, 'w> Encoder<'s, 'w> {
    /// Begins a profile.
    pub(crate) fn new(sink: &'s mut Sink<'w>, header: &Header<'_>) -> Self {
        let mut strings = StringTable::new();
        let mut plain = Vec::with_capacity(2 * PLAIN_CHUNK);
        for &(kind, unit) in header.sample_types {
            let value_type = ValueType { r#type: strings.index(kind), unit: strings.index(unit) };
            encoding::message::encode(1, &value_type, &mut plain);
        }
        let mut number = |tag, value: i64| {
            if value != 0 {
                encoding::int64::encode(tag, &value, &mut plain);
            }
        };
        number(7, strings.index(header.drop_frames));
        number(9, header.time.time_nanos);
        number(10, header.time.duration_nanos);
        number(12, header.period);
        number(14, strings.index(header.default_sample_type));
        let period_type = ValueType {
            r#type: strings.index(header.period_type.0),
            unit: strings.index(header.period_type.1),
        };
        encoding::message::encode(11, &period_type, &mut plain);
        let comments: Vec<i64> = header.comments.iter().map(|c| strings.index(c)).collect();
        encoding::int64::encode_packed(13, &comments, &mut plain);
        Self {
            output: Output { sink, gzip: GzEncoder::new(Vec::new(), Compression::fast()), plain },
            strings,
            locations: LocationIds::default(),
            sample: Sample::default(),
        }
    }

    /// Writes a sample of the stack that was resolved last, of which `visible` is shown. `fill` receives the sample
    /// without values, and the string table for its labels.
    pub(crate) fn sample(
        &mut self,
        locations: &Locations,
        visible: Visible,
        fill: impl FnOnce(&mut Sample, &mut StringTable),
    ) -> io::Result<()> {
        self.sample.location_id.clear();
        self.sample.value.clear();
        self.sample.label.clear();
        self.locations.ids(locations, visible, &mut self.sample.location_id);
        fill(&mut self.sample, &mut self.strings);
        self.output.message(2, &self.sample)
    }

    /// Writes the objects to which the samples refer, and ends the profile.
    pub(crate) fn finish(self, locations: &Locations) -> io::Result<()> {
        let Self { mut output, mut strings, locations: ids, .. } = self;
        let mut functions = Functions::default();
        for location in ids.encoded(locations, &mut functions) {
            output.message(4, &location)?;
        }
        for mapping in ids.mappings(locations, &mut strings) {
            output.message(3, &mapping)?;
        }
        for function in functions.encoded(&mut strings) {
            output.message(5, &function)?;
        }
        for text in strings.texts() {
            output.text(6, text)?;
        }
        output.finish()
    }
}

impl Output<'_, '_> {
    fn message(&mut self, tag: u32, message: &impl prost::Message) -> io::Result<()> {
        encoding::message::encode(tag, message, &mut self.plain);
        self.compress_chunk()
    }

    /// Appends a repeated text. An empty text is written too: left out, it would shift all indices.
    fn text(&mut self, tag: u32, text: &str) -> io::Result<()> {
        encoding::encode_key(tag, encoding::WireType::LengthDelimited, &mut self.plain);
        encoding::encode_varint(text.len() as u64, &mut self.plain);
        self.plain.extend_from_slice(text.as_bytes());
        self.compress_chunk()
    }

    fn compress_chunk(&mut self) -> io::Result<()> {
        if self.plain.len() >= PLAIN_CHUNK {
            self.gzip.write_all(&self.plain)?;
            self.plain.clear();
            self.sink.drain_chunk(self.gzip.get_mut())?;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.gzip.write_all(&self.plain)?;
        let mut rest = self.gzip.finish()?;
        self.sink.drain(&mut rest)?;
        self.sink.flush()
    }
}

/// The key of the label that holds the name of an async task.
pub(crate) const TASK_LABEL: &str = "task";

/// Makes a label whose value is a text.
pub(crate) fn text_label(strings: &mut StringTable, key: &str, value: &str) -> Label {
    Label { key: strings.index(key), str: strings.index(value), ..Label::default() }
}

/// Makes a label whose value is a number.
pub(crate) fn number_label(strings: &mut StringTable, key: &str, num: i64, unit: &str) -> Label {
    Label { key: strings.index(key), num, num_unit: strings.index(unit), ..Label::default() }
}
