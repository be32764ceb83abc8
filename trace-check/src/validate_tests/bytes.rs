//! Writes traces, valid and invalid ones, byte by byte. Independent of the encoder; of the event table it uses only the
//! numbers.

use prost::encoding::encode_varint;

use crate::event::EventType as E;

/// The tick at which the sample trace begins.
pub(super) const T0: u64 = 1_000_000;

pub(super) fn numbers(values: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &value in values {
        encode_varint(value, &mut bytes);
    }
    bytes
}

/// Encodes a record: type, the two bits, and the values, preceded by their length if the bits are 3.
pub(super) fn record(number_of_type: u8, bits: u8, values: &[u64]) -> Vec<u8> {
    let mut bytes = vec![number_of_type | bits << 6];
    let body = numbers(values);
    if bits == 3 {
        encode_varint(body.len() as u64, &mut bytes);
    }
    bytes.extend(body);
    bytes
}

/// Encodes a timed event, `delta` ticks after the previous one.
pub(super) fn event(event: E, delta: u64, args: &[u64]) -> Vec<u8> {
    let values: Vec<u64> = [&[delta], args].concat();
    record(event.number(), args.len().min(3) as u8, &values)
}

pub(super) fn batch(p: u64, tick: u64) -> Vec<u8> {
    record(1, 1, &[p, tick])
}

pub(super) fn frequency(ticks_per_second: u64) -> Vec<u8> {
    record(2, 0, &[ticks_per_second])
}

pub(super) fn string(id: u64, text: &[u8]) -> Vec<u8> {
    let mut bytes = record(37, 0, &[id]);
    encode_varint(text.len() as u64, &mut bytes);
    bytes.extend(text);
    bytes
}

pub(super) fn stack(id: u64, frames: &[[u64; 4]]) -> Vec<u8> {
    record(3, 3, &[&[id, frames.len() as u64], frames.concat().as_slice()].concat())
}

/// An element of a batch.
#[derive(Clone)]
pub(super) enum Item {
    /// An event at a tick after [`T0`], with the bytes that follow its record.
    At(u64, E, Vec<u64>, Vec<u8>),
    /// Bytes.
    Raw(Vec<u8>),
}

/// A trace of two Ps and three goroutines, for tests to change and write.
#[derive(Clone)]
pub(super) struct Trace {
    pub(super) header: Vec<u8>,
    pub(super) items: [Vec<(&'static str, Item)>; 2],
    /// The P of each of the two batches, and the tick at which it begins.
    pub(super) ps: [u64; 2],
    pub(super) bases: [u64; 2],
    /// The sections after the batches.
    pub(super) samples: Vec<u8>,
    pub(super) frequency: Vec<u8>,
    pub(super) strings: Vec<(u64, Vec<u8>)>,
    pub(super) stacks: Vec<(u64, Vec<[u64; 4]>)>,
    /// Bytes written before everything but the header.
    pub(super) front: Vec<u8>,
    pub(super) end: Vec<u8>,
}

const STRINGS: [&str; 13] = [
    "app::main",
    "src/main.rs",
    "app::worker",
    "app::helper",
    "std::sync::Mutex::lock",
    "mutex.rs",
    "request",
    "parse",
    "key",
    "idle-label",
    "thread/worker-a",
    "thread/worker-b",
    "app::compute",
];
const MAIN: [u64; 4] = [0x1001, 1, 2, 10];
const SPAWN: [u64; 4] = [0x1002, 1, 2, 12];
const LOCK: [u64; 4] = [0x1003, 5, 6, 99];
const WORKER: [u64; 4] = [0x1004, 3, 2, 40];
const HELPER: [u64; 4] = [0x1005, 4, 2, 60];
const A: [u64; 4] = [0x1006, 11, 2, 1];
const B: [u64; 4] = [0x1007, 12, 2, 1];
const COMPUTE: [u64; 4] = [0x1008, 13, 2, 77];

impl Trace {
    /// A valid trace.
    pub(super) fn new() -> Self {
        let at = |label, tick, event, args: &[u64]| (label, Item::At(tick, event, args.to_vec(), Vec::new()));
        let first = vec![
            at("gomaxprocs", 10, E::Gomaxprocs, &[2, 0]),
            at("p0start", 11, E::ProcStart, &[1]),
            at("create1", 16, E::GoCreate, &[1, 1, 0]),
            at("start1", 21, E::GoStartLocal, &[1]),
            at("create2", 31, E::GoCreate, &[2, 3, 2]),
            at("create3", 41, E::GoCreate, &[3, 4, 2]),
            at("alloc", 46, E::HeapAlloc, &[4 << 20]),
            at("goal", 47, E::HeapGoal, &[16 << 20]),
            at("task", 52, E::UserTaskCreate, &[1, 0, 7, 6]),
            at("begin", 57, E::UserRegion, &[1, 0, 8, 6]),
            ("log", Item::At(62, E::UserLog, vec![1, 9, 6], b"\x0fhello from rust".to_vec())),
            at("gcstart", 72, E::GcStart, &[0, 6]),
            at("gcdone", 112, E::GcDone, &[]),
            at("end", 122, E::UserRegion, &[1, 1, 8, 6]),
            at("taskend", 127, E::UserTaskEnd, &[1, 6]),
            at("unblock2", 427, E::GoUnblock, &[2, 2, 6]),
            at("sleep1", 447, E::GoSleep, &[6]),
            at("start3", 457, E::GoStartLocal, &[3]),
            at("syscall3", 467, E::GoSysCall, &[8]),
            at("sysblock3", 517, E::GoSysBlock, &[]),
            at("p0stop", 518, E::ProcStop, &[]),
        ];
        let second = vec![
            at("p1start", 30, E::ProcStart, &[2]),
            at("start2", 35, E::GoStart, &[2, 1]),
            at("block2", 95, E::GoBlockSync, &[5]),
            at("restart2", 435, E::GoStart, &[2, 3]),
            at("end2", 465, E::GoEnd, &[]),
            at("exit3", 765, E::GoSysExit, &[3, 2, T0 + 720]),
            at("restart3", 770, E::GoStartLocal, &[3]),
            at("end3", 790, E::GoEnd, &[]),
            at("p1stop", 791, E::ProcStop, &[]),
        ];
        let stacks: [&[[u64; 4]]; 8] = [
            &[MAIN],
            &[SPAWN, MAIN],
            &[A],
            &[B],
            &[LOCK, WORKER, A],
            &[HELPER, MAIN],
            &[COMPUTE, WORKER, A],
            &[WORKER, B],
        ];
        Self {
            header: b"go 1.19 trace\0\0\0".to_vec(),
            items: [first, second],
            ps: [0, 1],
            bases: [T0, T0],
            samples: [batch(0, T0 + 900), event(E::CpuSample, 1, &[T0 + 100, 1, 2, 7])].concat(),
            frequency: frequency(1_000_000_000),
            strings: (1..).zip(STRINGS.map(|text| text.as_bytes().to_vec())).collect(),
            stacks: (1..).zip(stacks.map(<[_]>::to_vec)).collect(),
            front: Vec::new(),
            end: Vec::new(),
        }
    }

    fn find(&self, label: &str) -> (usize, usize) {
        for (batch, items) in self.items.iter().enumerate() {
            if let Some(place) = items.iter().position(|&(of, _)| of == label) {
                return (batch, place);
            }
        }
        panic!("no record is called {label}");
    }

    pub(super) fn item(&mut self, label: &str) -> &mut Item {
        let (batch, place) = self.find(label);
        &mut self.items[batch][place].1
    }

    pub(super) fn remove(&mut self, label: &str) -> &mut Self {
        let (batch, place) = self.find(label);
        self.items[batch].remove(place);
        self
    }

    pub(super) fn args(&mut self, label: &str, new: &[u64]) -> &mut Self {
        let Item::At(_, _, args, _) = self.item(label) else { panic!("{label} is no event") };
        *args = new.to_vec();
        self
    }

    /// Replaces an event, but keeps the tick.
    pub(super) fn replace(&mut self, label: &str, event: E, new: &[u64]) -> &mut Self {
        let Item::At(_, old, args, _) = self.item(label) else { panic!("{label} is no event") };
        (*old, *args) = (event, new.to_vec());
        self
    }

    pub(super) fn tick(&mut self, label: &str, new: u64) -> &mut Self {
        let Item::At(tick, ..) = self.item(label) else { panic!("{label} is no event") };
        *tick = new;
        self
    }

    pub(super) fn insert(&mut self, after: &str, tick: u64, event: E, args: &[u64]) -> &mut Self {
        let (batch, place) = self.find(after);
        let item = ("", Item::At(tick, event, args.to_vec(), Vec::new()));
        self.items[batch].insert(place + 1, item);
        self
    }

    pub(super) fn insert_raw(&mut self, after: &str, bytes: &[u8]) -> &mut Self {
        let (batch, place) = self.find(after);
        self.items[batch].insert(place + 1, ("", Item::Raw(bytes.to_vec())));
        self
    }

    /// Inserts several events in a row.
    pub(super) fn insert_all(&mut self, after: &str, events: Events<'_>) -> &mut Self {
        for &(tick, event, args) in events.iter().rev() {
            self.insert(after, tick, event, args);
        }
        self
    }

    pub(super) fn batch_bytes(&self, which: usize) -> Vec<u8> {
        let mut bytes = batch(self.ps[which], self.bases[which]);
        let mut last = 0;
        for (_, item) in &self.items[which] {
            match item {
                Item::At(tick, of, args, more) => {
                    bytes.extend(event(*of, tick.wrapping_sub(last), args));
                    bytes.extend(more);
                    last = *tick;
                }
                Item::Raw(raw) => bytes.extend(raw),
            }
        }
        bytes
    }

    pub(super) fn tables(&self) -> Vec<u8> {
        let strings = self.strings.iter().flat_map(|(id, text)| string(*id, text));
        let stacks = self.stacks.iter().flat_map(|(id, frames)| stack(*id, frames));
        strings.chain(stacks).collect()
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let tail = [batch(0, T0 + 2000), self.frequency.clone(), self.tables()].concat();
        let events = [self.batch_bytes(0), self.batch_bytes(1)].concat();
        [&self.header, &self.front, &events, &self.samples, &tail, &self.end].map(Vec::as_slice).concat()
    }
}

/// Returns the bytes of the trace with this change.
pub(super) fn changed(change: impl FnOnce(&mut Trace) -> &mut Trace) -> Vec<u8> {
    let mut trace = Trace::new();
    change(&mut trace);
    trace.bytes()
}

/// Events with their ticks after [`T0`].
pub(super) type Events<'a> = &'a [(u64, E, &'a [u64])];

/// Returns the bytes of the trace with these events inserted after the record `after`.
pub(super) fn with(after: &str, events: Events<'_>) -> Vec<u8> {
    changed(|trace| trace.insert_all(after, events))
}
