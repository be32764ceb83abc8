//! Parses bytes into streams of events, one for each P, and the tables of strings and stacks.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::event::{ArgumentKind, EventType, LENGTH_PREFIXED, MAX_ARGUMENTS, MAX_LENGTH, NO_PROC};
use super::header::version;
use super::invalid::{Invalid, Violation};
use super::record::Reader;

/// The version that rtprof writes: "go 1.19 trace".
pub(crate) const VERSION: u32 = 19;

/// The versions that both Go 1.27 and Go 1.21 read, and that contain the same events.
const VERSIONS: [u32; 3] = [11, 19, 21];
const FIRST_WITH_SAMPLES: u32 = 19;
const MAX_FRAMES: u64 = 1000;
/// The longest string, and the longest message.
const MAX_BYTES: u64 = 1_000_000;
/// The most findings that are reported. A finding is a fault that does not make the trace unreadable.
const MAX_FINDINGS: usize = 100;

/// An event as in the file.
#[derive(Clone, Debug)]
pub(crate) struct RawEvent {
    pub(crate) event: EventType,
    pub(crate) p: u64,
    /// The goroutine that runs on the P, or that the event names.
    pub(crate) g: u64,
    pub(crate) tick: i64,
    pub(crate) args: [u64; MAX_ARGUMENTS],
    /// Its index among the messages, for a `UserLog`.
    pub(crate) message: usize,
    /// The position of its record.
    pub(crate) offset: usize,
}

impl RawEvent {
    pub(crate) fn args(&self) -> &[u64] {
        &self.args[..self.event.arguments().len()]
    }

    /// Returns the argument of this kind.
    pub(crate) fn argument(&self, kind: ArgumentKind) -> Option<u64> {
        self.event.position(kind).map(|at| self.args[at])
    }
}

/// A frame of a stack, with ids of strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RawFrame {
    pub(crate) pc: u64,
    pub(crate) function: u64,
    pub(crate) file: u64,
    pub(crate) line: u64,
}

/// Faults that do not make the trace unreadable.
#[derive(Debug, Default)]
pub(crate) struct Findings(pub(crate) Vec<Invalid>);

impl Findings {
    pub(crate) fn push(&mut self, invalid: Invalid) {
        if self.0.len() < MAX_FINDINGS {
            self.0.push(invalid);
        }
    }
}

/// The contents of a whole file.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) version: u32,
    pub(crate) ticks_per_second: u64,
    /// The events of each P, in the order of the file, without samples.
    pub(crate) procs: BTreeMap<u64, Vec<RawEvent>>,
    pub(crate) samples: Vec<RawEvent>,
    pub(crate) strings: HashMap<u64, String>,
    pub(crate) stacks: HashMap<u64, Vec<RawFrame>>,
    pub(crate) messages: Vec<String>,
    pub(crate) findings: Findings,
}

/// The state while a file is read.
#[derive(Default)]
struct Context {
    p: Option<u64>,
    tick: i64,
    current: u64,
    /// The last goroutine that ran on each P.
    currents: HashMap<u64, u64>,
    /// Whether a sample has moved the time for Go 1.21, but not for later ones.
    has_moving_sample: bool,
    pcs: HashMap<u64, RawFrame>,
    ambiguous: HashSet<u64>,
}

pub(crate) fn parse(bytes: &[u8]) -> Result<File, Invalid> {
    let Some((header, _)) = bytes.split_at_checked(16) else {
        return Err(Violation::refused("bad file format: not a Go execution trace?").at(0));
    };
    let version = version(header)
        .ok_or_else(|| Violation::refused("bad file format: not a Go execution trace?").at(0))?;
    if !VERSIONS.contains(&version) {
        return Err(Violation::refused(format!("unknown or unsupported trace version go 1.{version}")).at(0));
    }
    let mut file = File { version, ..File::default() };
    let mut context = Context::default();
    let mut reader = Reader::new(bytes, header.len());
    while let Some(first) = reader.byte() {
        let offset = reader.position() - 1;
        file.record(&mut context, &mut reader, first).map_err(|violation| violation.at(offset))?;
    }
    if file.procs.is_empty() && file.samples.is_empty() {
        return Err(Violation::refused("trace is empty").into());
    }
    if file.ticks_per_second == 0 {
        return Err(Violation::refused("no EvFrequency event").into());
    }
    Ok(file)
}

impl File {
    fn record(&mut self, context: &mut Context, reader: &mut Reader<'_>, first: u8) -> Result<(), Violation> {
        let offset = reader.position() - 1;
        let number = first & 0x3f;
        let event = EventType::from_number(number)
            .filter(|&event| event != EventType::CpuSample || self.version >= FIRST_WITH_SAMPLES)
            .ok_or_else(|| Violation::refused(format!("unknown event type {number}")))?;
        if event == EventType::String {
            if context.p.is_none() {
                let text = "a string before the first batch is dropped, and others take its place";
                self.findings.push(Violation::misread(text).at(offset));
            }
            return self.string(reader);
        }
        let bits = first >> 6;
        if event == EventType::Batch && bits != EventType::Batch.argument_bits() {
            let text = format!("EvBatch has wrong number of arguments: got {}, want 2", bits + 1);
            return Err(Violation::refused(text));
        }
        if event != EventType::Batch && context.p.is_none() {
            let text = format!("read event {number} with current P of 0, but P has no batches yet");
            return Err(Violation::refused(text));
        }
        let values = if bits < LENGTH_PREFIXED {
            reader.values(usize::from(bits) + 1)
        } else {
            let length = reader.value()?;
            if length > MAX_LENGTH {
                return Err(Violation::refused(format!(
                    "failed to read event {number} argument: length-prefixed argument too big: {length} bytes, \
                     limit is {MAX_LENGTH}"
                )));
            }
            reader.values_of_length(length)
        }?;
        if event == EventType::Stack {
            return self.stack(context, &values, offset);
        }
        if values.len() != event.values() {
            let (name, wanted, got) = (event.name(), event.values(), values.len());
            let text = format!("{name} has wrong number of arguments: want {wanted}, got {got}");
            return Err(Violation::refused(text));
        }
        match event {
            EventType::Batch => context.begin_batch(values[0], values[1]),
            EventType::Frequency => self.frequency(values[0], offset),
            EventType::TimerGoroutine => Ok(()),
            _ => self.event(context, reader, event, &values, offset),
        }
    }

    fn string(&mut self, reader: &mut Reader<'_>) -> Result<(), Violation> {
        let id = reader.value()?;
        if id == 0 {
            return Err(Violation::refused("string has invalid id 0"));
        }
        if self.strings.contains_key(&id) {
            return Err(Violation::refused(format!("string has duplicate id {id}")));
        }
        let length = reader.value()?;
        if length == 0 {
            return Err(Violation::refused("string has invalid length 0"));
        }
        if length > MAX_BYTES {
            return Err(Violation::refused(format!("string has too large length {length}")));
        }
        self.strings.insert(id, reader.text(length)?);
        Ok(())
    }

    fn frequency(&mut self, ticks_per_second: u64, offset: usize) -> Result<(), Violation> {
        if ticks_per_second == 0 || i64::try_from(ticks_per_second).is_err() {
            return Err(Violation::refused("time stamps out of order"));
        }
        if self.ticks_per_second != 0 {
            self.findings.push(Violation::misread("a second Frequency replaces the first").at(offset));
        }
        self.ticks_per_second = ticks_per_second;
        Ok(())
    }

    fn stack(&mut self, context: &mut Context, values: &[u64], offset: usize) -> Result<(), Violation> {
        let &[id, size, ref rest @ ..] = values else {
            let text =
                format!("EvStack has wrong number of arguments: want at least 2, got {}", values.len());
            return Err(Violation::refused(text));
        };
        if size > MAX_FRAMES {
            return Err(Violation::refused(format!("EvStack has bad number of frames: {size}")));
        }
        let wanted = 2 + 4 * size as usize;
        if values.len() != wanted {
            let got = values.len();
            let text = format!("EvStack has wrong number of arguments: want {wanted}, got {got}");
            return Err(Violation::refused(text));
        }
        let mut misread = |text: String| self.findings.push(Violation::misread(text).at(offset));
        if id == 0 || size == 0 {
            misread(format!("stack {id} of {size} frames is ignored"));
            return Ok(());
        }
        if u32::try_from(id).is_err() {
            misread(format!("stack {id} is known by the lower 32 bits of its id"));
        }
        let frames: Vec<RawFrame> = rest
            .chunks_exact(4)
            .map(|frame| RawFrame { pc: frame[0], function: frame[1], file: frame[2], line: frame[3] })
            .collect();
        for frame in &frames {
            let known = *context.pcs.entry(frame.pc).or_insert(*frame);
            if known != *frame && context.ambiguous.insert(frame.pc) {
                misread(format!("PC {:#x} names two frames, and only the first is shown", frame.pc));
            }
        }
        if self.stacks.insert(id, frames).is_some() {
            misread(format!("stack {id} is defined twice, and the later takes the earlier's place"));
        }
        Ok(())
    }

    fn event(
        &mut self,
        context: &mut Context,
        reader: &mut Reader<'_>,
        event: EventType,
        values: &[u64],
        offset: usize,
    ) -> Result<(), Violation> {
        let mut args = [0; MAX_ARGUMENTS];
        args[..values.len() - 1].copy_from_slice(&values[1..]);
        let p = context.p.unwrap_or(NO_PROC);
        if event == EventType::CpuSample {
            context.has_moving_sample |= values[0] != 0;
            let [tick, p, g, _] = args;
            self.samples.push(RawEvent { event, p, g, tick: tick as i64, args, message: 0, offset });
            return Ok(());
        }
        if context.has_moving_sample {
            let text = "a sample stands among events of a P; Go 1.21 adds its delta to their times";
            self.findings.push(Violation::misread(text).at(offset));
            context.has_moving_sample = false;
        }
        context.tick = context.tick.wrapping_add(values[0] as i64);
        let g = if event.happens_on_argument() { args[0] } else { context.current };
        if event.starts() {
            context.current = g;
        } else if event.leaves() {
            context.current = 0;
        }
        let mut message = 0;
        if event == EventType::UserLog {
            let length = reader.value()?;
            if length > MAX_BYTES {
                return Err(Violation::refused(format!("string is too large (len={length})")));
            }
            message = self.messages.len();
            self.messages.push(reader.text(length)?);
        }
        let raw = RawEvent { event, p, g, tick: context.tick, args, message, offset };
        self.procs.entry(p).or_default().push(raw);
        Ok(())
    }
}

impl Context {
    fn begin_batch(&mut self, p: u64, tick: u64) -> Result<(), Violation> {
        if p != NO_PROC && i32::try_from(p).is_err() {
            let max = i32::MAX;
            return Err(Violation::refused(format!("processor ID {p} is larger than maximum of {max}")));
        }
        if let Some(before) = self.p.replace(p) {
            self.currents.insert(before, self.current);
        }
        self.current = self.currents.get(&p).copied().unwrap_or(0);
        self.tick = tick as i64;
        self.has_moving_sample = false;
        Ok(())
    }
}
