//! Reads packets as trace_processor does: each sequence has its own clock, texts and defaults.

use std::collections::HashMap;
use std::rc::Rc;

use prost::Message;

use super::proto::{self, InternedData, TracePacket};
use super::trace::{Event, EventKind, Frame, Sample, Track};

/// The clock of the system to which all times are converted.
const BOOTTIME: u32 = 6;
/// The first clock that belongs to a sequence.
const FIRST_OF_SEQUENCE: u32 = 64;
/// `TracePacket.sequence_flags`.
const CLEARED: u32 = 1;

/// All that a file says, in the order of the file.
#[derive(Default)]
pub(super) struct Read {
    pub(super) tracks: HashMap<u64, Track>,
    pub(super) events: Vec<Event>,
    pub(super) samples: Vec<Sample>,
    sequences: HashMap<u32, Sequence>,
}

/// What a reader knows of a sequence.
#[derive(Default)]
struct Sequence {
    /// The number of generations that have begun.
    generation: u32,
    clock: u32,
    /// The present time of its incremental clock.
    incremental: Option<u64>,
    track: u64,
    texts: HashMap<(Kind, u64), Rc<str>>,
    frames: HashMap<u64, Frame>,
    stacks: HashMap<u64, Rc<[Frame]>>,
    /// The time of its last packet.
    last: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Category,
    Name,
    AnnotationName,
    AnnotationText,
    Function,
    Path,
}

impl Read {
    /// Reads a file of whole packets.
    pub(super) fn file(mut bytes: &[u8]) -> Result<Self, String> {
        let mut read = Self::default();
        let whole = bytes.len();
        while !bytes.is_empty() {
            let at = whole - bytes.len();
            let broken = |error: prost::DecodeError| format!("at byte {at}: {error}");
            let (number, wire) = prost::encoding::decode_key(&mut bytes).map_err(broken)?;
            if (number, wire) != (1, prost::encoding::WireType::LengthDelimited) {
                return Err(format!("at byte {at}: field {number} is no packet"));
            }
            let len = prost::encoding::decode_varint(&mut bytes).map_err(broken)? as usize;
            let packet = bytes.get(..len).ok_or_else(|| format!("at byte {at}: the packet is cut"))?;
            bytes = &bytes[len..];
            let decoded = TracePacket::decode(packet).map_err(broken)?;
            // A field that is not in the messages would be missing.
            if decoded.encoded_len() != len {
                return Err(format!("at byte {at}: it has an unknown field: {decoded:?}, {packet:02x?}"));
            }
            read.packet(decoded).map_err(|error| format!("at byte {at}: {error}"))?;
        }
        Ok(read)
    }

    fn packet(&mut self, packet: TracePacket) -> Result<(), String> {
        let id = packet.trusted_packet_sequence_id.filter(|&id| id != 0).ok_or("no sequence")?;
        let sequence = self.sequences.entry(id).or_default();
        if packet.sequence_flags.unwrap_or(0) & CLEARED != 0 {
            let Sequence { last, generation, .. } = *sequence;
            *sequence = Sequence { generation: generation + 1, last, ..Sequence::default() };
        }
        if let Some(defaults) = packet.trace_packet_defaults {
            sequence.clock = defaults.timestamp_clock_id.unwrap_or(BOOTTIME);
            sequence.track = defaults.track_event_defaults.and_then(|it| it.track_uuid).unwrap_or(0);
        }
        if let Some(snapshot) = &packet.clock_snapshot {
            sequence.snapshot(snapshot)?;
        }
        if let Some(data) = packet.interned_data {
            sequence.intern(data)?;
        }
        let clock = packet.timestamp_clock_id.unwrap_or(sequence.clock);
        let time = packet.timestamp.map(|timestamp| sequence.time(clock, timestamp)).transpose()?;
        if let Some(event) = packet.track_event {
            let event = sequence.event(id, time.ok_or("an event without a time")?, event)?;
            if !self.tracks.contains_key(&event.track) {
                return Err(format!("{event:?}: its track is not described yet"));
            }
            self.events.push(event);
        }
        if let Some(descriptor) = packet.track_descriptor {
            self.describe(descriptor)?;
        }
        if let Some(sample) = packet.perf_sample {
            let sequence = self.sequences.get(&id).ok_or("no sequence")?;
            self.samples.push(sequence.sample(time.ok_or("a sample without a time")?, sample)?);
        }
        Ok(())
    }

    fn describe(&mut self, descriptor: proto::TrackDescriptor) -> Result<(), String> {
        let uuid = descriptor.uuid.filter(|&uuid| uuid != 0).ok_or("a track without a number")?;
        let parent = descriptor.parent_uuid.unwrap_or(0);
        if parent != 0 && !self.tracks.contains_key(&parent) {
            return Err(format!("{descriptor:?}: its parent is not described yet"));
        }
        let thread = descriptor.thread.as_ref().map(|thread| thread.tid.unwrap_or(0));
        let name = match &descriptor {
            proto::TrackDescriptor { process: Some(process), .. } => process.process_name.clone(),
            proto::TrackDescriptor { thread: Some(thread), .. } => thread.thread_name.clone(),
            track => track.name.clone(),
        };
        let is_counter = descriptor.counter.is_some();
        let track = Track { name: name.unwrap_or_default(), parent, thread, is_counter };
        if let Some(before) = self.tracks.get(&uuid)
            && (before.parent, before.is_counter) != (track.parent, track.is_counter)
        {
            return Err(format!("track {uuid} was {before:?}, now {track:?}"));
        }
        self.tracks.insert(uuid, track);
        Ok(())
    }
}

impl Sequence {
    fn snapshot(&mut self, snapshot: &proto::ClockSnapshot) -> Result<(), String> {
        let of = |wanted: u32| snapshot.clocks.iter().find(|clock| clock.clock_id == Some(wanted));
        let boot =
            of(BOOTTIME).and_then(|clock| clock.timestamp).ok_or("a snapshot without the boot time")?;
        if let Some(own) = snapshot.clocks.iter().find(|it| it.clock_id >= Some(FIRST_OF_SEQUENCE)) {
            if own.is_incremental != Some(true) || own.timestamp != Some(boot) {
                return Err(format!("{own:?} at {boot}"));
            }
            self.incremental = Some(boot);
        }
        Ok(())
    }

    /// Returns the time since boot of a packet, by this clock. It must not be before the one before.
    fn time(&mut self, clock: u32, timestamp: u64) -> Result<u64, String> {
        let time = match clock {
            FIRST_OF_SEQUENCE => {
                let now = self.incremental.as_mut().ok_or("no snapshot of the clock")?;
                *now += timestamp;
                *now
            }
            0 | BOOTTIME => timestamp,
            other => return Err(format!("clock {other}")),
        };
        if time < self.last {
            return Err(format!("{time} is before the last packet's time, {}", self.last));
        }
        self.last = time;
        Ok(time)
    }

    fn intern(&mut self, data: InternedData) -> Result<(), String> {
        if self.generation == 0 {
            return Err("interned data before the sequence has begun".into());
        }
        for (kind, texts) in [
            (Kind::Category, data.event_categories),
            (Kind::Name, data.event_names),
            (Kind::AnnotationName, data.debug_annotation_names),
            (Kind::AnnotationText, data.debug_annotation_string_values),
            (Kind::Function, data.function_names),
            (Kind::Path, data.source_paths),
        ] {
            for text in texts {
                let iid = text.iid.filter(|&iid| iid != 0).ok_or("a text without an id")?;
                let text: Rc<str> = text.text.unwrap_or_default().into();
                if self.texts.insert((kind, iid), text).is_some() {
                    return Err(format!("{kind:?} {iid} is defined twice"));
                }
            }
        }
        let paths: Vec<_> = data.mapping_paths.iter().map(|path| path.iid).collect();
        for mapping in &data.mappings {
            if let Some(unknown) = mapping.path_string_ids.iter().find(|id| !paths.contains(&Some(**id))) {
                return Err(format!("unknown path {unknown} of a mapping"));
            }
        }
        for frame in data.frames {
            if !data.mappings.iter().any(|mapping| mapping.iid == frame.mapping_id) {
                return Err(format!("unknown mapping of {frame:?}"));
            }
            let function = self.text(Kind::Function, frame.function_name_id)?.ok_or("no function")?;
            let file = self.text(Kind::Path, frame.source_path_iid)?;
            let line = frame.line_number.unwrap_or(0);
            self.frames.insert(frame.iid.ok_or("no id")?, Frame { function, file, line });
        }
        for stack in data.callstacks {
            let frame = |id: &u64| self.frames.get(id).cloned().ok_or_else(|| format!("unknown frame {id}"));
            // Leaf first, as in Go's formats.
            let frames = stack.frame_ids.iter().rev().map(frame).collect::<Result<_, _>>()?;
            self.stacks.insert(stack.iid.filter(|&iid| iid != 0).ok_or("a stack without an id")?, frames);
        }
        Ok(())
    }

    fn text(&self, kind: Kind, iid: Option<u64>) -> Result<Option<Rc<str>>, String> {
        let known = |iid| self.texts.get(&(kind, iid)).cloned().ok_or(format!("unknown {kind:?} {iid}"));
        iid.map(known).transpose()
    }

    fn stack(&self, iid: Option<u64>) -> Result<Rc<[Frame]>, String> {
        let Some(iid) = iid else { return Ok(Rc::default()) };
        self.stacks.get(&iid).cloned().ok_or_else(|| format!("unknown stack {iid}"))
    }

    fn sample(&self, time: u64, sample: proto::PerfSample) -> Result<Sample, String> {
        let stack = self.stack(sample.callstack_iid)?;
        Ok(Sample { time, thread: sample.tid.unwrap_or(0), stack })
    }

    fn event(&self, sequence: u32, time: u64, event: proto::TrackEvent) -> Result<Event, String> {
        let kind = match event.r#type {
            Some(1) => EventKind::Begin,
            Some(2) => EventKind::End,
            Some(3) => EventKind::Instant,
            Some(4) => EventKind::Counter(event.counter_value.ok_or("a counter without a value")?),
            other => return Err(format!("type {other:?} of an event")),
        };
        let mut annotations = Vec::new();
        for annotation in &event.debug_annotations {
            let name = self.text(Kind::AnnotationName, annotation.name_iid)?.ok_or("no name")?;
            let value = match (annotation.uint_value, annotation.string_value_iid) {
                (Some(number), None) => number.to_string().into(),
                (None, text) => self.text(Kind::AnnotationText, text)?.ok_or("no value")?,
                _ => return Err(format!("{annotation:?}")),
            };
            annotations.push((name, value));
        }
        if event.category_iids.len() + event.categories.len() > 1 {
            return Err(format!("several categories: {event:?}"));
        }
        let name = match (event.name_iid, &event.name) {
            (iid, None) => self.text(Kind::Name, iid)?.unwrap_or_default(),
            (None, Some(name)) => name.as_str().into(),
            _ => return Err(format!("two names: {event:?}")),
        };
        let category = match event.categories.first() {
            Some(category) => category.as_str().into(),
            None => self.text(Kind::Category, event.category_iids.first().copied())?.unwrap_or_default(),
        };
        Ok(Event {
            time,
            sequence,
            generation: self.generation,
            track: event.track_uuid.unwrap_or(self.track),
            kind,
            name,
            category,
            stack: self.stack(event.callstack_iid)?,
            annotations,
            flows: event.flow_ids,
            ended_flows: event.terminating_flow_ids,
        })
    }
}
