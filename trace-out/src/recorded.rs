//! Generations made from explicit records, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use rtprof_runtime::goroutine::state::State;
use rtprof_runtime::goroutine::wait_reason::WaitReason;
use rtprof_runtime::stack::Stack;
use rtprof_tracer::generation::{Buffered, Generation, LaneRecords, Tables};
use rtprof_tracer::record::{MAX_RECORD, Record, RecordKind, Records, StackId, StringId, Writer};

use rtprof_symbols::view::View;
use rtprof_trace_check::{Parsed, disagreements, perfetto, validate};

use super::perfetto::{GenerationFile, Perfetto};
use super::v1::V1;
use super::v2::{V2, Version};
use crate::encode::{Clock, Encode};

/// The records of a thread in a generation.
#[derive(Clone, Default)]
pub(crate) struct RecordedLane {
    goroutine: u64,
    thread_id: u32,
    is_over: bool,
    buffers: Vec<Buffer>,
}

#[derive(Clone)]
struct Buffer {
    goroutine: u64,
    is_after_loss: bool,
    base: u64,
    tick: u64,
    bytes: Vec<u8>,
}

impl RecordedLane {
    /// A lane of the thread of this goroutine; 0 for records from outside threads.
    pub(crate) fn new(goroutine: u64) -> Self {
        let thread_id = if goroutine == 0 { 0 } else { 100 + goroutine as u32 };
        Self { goroutine, thread_id, ..Self::default() }
    }

    pub(crate) fn goroutine(&self) -> u64 {
        self.goroutine
    }

    /// Begins a buffer.
    pub(crate) fn buffer(&mut self, tick: u64, goroutine: u64, is_after_loss: bool) -> &mut Self {
        self.buffers.push(Buffer { goroutine, is_after_loss, base: tick, tick, bytes: Vec::new() });
        self
    }

    fn write(&mut self, tick: u64, write: impl FnOnce(&mut Writer<'_>, u64)) -> &mut Self {
        if self.buffers.is_empty() {
            self.buffer(tick, self.goroutine, false);
        }
        let buffer = self.buffers.last_mut().unwrap();
        assert!(tick >= buffer.tick, "a lane is in order");
        let at = buffer.bytes.len();
        buffer.bytes.resize(at + MAX_RECORD, 0);
        let mut writer = Writer::new(&mut buffer.bytes, at);
        write(&mut writer, tick - buffer.tick);
        let end = writer.position();
        buffer.bytes.truncate(end);
        buffer.tick = tick;
        self
    }

    pub(crate) fn put<const N: usize>(
        &mut self,
        tick: u64,
        kind: RecordKind,
        arguments: [u64; N],
    ) -> &mut Self {
        self.write(tick, |writer, delta| writer.put(kind, delta, arguments))
    }

    pub(crate) fn status(&mut self, tick: u64, goroutine: u64, number: u64, state: State) -> &mut Self {
        self.status_of(tick, goroutine, number, state, false)
    }

    pub(crate) fn status_after_loss(
        &mut self,
        tick: u64,
        goroutine: u64,
        number: u64,
        state: State,
    ) -> &mut Self {
        self.status_of(tick, goroutine, number, state, true)
    }

    fn status_of(
        &mut self,
        tick: u64,
        goroutine: u64,
        number: u64,
        state: State,
        is_after_loss: bool,
    ) -> &mut Self {
        let thread = if state == State::Running { goroutine } else { 0 };
        let arguments = [
            goroutine,
            number,
            state.number().into(),
            thread,
            100 + goroutine,
            goroutine % 4,
            0,
            is_after_loss.into(),
        ];
        self.put(tick, RecordKind::Status, arguments)
    }

    pub(crate) fn block(&mut self, tick: u64, reason: WaitReason) -> &mut Self {
        self.put(tick, RecordKind::Block, [reason as u64, 1])
    }

    pub(crate) fn log(&mut self, tick: u64, task: u64, category: StringId, message: &str) -> &mut Self {
        self.write(tick, |writer, delta| writer.put_log(delta, task, category, 1, message.as_bytes()))
    }

    /// Appends bytes that are not a record.
    pub(crate) fn tear(&mut self) -> &mut Self {
        self.buffers.last_mut().unwrap().bytes.push(0xff);
        self
    }

    pub(crate) fn over(&mut self) -> &mut Self {
        self.is_over = true;
        self
    }

    fn records(&self) -> LaneRecords<'_> {
        let buffers = self.buffers.iter().map(|buffer| Buffered {
            goroutine: buffer.goroutine,
            is_after_loss: buffer.is_after_loss,
            records: Records::new(buffer.base, &buffer.bytes),
        });
        LaneRecords {
            goroutine: self.goroutine,
            thread_id: self.thread_id,
            is_over: self.is_over,
            buffers: buffers.collect(),
        }
    }
}

/// Returns a generation with the lanes in this order.
pub(crate) fn generation<'a>(
    begin: u64,
    end: u64,
    lanes: impl IntoIterator<Item = &'a RecordedLane>,
) -> Generation<'a> {
    Generation { begin, end, closed: u64::MAX, lanes: lanes.into_iter().map(RecordedLane::records).collect() }
}

/// Strings and stacks by their indices.
pub(crate) struct Texts {
    pub(crate) strings: Vec<String>,
    pub(crate) stacks: Vec<Vec<usize>>,
}

impl Texts {
    /// Strings 1 to 3 are names of goroutines, 4 to 6 other names; stack 1 is one of this program, stack 2 belongs to
    /// no module.
    pub(crate) fn new() -> Self {
        rtprof_runtime::init::open();
        let mut frames = [0; rtprof_runtime::MAX_STACK];
        let depth = rtprof_runtime::stack::capture(&mut frames);
        let strings = ["", "main", "worker", "runtime.hidden", "request", "parse", "note"];
        Self {
            strings: strings.map(str::to_owned).into(),
            stacks: vec![Vec::new(), frames[..depth].to_vec(), vec![0x10, 0x20]],
        }
    }
}

impl Tables for Texts {
    fn stack(&self, id: StackId) -> Stack<'_> {
        self.stacks.get(id as usize).map_or(&[][..], Vec::as_slice).into()
    }

    fn string(&self, id: StringId) -> &str {
        self.strings.get(id as usize).map_or("", String::as_str)
    }
}

/// Encodes a whole trace of generations.
pub(crate) fn encode(encoder: &mut dyn Encode, generations: &[Generation<'_>], end: u64) -> Vec<u8> {
    // One for all, so that traces of the same records have the same stacks.
    static TEXTS: LazyLock<Texts> = LazyLock::new(Texts::new);
    let texts = &*TEXTS;
    let mut out = Vec::new();
    encoder.begin(&mut out);
    for generation in generations {
        encoder.generation(generation, texts, &mut out);
        encoder.end_generation(texts, &mut out);
    }
    encoder.end(end, texts, &mut out);
    out
}

/// Checks that each window of these generations is a valid trace: what a flight recorder has after it dropped the older
/// ones.
#[track_caller]
pub(crate) fn check_windows(clock: Clock, generations: &[Generation<'_>], what: &str) {
    let texts = Texts::new();
    let mut v2 = V2::new(Version::Go126, clock, 4, View::default());
    let parts = generations.iter().map(|generation| {
        v2.generation(generation, &texts, &mut Vec::new());
        let part = v2.end_part();
        let mut bytes = part.events().to_vec();
        part.put_names(&texts, View::default(), &mut bytes);
        bytes
    });
    let parts: Vec<_> = parts.collect();
    check_perfetto_windows(clock, generations, what);
    for from in 0..parts.len() {
        let mut window = Version::Go126.header().to_vec();
        window.extend(parts[from..].iter().flatten());
        let parsed = validate(&window).unwrap_or_else(|invalid| panic!("{what}, from {from}: {invalid}"));
        assert_eq!(parsed.generations().len(), parts.len() - from, "{what}, from {from}");
    }
}

/// The same for Perfetto's windows: each has all states of the whole file from its beginning on.
#[track_caller]
fn check_perfetto_windows(clock: Clock, generations: &[Generation<'_>], what: &str) {
    let texts = Texts::new();
    let mut perfetto = Perfetto::new(clock, View::default());
    let parts = generations.iter().map(|generation| {
        perfetto.generation(generation, &texts, &mut Vec::new());
        perfetto.end_part(&texts)
    });
    let parts: Vec<_> = parts.collect();
    // All of them would take long.
    let froms = BTreeSet::from([0, 1, parts.len() / 2, parts.len() - 1]);
    let windows = froms.into_iter().map(|from| {
        let mut bytes = Vec::new();
        let mut file = GenerationFile::begin(&mut bytes);
        for part in &parts[from..] {
            file.put(part, &texts, View::default(), &mut bytes);
        }
        let check = if from == 0 { perfetto::check } else { perfetto::check_window };
        let trace = check(&bytes).unwrap_or_else(|fault| panic!("{what}, from {from}: {fault}"));
        (from, trace)
    });
    // How each slice ends, by its track and its end. Windows have one end, but may differ in the time since boot.
    let ends = |trace: &perfetto::Trace| -> BTreeMap<(u64, Option<u64>, usize), String> {
        let last = trace.events.iter().map(|event| event.time).max().unwrap_or(0);
        let slices = trace.slices.iter().map(|slice| {
            let end = slice.end.map(|end| last - end);
            ((slice.begin.track, end, slice.depth), slice.begin.name.to_string())
        });
        slices.collect()
    };
    let windows: Vec<_> = windows.collect();
    let whole = ends(&windows[0].1);
    for (from, window) in &windows {
        for (slice, name) in ends(window) {
            assert_eq!(whole.get(&slice), Some(&name), "{what}, from {from}: {slice:?}");
        }
    }
}

/// Checks that what is encoded of these generations is valid if one of them is lost.
#[track_caller]
pub(crate) fn check_lost_generation(clock: Clock, generations: &[Generation<'_>], end: u64, what: &str) {
    for lost in 0..generations.len() - 1 {
        let mut rest = generations.to_vec();
        rest.remove(lost);
        for lane in &mut rest[lost].lanes {
            lane.buffers.iter_mut().take(1).for_each(|first| first.is_after_loss = true);
        }
        let what = format!("{what}, without generation {lost}");
        let mut v1 = V1::new(clock, 4, View::default());
        let mut v2 = V2::new(Version::Go126, clock, 4, View::default());
        let bytes = encode(&mut Perfetto::new(clock, View::default()), &rest, end);
        perfetto::check(&bytes).unwrap_or_else(|fault| panic!("{what}: {fault}"));
        // They show at different times what is found out about the lost one.
        for encoder in [&mut v1 as &mut dyn Encode, &mut v2] {
            let bytes = encode(encoder, &rest, end);
            validate(&bytes).unwrap_or_else(|invalid| panic!("{what}: {invalid}"));
        }
    }
}

/// Encodes generations in Perfetto's format, and checks that its waits are those of `second`, if that was made of them in
/// Go's second format.
#[track_caller]
pub(crate) fn check_perfetto(
    second: Option<&Parsed>,
    clock: Clock,
    (generations, end): (&[Generation<'_>], u64),
    what: &str,
) -> perfetto::Trace {
    let bytes = encode(&mut Perfetto::new(clock, View::default()), generations, end);
    let trace = perfetto::check(&bytes).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    let disagreement = second.and_then(|second| trace.disagreement(second));
    assert!(disagreement.is_none(), "{what}: {}", disagreement.unwrap_or_default());
    let records = generations.iter().flat_map(|generation| &generation.lanes);
    let records = records.flat_map(|lane| &lane.buffers).flat_map(|buffer| buffer.records.clone());
    let tasks: BTreeSet<u64> = records
        .filter_map(|(_, record)| match record {
            Record::Create { goroutine, is_task, .. } => is_task.then_some(goroutine),
            Record::Status(status) => status.is_task.then_some(status.goroutine),
            _ => None,
        })
        .collect();
    for (id, track) in trace.goroutines() {
        // Goroutines that were taken for dead have other ids.
        if id < 1 << 40 {
            let is_task = trace.path(track).contains(&"async tasks");
            assert_eq!(is_task, tasks.contains(&id), "{what}: {id}, {:?}", trace.path(track));
        }
    }
    trace
}

/// Encodes generations in the second format, for both readers, and checks that the events agree with those of `first`, if
/// that was made of them in the first format. Returns the second one.
#[track_caller]
pub(crate) fn check_second(
    first: Option<&Parsed>,
    clock: Clock,
    (generations, end): (&[Generation<'_>], u64),
    what: &str,
) -> (Vec<u8>, Parsed) {
    let [newest, oldest] = [Version::Go126, Version::Go122].map(|version| {
        let mut v2 = V2::new(version, clock, 4, View::default());
        let bytes = encode(&mut v2, generations, end);
        let parsed = validate(&bytes).unwrap_or_else(|invalid| panic!("{what}, {version:?}: {invalid}"));
        (bytes, parsed)
    });
    let disagreements = first.map(|first| disagreements(first, &newest.1)).unwrap_or_default();
    assert!(disagreements.is_empty(), "{what}: {}", disagreements.join("\n"));
    let kinds = |parsed: &Parsed| parsed.events().map(|event| event.event_type()).collect::<Vec<_>>();
    assert_eq!(kinds(&newest.1), kinds(&oldest.1), "{what}: the events are the same for both readers");
    newest
}
