//! Splits a file into generations, and decodes their tables. Go: `readGeneration`.

use std::collections::{BTreeMap, HashMap};

use crate::invalid::{Invalid, Violation};
use crate::parse::RawFrame;
use crate::record::Reader;

use super::specs::record;
use super::versions::{WITH_END, WITH_SNAPSHOT};

const MAX_BATCH: u64 = 64 << 10;
const MAX_STRING: u64 = 1024;
const MAX_FRAMES: u64 = 128;

/// A part of a thread's events.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    pub(super) time: u64,
    pub(super) bytes: &'a [u8],
    /// The position of `bytes` in the file.
    pub(super) offset: usize,
}

/// A CPU sample: time, thread, P, goroutine and stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) values: [u64; 5],
    pub(super) offset: usize,
}

/// A complete generation.
#[derive(Debug, Default)]
pub(super) struct Generation<'a> {
    pub(super) number: u64,
    /// The tick of its oldest batch.
    pub(super) begin: u64,
    pub(super) ticks_per_second: u64,
    has_snapshot: bool,
    /// The events of each thread.
    pub(super) threads: BTreeMap<u64, Vec<Batch<'a>>>,
    pub(super) samples: Vec<Sample>,
    pub(super) strings: BTreeMap<u64, &'a str>,
    pub(super) stacks: BTreeMap<u64, Vec<RawFrame>>,
    /// The first frame with each PC.
    pcs: HashMap<u64, RawFrame>,
    pub(super) findings: Vec<Invalid>,
}

/// The generations of a file.
pub(super) struct Generations<'a> {
    bytes: &'a [u8],
    at: usize,
    version: u32,
    fault: Option<Invalid>,
}

struct Head {
    generation: u64,
    thread: u64,
    time: u64,
}

fn refused(text: impl Into<String>) -> Violation {
    Violation::refused(text)
}

impl<'a> Generations<'a> {
    pub(super) fn new(bytes: &'a [u8], version: u32) -> Self {
        Self { bytes, at: 16, version, fault: None }
    }

    /// Returns the fault after the last complete generation, if any.
    pub(super) fn fault(&mut self) -> Option<Invalid> {
        self.fault.take()
    }

    /// Returns the next generation; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Generation<'a>>, Invalid> {
        let mut generation = Generation::default();
        let mut is_empty = true;
        loop {
            let begin = self.at;
            if begin == self.bytes.len() {
                if is_empty {
                    return Ok(None);
                }
                if self.version >= WITH_END {
                    return Err(refused("incomplete generation found; trace likely truncated").into());
                }
                break;
            }
            if self.version >= WITH_END && self.bytes[begin] == record::END_OF_GENERATION {
                self.at += 1;
                break;
            }
            let (head, batch) = match self.batch() {
                Ok(read) => read,
                // The generation before a batch that was cut is taken for complete.
                Err(fault) if !is_empty && self.version < WITH_END => {
                    self.at = self.bytes.len();
                    self.fault = Some(fault);
                    break;
                }
                Err(fault) => return Err(fault),
            };
            if head.generation == 0 {
                return Err(refused("invalid generation number 0").at(begin));
            }
            if is_empty {
                generation.number = head.generation;
            } else if self.version < WITH_END && head.generation == generation.number.wrapping_add(1) {
                self.at = begin;
                break;
            } else if head.generation != generation.number {
                let text = "missing end-of-generation event, or generations are interleaved";
                return Err(refused(text).at(begin));
            }
            is_empty = false;
            generation.batch(self.version, head, batch).map_err(|violation| violation.at(begin))?;
        }
        generation.check(self.version)?;
        Ok(Some(generation))
    }

    fn batch(&mut self) -> Result<(Head, Batch<'a>), Invalid> {
        let begin = self.at;
        let mut reader = Reader::new(self.bytes, begin);
        let read = |reader: &mut Reader<'a>| -> Result<(Head, Batch<'a>), Violation> {
            let kind = reader.byte().unwrap_or(0);
            if kind != record::EVENT_BATCH {
                return Err(refused(format!("expected batch event, got event {kind}")));
            }
            let head = Head { generation: reader.value()?, thread: reader.value()?, time: reader.value()? };
            let size = reader.value()?;
            if size > MAX_BATCH {
                return Err(refused(format!("invalid batch size {size}, maximum is {MAX_BATCH}")));
            }
            let offset = reader.position();
            let bytes = reader.bytes(size).map_err(|_| refused("failed to read full batch"))?;
            Ok((head, Batch { time: 0, bytes, offset }))
        };
        let (head, mut batch) = read(&mut reader).map_err(|violation| violation.at(begin))?;
        batch.time = head.time;
        self.at = reader.position();
        Ok((head, batch))
    }
}

impl<'a> Generation<'a> {
    fn batch(&mut self, version: u32, head: Head, batch: Batch<'a>) -> Result<(), Violation> {
        if self.begin == 0 || head.time < self.begin {
            self.begin = head.time;
        }
        let sync = if version >= WITH_SNAPSHOT { record::SYNC } else { record::FREQUENCY };
        match batch.bytes.first() {
            Some(&record::STRINGS) => self.strings(batch.bytes),
            Some(&record::STACKS) => self.stacks(batch.bytes, batch.offset),
            Some(&record::CPU_SAMPLES) => self.samples(batch.bytes, batch.offset),
            Some(&first) if first == sync => self.clock(version, batch.bytes),
            _ => {
                self.threads.entry(head.thread).or_default().push(batch);
                Ok(())
            }
        }
    }

    fn strings(&mut self, bytes: &'a [u8]) -> Result<(), Violation> {
        let mut reader = Reader::new(bytes, 1);
        while let Some(kind) = reader.byte() {
            if kind != record::STRING {
                return Err(refused(format!("expected string event, got {kind}")));
            }
            let (id, length) = (reader.value()?, reader.value()?);
            if length > MAX_STRING {
                return Err(refused(format!("invalid string size {length}, maximum is {MAX_STRING}")));
            }
            let text = std::str::from_utf8(reader.bytes(length)?);
            let text = text.map_err(|_| Violation::misread(format!("string {id} is not UTF-8")))?;
            if id == 0 || text.is_empty() {
                return Err(Violation::misread(format!("string {id} is {text:?}")));
            }
            if self.strings.insert(id, text).is_some() {
                return Err(refused(format!("multiple strings with the same ID: id={id}, new={text}")));
            }
        }
        Ok(())
    }

    fn stacks(&mut self, bytes: &[u8], offset: usize) -> Result<(), Violation> {
        let mut reader = Reader::new(bytes, 1);
        while let Some(kind) = reader.byte() {
            let at = offset + reader.position() - 1;
            if kind != record::STACK {
                return Err(refused(format!("expected stack event, got {kind}")));
            }
            let (id, count) = (reader.value()?, reader.value()?);
            if count > MAX_FRAMES {
                return Err(refused(format!("invalid stack size {count}, maximum is {MAX_FRAMES}")));
            }
            let mut frames = Vec::new();
            for _ in 0..count {
                let [pc, function, file, line] =
                    [reader.value()?, reader.value()?, reader.value()?, reader.value()?];
                let frame = RawFrame { pc, function, file, line };
                let first = *self.pcs.entry(pc).or_insert(frame);
                if first != frame {
                    let text = format!("PC {pc:#x} names two frames, and only the first is shown");
                    self.findings.push(Violation::misread(text).at(at));
                }
                frames.push(first);
            }
            if id == 0 || frames.is_empty() {
                return Err(Violation::misread(format!("stack {id} of {count} frames")));
            }
            if self.stacks.insert(id, frames).is_some() {
                return Err(refused(format!("multiple stacks with the same ID: id={id}")));
            }
        }
        Ok(())
    }

    fn samples(&mut self, bytes: &[u8], offset: usize) -> Result<(), Violation> {
        let mut reader = Reader::new(bytes, 1);
        while let Some(kind) = reader.byte() {
            let offset = offset + reader.position() - 1;
            if kind != record::CPU_SAMPLE {
                return Err(refused(format!("expected CPU sample event, got {kind}")));
            }
            let mut values = [0; 5];
            for value in &mut values {
                *value = reader.value()?;
            }
            self.samples.push(Sample { values, offset });
        }
        Ok(())
    }

    fn clock(&mut self, version: u32, bytes: &[u8]) -> Result<(), Violation> {
        let mut reader = Reader::new(bytes, usize::from(version >= WITH_SNAPSHOT));
        while let Some(kind) = reader.byte() {
            match kind {
                record::FREQUENCY if self.ticks_per_second != 0 => {
                    return Err(refused("found multiple frequency events"));
                }
                record::FREQUENCY => self.ticks_per_second = reader.value()?,
                record::CLOCK_SNAPSHOT if self.has_snapshot => {
                    return Err(refused("found multiple clock snapshot events"));
                }
                record::CLOCK_SNAPSHOT if version >= WITH_SNAPSHOT => {
                    reader.values(4)?;
                    self.has_snapshot = true;
                }
                _ => {
                    let text = format!("expected frequency or clock snapshot event, got {kind}");
                    return Err(refused(text));
                }
            }
        }
        Ok(())
    }

    fn check(&mut self, version: u32) -> Result<(), Invalid> {
        if self.ticks_per_second == 0 {
            return Err(refused("no frequency event found").into());
        }
        if !1_000_000_000_u64.is_multiple_of(self.ticks_per_second) {
            // The tools round the time from one event to the next down to nanoseconds.
            let text = format!("a clock of {} ticks a second drifts", self.ticks_per_second);
            self.findings.push(Violation::misread(text).into());
        }
        if version >= WITH_SNAPSHOT && !self.has_snapshot {
            return Err(refused("no clock snapshot event found").into());
        }
        for (id, frames) in &self.stacks {
            for string in frames.iter().flat_map(|frame| [frame.function, frame.file]) {
                if string != 0 && !self.strings.contains_key(&string) {
                    return Err(refused(format!("found invalid string ID {string} for stack {id}")).into());
                }
            }
        }
        self.samples.sort_by_key(|sample| sample.values[0]);
        Ok(())
    }
}
