//! The messages of a Perfetto trace, written by hand from their field numbers: `protos/perfetto/trace` in Perfetto's
//! sources.
//!
//! Only what is written once for a track, a name or a generation is encoded by these; see [`super::event`] for the
//! events. Fields without a presence in the file are zero or empty.

/// One entry of a file, which is a sequence of these.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TracePacket {
    #[prost(message, optional, tag = "6")]
    pub(super) clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    pub(super) trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    pub(super) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub(super) interned_data: Option<InternedData>,
    #[prost(uint32, tag = "13")]
    pub(super) sequence_flags: u32,
    /// 0 is the sequence's own, or else [`clock_id::BOOTTIME`].
    #[prost(uint32, tag = "58")]
    pub(super) timestamp_clock_id: u32,
    #[prost(message, optional, tag = "59")]
    pub(super) trace_packet_defaults: Option<TracePacketDefaults>,
    #[prost(message, optional, tag = "60")]
    pub(super) track_descriptor: Option<TrackDescriptor>,
    #[prost(message, optional, tag = "66")]
    pub(super) perf_sample: Option<PerfSample>,
}

/// `TracePacket.sequence_flags`: interned data and defaults of this sequence are void from here on.
pub(super) const INCREMENTAL_STATE_CLEARED: u32 = 1;

/// One moment on several clocks.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub(super) clocks: Vec<Clock>,
}

/// The reading of one clock.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Clock {
    #[prost(uint32, tag = "1")]
    pub(super) clock_id: u32,
    /// In nanoseconds.
    #[prost(uint64, tag = "2")]
    pub(super) timestamp: u64,
    /// Whether each reading is the distance from the one before, in the same sequence.
    #[prost(bool, tag = "3")]
    pub(super) is_incremental: bool,
}

/// The numbers of clocks. Those from 64 on belong to a sequence.
pub(super) mod clock_id {
    pub(crate) const REALTIME: u32 = 1;
    pub(crate) const MONOTONIC: u32 = 3;
    pub(crate) const BOOTTIME: u32 = 6;
    /// Nanoseconds since the packet before.
    pub(crate) const INCREMENTAL: u32 = 64;
}

/// What holds for the packets of a sequence that do not say otherwise.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct TracePacketDefaults {
    #[prost(message, optional, tag = "11")]
    pub(super) track_event_defaults: Option<TrackEventDefaults>,
    #[prost(uint32, tag = "58")]
    pub(super) timestamp_clock_id: u32,
}

/// The track of events that name none.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct TrackEventDefaults {
    #[prost(uint64, tag = "11")]
    pub(super) track_uuid: u64,
}

/// An event whose name is in no table.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TrackEvent {
    #[prost(uint32, tag = "9")]
    pub(super) r#type: u32,
    #[prost(uint64, tag = "11")]
    pub(super) track_uuid: u64,
    #[prost(string, repeated, tag = "22")]
    pub(super) categories: Vec<String>,
    #[prost(string, tag = "23")]
    pub(super) name: String,
}

/// `TrackEvent.Type`.
pub(super) const SLICE_BEGIN: u32 = 1;

/// A track. With a process or a thread it belongs to that, else to its parent.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    pub(super) uuid: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(message, optional, tag = "3")]
    pub(super) process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub(super) thread: Option<ThreadDescriptor>,
    #[prost(uint64, tag = "5")]
    pub(super) parent_uuid: u64,
    #[prost(message, optional, tag = "8")]
    pub(super) counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProcessDescriptor {
    #[prost(int32, tag = "1")]
    pub(super) pid: i32,
    #[prost(string, tag = "6")]
    pub(super) process_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ThreadDescriptor {
    #[prost(int32, tag = "1")]
    pub(super) pid: i32,
    #[prost(int64, tag = "2")]
    pub(super) tid: i64,
    #[prost(string, tag = "5")]
    pub(super) thread_name: String,
}

/// Makes a track one of numbers.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct CounterDescriptor {
    #[prost(uint32, tag = "3")]
    pub(super) unit: u32,
}

/// `CounterDescriptor.Unit`.
pub(super) mod unit {
    pub(crate) const COUNT: u32 = 2;
    pub(crate) const SIZE_BYTES: u32 = 3;
}

/// Texts and stacks to which the packets of a sequence refer by id.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub(super) event_categories: Vec<Named>,
    #[prost(message, repeated, tag = "2")]
    pub(super) event_names: Vec<Named>,
    #[prost(message, repeated, tag = "3")]
    pub(super) debug_annotation_names: Vec<Named>,
    #[prost(message, repeated, tag = "5")]
    pub(super) function_names: Vec<Named>,
    #[prost(message, repeated, tag = "6")]
    pub(super) frames: Vec<Frame>,
    #[prost(message, repeated, tag = "7")]
    pub(super) callstacks: Vec<Callstack>,
    #[prost(message, repeated, tag = "17")]
    pub(super) mapping_paths: Vec<Named>,
    #[prost(message, repeated, tag = "18")]
    pub(super) source_paths: Vec<Named>,
    #[prost(message, repeated, tag = "19")]
    pub(super) mappings: Vec<Mapping>,
    #[prost(message, repeated, tag = "29")]
    pub(super) debug_annotation_string_values: Vec<Named>,
}

/// A text: `EventCategory`, `EventName`, `DebugAnnotationName` and `InternedString` have the same fields.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Named {
    #[prost(uint64, tag = "1")]
    pub(super) iid: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Frame {
    #[prost(uint64, tag = "1")]
    pub(super) iid: u64,
    #[prost(uint64, tag = "2")]
    pub(super) function_name_id: u64,
    #[prost(uint64, tag = "3")]
    pub(super) mapping_id: u64,
    #[prost(uint64, tag = "4")]
    pub(super) rel_pc: u64,
    #[prost(uint64, tag = "5")]
    pub(super) source_path_iid: u64,
    #[prost(uint32, tag = "6")]
    pub(super) line_number: u32,
}

/// A stack, outermost frame first.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Callstack {
    #[prost(uint64, tag = "1")]
    pub(super) iid: u64,
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    pub(super) frame_ids: Vec<u64>,
}

/// A file with code.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Mapping {
    #[prost(uint64, tag = "1")]
    pub(super) iid: u64,
    #[prost(uint64, repeated, packed = "false", tag = "7")]
    pub(super) path_string_ids: Vec<u64>,
}

/// A sample of a thread that used the processor.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct PerfSample {
    #[prost(uint32, tag = "2")]
    pub(super) pid: u32,
    #[prost(uint32, tag = "3")]
    pub(super) tid: u32,
    #[prost(uint64, tag = "4")]
    pub(super) callstack_iid: u64,
    /// `CpuMode`: 2 is the program's own code.
    #[prost(uint32, tag = "5")]
    pub(super) cpu_mode: u32,
}

/// Appends a packet to a file.
pub(super) fn put(out: &mut Vec<u8>, packet: &TracePacket) {
    prost::encoding::message::encode(1, packet, out);
}
