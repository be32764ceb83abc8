//! Reads `profile.proto` by the field numbers of its definition, so that an error of our encoder is not repeated in the
//! decoder that checks it.

use std::collections::{HashMap, HashSet};
use std::io::Read;

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    #[prost(int64, tag = "1")]
    pub kind: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Label {
    #[prost(int64, tag = "1")]
    pub key: i64,
    #[prost(int64, tag = "2")]
    pub text: i64,
    #[prost(int64, tag = "3")]
    pub number: i64,
    #[prost(int64, tag = "4")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct RawSample {
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Line {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
    #[prost(bool, tag = "5")]
    pub is_folded: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<RawSample>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// The indices of the four values of a heap sample.
pub const ALLOC_OBJECTS: usize = 0;
pub const ALLOC_SPACE: usize = 1;
pub const INUSE_OBJECTS: usize = 2;
pub const INUSE_SPACE: usize = 3;

/// One function in a stack; inlined functions are separate frames.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    pub function: String,
    pub system_name: String,
    pub file: String,
    pub line: i64,
    pub address: u64,
    pub inlined: bool,
}

/// A sample with its stack resolved, innermost frame first.
#[derive(Clone, Debug)]
pub struct Sample {
    pub frames: Vec<Frame>,
    pub values: Vec<i64>,
    /// Labels with texts and labels with numbers; numbers are in decimal.
    pub labels: HashMap<String, String>,
}

impl Sample {
    pub fn has(&self, function: &str) -> bool {
        self.frames.iter().any(|frame| frame.function.contains(function))
    }
}

/// Unpacks what was compressed as a whole.
#[track_caller]
pub fn gunzip(compressed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(compressed).read_to_end(&mut bytes).expect("it is gzip");
    bytes
}

impl Profile {
    /// Reads a compressed profile and checks it.
    pub fn read(compressed: &[u8]) -> Self {
        let profile = Self::decode(gunzip(compressed).as_slice()).expect("a profile is profile.proto");
        profile.check();
        profile
    }

    /// Returns the heap profile of this process as it is written.
    pub fn heap() -> Self {
        let mut bytes = Vec::new();
        rtprof::pprof::write_heap_profile(&mut bytes).expect("a vector takes everything");
        Self::read(&bytes)
    }

    pub fn text(&self, index: i64) -> &str {
        &self.string_table[index as usize]
    }

    pub fn comments(&self) -> String {
        let lines: Vec<_> = self.comment.iter().map(|&line| self.text(line)).collect();
        lines.join("\n")
    }

    pub fn sample_types(&self) -> Vec<(&str, &str)> {
        self.sample_type.iter().map(|kind| (self.text(kind.kind), self.text(kind.unit))).collect()
    }

    /// Returns all samples, resolved.
    pub fn samples(&self) -> Vec<Sample> {
        self.resolve(self.sample.iter())
    }

    /// Returns the samples that have `function` in their stack.
    pub fn samples_of(&self, function: &str) -> Vec<Sample> {
        self.resolve(self.raw_samples_of(function))
    }

    /// Returns the sum of each value over the samples that have `function` in their stack.
    pub fn totals_of(&self, function: &str) -> [i64; 4] {
        total(self.raw_samples_of(function))
    }

    /// Returns the sum of each value over the samples of objects of `size` bytes.
    pub fn totals_of_size(&self, size: usize) -> [i64; 4] {
        let bytes = self.string_table.iter().position(|text| text == "bytes");
        total(self.sample.iter().filter(|sample| {
            let mut labels = sample.label.iter();
            labels.any(|label| Some(label.key as usize) == bytes && label.number == size as i64)
        }))
    }

    fn raw_samples_of(&self, function: &str) -> impl Iterator<Item = &RawSample> + use<'_> {
        let named = self.function.iter().filter(|entry| self.text(entry.name).contains(function));
        let named: HashSet<_> = named.map(|entry| entry.id).collect();
        let inside = |entry: &&Location| entry.line.iter().any(|line| named.contains(&line.function_id));
        let inside: HashSet<_> = self.location.iter().filter(inside).map(|entry| entry.id).collect();
        let samples = self.sample.iter();
        samples.filter(move |sample| sample.location_id.iter().any(|id| inside.contains(id)))
    }

    fn resolve<'a>(&'a self, samples: impl Iterator<Item = &'a RawSample>) -> Vec<Sample> {
        let locations: HashMap<_, _> = self.location.iter().map(|entry| (entry.id, entry)).collect();
        let functions: HashMap<_, _> = self.function.iter().map(|entry| (entry.id, entry)).collect();
        let frames = |id: &u64| {
            let location = locations[id];
            let last = location.line.len().saturating_sub(1);
            let frame = |(place, line): (usize, &Line)| {
                let function = functions[&line.function_id];
                Frame {
                    function: self.text(function.name).to_owned(),
                    system_name: self.text(function.system_name).to_owned(),
                    file: self.text(function.filename).to_owned(),
                    line: line.line,
                    address: location.address,
                    inlined: place != last,
                }
            };
            let mut frames: Vec<_> = location.line.iter().enumerate().map(frame).collect();
            if frames.is_empty() {
                frames.push(Frame {
                    function: self.unnamed(location),
                    address: location.address,
                    ..Frame::default()
                });
            }
            frames
        };
        samples
            .map(|sample| Sample {
                frames: sample.location_id.iter().flat_map(frames).collect(),
                values: sample.value.clone(),
                labels: sample.label.iter().map(|label| self.label(label)).collect(),
            })
            .collect()
    }

    /// Returns the name that pprof shows for a location without a function: its binary, as `[libc.so.6]`, if known.
    fn unnamed(&self, location: &Location) -> String {
        let mapping = self.mapping.iter().find(|mapping| mapping.id == location.mapping_id);
        let path = mapping.map_or("", |mapping| self.text(mapping.filename));
        let file = path.rsplit('/').next().filter(|file| !file.is_empty());
        file.map_or("<unknown>".into(), |file| format!("[{file}]"))
    }

    fn label(&self, label: &Label) -> (String, String) {
        let value = match label.text {
            0 => label.number.to_string(),
            text => self.text(text).to_owned(),
        };
        (self.text(label.key).to_owned(), value)
    }

    /// Checks the rules of pprof's own CheckValid, and those that pprof leaves to the writer.
    pub fn check(&self) {
        assert_eq!(self.string_table.first().map(String::as_str), Some(""), "string 0 is empty");
        let string = |index: i64| assert!((index as usize) < self.string_table.len(), "string {index}");
        let mut mappings = HashMap::new();
        for mapping in &self.mapping {
            string(mapping.filename);
            string(mapping.build_id);
            assert!(mapping.id != 0 && mapping.memory_start < mapping.memory_limit, "{mapping:?}");
            assert!(mappings.insert(mapping.id, mapping).is_none(), "mapping {} twice", mapping.id);
        }
        let mut functions = HashSet::new();
        for function in &self.function {
            string(function.name);
            string(function.system_name);
            string(function.filename);
            assert!(function.id != 0 && functions.insert(function.id), "function {}", function.id);
        }
        let mut locations = HashSet::new();
        for location in &self.location {
            assert!(location.id != 0 && locations.insert(location.id), "location {}", location.id);
            assert!(location.line.iter().all(|line| functions.contains(&line.function_id)));
            if location.mapping_id != 0 {
                let mapping = mappings.get(&location.mapping_id).expect("a location's mapping exists");
                let range = mapping.memory_start..mapping.memory_limit;
                assert!(range.contains(&location.address), "{location:?} outside of {mapping:?}");
            }
        }
        for sample in &self.sample {
            assert_eq!(sample.value.len(), self.sample_type.len(), "one value a sample type");
            assert!(sample.location_id.iter().all(|id| locations.contains(id)), "{sample:?}");
            sample.label.iter().for_each(|label| [label.key, label.text].into_iter().for_each(string));
        }
        self.comment.iter().copied().for_each(string);
        string(self.default_sample_type);
    }
}

fn total<'a>(samples: impl Iterator<Item = &'a RawSample>) -> [i64; 4] {
    let mut totals = [0; 4];
    for sample in samples {
        for (total, value) in totals.iter_mut().zip(&sample.value) {
            *total += value;
        }
    }
    totals
}
