//! The messages of `profile.proto`, written by hand from their field numbers.
//!
//! Deriving them keeps a protobuf compiler out of the build. Only the messages that pprof reads are here.

/// A whole profile. The export never holds one: it writes the fields one by one and a reader merges them, which
/// protobuf permits. A profile that is read has this type.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Profile {
    /// The type of each value of a sample, in order.
    #[prost(message, repeated, tag = "1")]
    pub(crate) sample_type: Vec<ValueType>,
    /// The samples.
    #[prost(message, repeated, tag = "2")]
    pub(crate) sample: Vec<Sample>,
    /// The executable segments that contain the locations; the main executable is the first.
    #[prost(message, repeated, tag = "3")]
    pub(crate) mapping: Vec<Mapping>,
    /// The places that samples refer to by id.
    #[prost(message, repeated, tag = "4")]
    pub(crate) location: Vec<Location>,
    /// The functions that lines refer to by id.
    #[prost(message, repeated, tag = "5")]
    pub(crate) function: Vec<Function>,
    /// Every text of the profile; entry 0 is the empty one.
    #[prost(string, repeated, tag = "6")]
    pub(crate) string_table: Vec<String>,
    /// String index of a regular expression: matching functions and what they call are hidden.
    #[prost(int64, tag = "7")]
    pub(crate) drop_frames: i64,
    /// String index of a regular expression that exempts functions from `drop_frames`.
    #[prost(int64, tag = "8")]
    pub(crate) keep_frames: i64,
    /// When the profile was taken, in nanoseconds since 1970.
    #[prost(int64, tag = "9")]
    pub(crate) time_nanos: i64,
    /// The duration of the recording, in nanoseconds; 0 for a state at one moment.
    #[prost(int64, tag = "10")]
    pub(crate) duration_nanos: i64,
    /// The type and unit of `period`.
    #[prost(message, optional, tag = "11")]
    pub(crate) period_type: Option<ValueType>,
    /// The mean distance of two samples.
    #[prost(int64, tag = "12")]
    pub(crate) period: i64,
    /// String indices of remarks for the reader.
    #[prost(int64, repeated, tag = "13")]
    pub(crate) comment: Vec<i64>,
    /// String index of the sample type to show first.
    #[prost(int64, tag = "14")]
    pub(crate) default_sample_type: i64,
}

/// The name and unit of a value; both are string indices.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct ValueType {
    /// For instance `inuse_space`.
    #[prost(int64, tag = "1")]
    pub(crate) r#type: i64,
    /// For instance `bytes`.
    #[prost(int64, tag = "2")]
    pub(crate) unit: i64,
}

/// One stack with its values.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Sample {
    /// Locations, leaf first.
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) location_id: Vec<u64>,
    /// One value for each sample type.
    #[prost(int64, repeated, tag = "2")]
    pub(crate) value: Vec<i64>,
    /// The labels that distinguish this sample from others of the same stack.
    #[prost(message, repeated, tag = "3")]
    pub(crate) label: Vec<Label>,
}

/// A label: a text, or a number with a unit.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Label {
    /// String index.
    #[prost(int64, tag = "1")]
    pub(crate) key: i64,
    /// String index, 0 for a numeric label.
    #[prost(int64, tag = "2")]
    pub(crate) str: i64,
    /// The number of a numeric label.
    #[prost(int64, tag = "3")]
    pub(crate) num: i64,
    /// String index of the number's unit.
    #[prost(int64, tag = "4")]
    pub(crate) num_unit: i64,
}

/// An executable segment of a file.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Mapping {
    /// Not 0.
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// First address.
    #[prost(uint64, tag = "2")]
    pub(crate) memory_start: u64,
    /// One past the last address.
    #[prost(uint64, tag = "3")]
    pub(crate) memory_limit: u64,
    /// Offset in the file of `memory_start`.
    #[prost(uint64, tag = "4")]
    pub(crate) file_offset: u64,
    /// String index of the path.
    #[prost(int64, tag = "5")]
    pub(crate) filename: i64,
    /// String index of the build id in hexadecimal.
    #[prost(int64, tag = "6")]
    pub(crate) build_id: i64,
    /// Whether function names are final and need no further symbolization.
    #[prost(bool, tag = "7")]
    pub(crate) has_functions: bool,
    /// The same for file names.
    #[prost(bool, tag = "8")]
    pub(crate) has_filenames: bool,
    /// The same for line numbers.
    #[prost(bool, tag = "9")]
    pub(crate) has_line_numbers: bool,
    /// The same for inlined frames.
    #[prost(bool, tag = "10")]
    pub(crate) has_inline_frames: bool,
}

/// An address with its lines.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Location {
    /// Not 0.
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// 0 where the address lies in no known mapping.
    #[prost(uint64, tag = "2")]
    pub(crate) mapping_id: u64,
    /// An address inside the call instruction: the return address less 1.
    #[prost(uint64, tag = "3")]
    pub(crate) address: u64,
    /// Innermost inlined function first; the last is the function that contains the code.
    #[prost(message, repeated, tag = "4")]
    pub(crate) line: Vec<Line>,
    /// Never set here.
    #[prost(bool, tag = "5")]
    pub(crate) is_folded: bool,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Line {
    /// The function's id.
    #[prost(uint64, tag = "1")]
    pub(crate) function_id: u64,
    /// Counted from 1; 0 when unknown.
    #[prost(int64, tag = "2")]
    pub(crate) line: i64,
    /// Counted from 1; 0 when unknown.
    #[prost(int64, tag = "3")]
    pub(crate) column: i64,
}

/// A function; all texts are string indices.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Function {
    /// Not 0.
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// The name shown to people.
    #[prost(int64, tag = "2")]
    pub(crate) name: i64,
    /// The linker's name.
    #[prost(int64, tag = "3")]
    pub(crate) system_name: i64,
    /// The source file.
    #[prost(int64, tag = "4")]
    pub(crate) filename: i64,
    /// First line; 0 when unknown.
    #[prost(int64, tag = "5")]
    pub(crate) start_line: i64,
}
