//! The messages of Perfetto that rtprof writes, with the numbers of their fields. Written apart from the encoder's, so
//! that a wrong number there is seen here.

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TracePacket {
    #[prost(message, optional, tag = "6")]
    pub(super) clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(super) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub(super) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub(super) interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub(super) sequence_flags: Option<u32>,
    #[prost(uint32, optional, tag = "58")]
    pub(super) timestamp_clock_id: Option<u32>,
    #[prost(message, optional, tag = "59")]
    pub(super) trace_packet_defaults: Option<TracePacketDefaults>,
    #[prost(message, optional, tag = "60")]
    pub(super) track_descriptor: Option<TrackDescriptor>,
    #[prost(message, optional, tag = "66")]
    pub(super) perf_sample: Option<PerfSample>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub(super) clocks: Vec<Clock>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Clock {
    #[prost(uint32, optional, tag = "1")]
    pub(super) clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) timestamp: Option<u64>,
    #[prost(bool, optional, tag = "3")]
    pub(super) is_incremental: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct TracePacketDefaults {
    #[prost(message, optional, tag = "11")]
    pub(super) track_event_defaults: Option<TrackEventDefaults>,
    #[prost(uint32, optional, tag = "58")]
    pub(super) timestamp_clock_id: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct TrackEventDefaults {
    #[prost(uint64, optional, tag = "11")]
    pub(super) track_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub(super) category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub(super) debug_annotations: Vec<DebugAnnotation>,
    #[prost(uint32, optional, tag = "9")]
    pub(super) r#type: Option<u32>,
    #[prost(uint64, optional, tag = "10")]
    pub(super) name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub(super) track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    pub(super) categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    pub(super) name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    pub(super) counter_value: Option<i64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub(super) flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub(super) terminating_flow_ids: Vec<u64>,
    #[prost(uint64, optional, tag = "56")]
    pub(super) callstack_iid: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    pub(super) name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) uint_value: Option<u64>,
    #[prost(uint64, optional, tag = "17")]
    pub(super) string_value_iid: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(super) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(super) process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub(super) thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(super) counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(super) pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(super) process_name: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(super) pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub(super) tid: Option<i64>,
    #[prost(string, optional, tag = "5")]
    pub(super) thread_name: Option<String>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct CounterDescriptor {
    #[prost(uint32, optional, tag = "3")]
    pub(super) unit: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub(super) event_categories: Vec<Text>,
    #[prost(message, repeated, tag = "2")]
    pub(super) event_names: Vec<Text>,
    #[prost(message, repeated, tag = "3")]
    pub(super) debug_annotation_names: Vec<Text>,
    #[prost(message, repeated, tag = "5")]
    pub(super) function_names: Vec<Text>,
    #[prost(message, repeated, tag = "6")]
    pub(super) frames: Vec<Frame>,
    #[prost(message, repeated, tag = "7")]
    pub(super) callstacks: Vec<Callstack>,
    #[prost(message, repeated, tag = "17")]
    pub(super) mapping_paths: Vec<Text>,
    #[prost(message, repeated, tag = "18")]
    pub(super) source_paths: Vec<Text>,
    #[prost(message, repeated, tag = "19")]
    pub(super) mappings: Vec<Mapping>,
    #[prost(message, repeated, tag = "29")]
    pub(super) debug_annotation_string_values: Vec<Text>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Text {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) text: Option<String>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Frame {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) function_name_id: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) mapping_id: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(super) rel_pc: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) source_path_iid: Option<u64>,
    #[prost(uint32, optional, tag = "6")]
    pub(super) line_number: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Callstack {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    pub(super) frame_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Mapping {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "7")]
    pub(super) path_string_ids: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct PerfSample {
    #[prost(uint32, optional, tag = "2")]
    pub(super) pid: Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    pub(super) tid: Option<u32>,
    #[prost(uint64, optional, tag = "4")]
    pub(super) callstack_iid: Option<u64>,
    #[prost(uint32, optional, tag = "5")]
    pub(super) cpu_mode: Option<u32>,
}
