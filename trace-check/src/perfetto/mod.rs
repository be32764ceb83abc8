//! Reads Perfetto's traces as trace_processor does, and checks what it does not: it drops what does not fit, and says
//! little about it.

mod counts;
mod proto;
mod read;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;

use read::Read;

use crate::event::EventType;
use crate::parsed::Parsed;

/// A trace that was found right.
#[derive(Debug)]
pub struct Trace {
    tracks: HashMap<u64, Track>,
    /// In the order of time.
    pub events: Vec<Event>,
    pub slices: Vec<Slice>,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    pub name: String,
    /// The track above; 0 for none.
    pub parent: u64,
    /// The kernel's number of the thread that it shows, if it shows one.
    pub thread: Option<i64>,
    pub is_counter: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Begin,
    End,
    Instant,
    Counter(i64),
}

#[derive(Clone, Debug)]
pub struct Event {
    /// Nanoseconds since boot.
    pub time: u64,
    pub sequence: u32,
    /// The number of generations of its sequence so far, 0 before the first one.
    pub generation: u32,
    pub track: u64,
    pub kind: EventKind,
    pub name: Rc<str>,
    pub category: Rc<str>,
    /// Leaf first.
    pub stack: Rc<[Frame]>,
    pub annotations: Vec<(Rc<str>, Rc<str>)>,
    pub flows: Vec<u64>,
    pub ended_flows: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    pub function: Rc<str>,
    pub file: Option<Rc<str>>,
    pub line: u32,
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.function)
    }
}

/// A slice, with its beginning.
#[derive(Clone, Debug)]
pub struct Slice {
    pub begin: Event,
    /// `None` if it goes on at the end of the trace.
    pub end: Option<u64>,
    /// The number of slices around it on its track.
    pub depth: usize,
}

impl Slice {
    /// Returns how long it lasted, if it is over.
    pub fn nanos(&self) -> Option<u64> {
        self.end.map(|end| end - self.begin.time)
    }
}

/// A sample of the processor.
#[derive(Clone, Debug)]
pub struct Sample {
    pub time: u64,
    /// The kernel's number of its thread.
    pub thread: u32,
    /// Leaf first.
    pub stack: Rc<[Frame]>,
}

/// Reads a trace, and checks it:
///
/// - there are no unknown fields, and all packets are whole;
/// - texts, stacks and tracks are defined before they are used, in each sequence;
/// - times do not go back in a sequence, and events of one track that are in different sequences have different times;
/// - slices nest, each on its track, and those of the states of a thread or a task follow each other;
/// - every flow has one beginning and one end, in this order;
/// - the counters of threads and of waiting tasks agree with the slices.
///
/// # Errors
/// The first fault.
pub fn check(bytes: &[u8]) -> Result<Trace, String> {
    check_counters_from(1, bytes)
}

/// Reads a window of a flight recorder, and checks it likewise. In its first generation the counters may differ from
/// the slices by those that ended after the end of the generation before, which is not there.
///
/// # Errors
/// The first fault.
pub fn check_window(bytes: &[u8]) -> Result<Trace, String> {
    check_counters_from(2, bytes)
}

fn check_counters_from(generation: u32, bytes: &[u8]) -> Result<Trace, String> {
    let Read { tracks, mut events, samples, .. } = Read::file(bytes)?;
    events.sort_by_key(|event| event.time);
    check_flows(&events)?;
    let slices = slices(&tracks, &events)?;
    let trace = Trace { tracks, events, slices, samples };
    counts::check(&trace, generation)?;
    Ok(trace)
}

/// Categories of the slices that show the state of a goroutine, or which task a thread polls.
const STATES: [&str; 3] = ["wait", "wait-before-trace", "poll"];

fn slices(tracks: &HashMap<u64, Track>, events: &[Event]) -> Result<Vec<Slice>, String> {
    let mut open: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut last: HashMap<u64, (u64, u32)> = HashMap::new();
    let mut slices: Vec<Slice> = Vec::new();
    for event in events {
        if matches!(event.kind, EventKind::Counter(_)) != tracks[&event.track].is_counter {
            return Err(format!("{event:?} on {:?}", tracks[&event.track]));
        }
        if matches!(event.kind, EventKind::Counter(_) | EventKind::Instant) {
            continue;
        }
        let before = last.insert(event.track, (event.time, event.sequence));
        if before.is_some_and(|(time, sequence)| time == event.time && sequence != event.sequence) {
            return Err(format!("{event:?}: another sequence has an event of this track and time"));
        }
        let open = open.entry(event.track).or_default();
        if event.kind == EventKind::Begin {
            let is_running =
                (&*event.name, &*event.category) == ("running", "") && tracks[&event.track].name != "regions";
            let is_state = STATES.contains(&&*event.category) || is_running;
            if is_state && let Some(&outer) = open.last() {
                return Err(format!("{event:?} begins within {:?}", slices[outer]));
            }
            open.push(slices.len());
            slices.push(Slice { begin: event.clone(), end: None, depth: open.len() - 1 });
        } else {
            let slice = open.pop().ok_or_else(|| format!("{event:?} ends no slice"))?;
            slices[slice].end = Some(event.time);
        }
    }
    Ok(slices)
}

fn check_flows(events: &[Event]) -> Result<(), String> {
    let mut open: HashMap<u64, &Event> = HashMap::new();
    for event in events {
        for &flow in &event.ended_flows {
            let begin =
                open.remove(&flow).ok_or_else(|| format!("{event:?}: flow {flow} has no beginning"))?;
            if begin.time == event.time && begin.sequence != event.sequence {
                return Err(format!(
                    "flow {flow} is in two sequences and takes no time: {begin:?} {event:?}"
                ));
            }
        }
        for &flow in &event.flows {
            if open.insert(flow, event).is_some() {
                return Err(format!("{event:?}: flow {flow} begins twice"));
            }
        }
    }
    open.values().next().map_or(Ok(()), |event| Err(format!("{event:?}: its flow has no end")))
}

impl Trace {
    /// Returns a track.
    pub fn track(&self, uuid: u64) -> &Track {
        &self.tracks[&uuid]
    }

    /// Returns the numbers of the tracks of this name.
    pub fn tracks_named(&self, name: &str) -> Vec<u64> {
        let named = self.tracks.iter().filter(|(_, track)| track.name == name);
        named.map(|(&uuid, _)| uuid).collect()
    }

    /// Returns the tracks below a track.
    pub fn children(&self, uuid: u64) -> Vec<&Track> {
        self.tracks.values().filter(|track| track.parent == uuid).collect()
    }

    /// Returns the ids of the threads and async tasks, with their tracks.
    pub fn goroutines(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.tracks.keys().filter(|&&uuid| uuid & 3 == 0).map(|&uuid| (uuid >> 2, uuid))
    }

    /// Returns the names of a track and of those above it, the outermost first.
    pub fn path(&self, uuid: u64) -> Vec<&str> {
        let track = self.track(uuid);
        let mut path = if track.parent == 0 { Vec::new() } else { self.path(track.parent) };
        path.push(&track.name);
        path
    }

    /// Returns all slices on a track.
    pub fn slices_on(&self, uuid: u64) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(move |slice| slice.begin.track == uuid)
    }

    /// Returns the sums of all waits that are over, by reason, with their number. System calls are among them.
    pub fn waits(&self) -> BTreeMap<&str, (u64, u64)> {
        let mut waits: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for slice in self.slices.iter().filter(|slice| &*slice.begin.category == "wait") {
            if let Some(nanos) = slice.nanos() {
                let (count, sum) = waits.entry(&slice.begin.name).or_default();
                (*count, *sum) = (*count + 1, *sum + nanos);
            }
        }
        waits
    }

    /// Compares the waits with those of the same recording in the second format of Go: the number of all that are over,
    /// except system calls, and their sum. Returns what differs.
    pub fn disagreement(&self, go: &Parsed) -> Option<String> {
        let mut open: HashMap<u64, u64> = HashMap::new();
        let (mut count, mut sum) = (0, 0);
        for event in go.events() {
            match event.event_type() {
                EventType::GoBlockSend
                | EventType::GoBlockRecv
                | EventType::GoBlockSelect
                | EventType::GoBlockSync
                | EventType::GoBlockCond
                | EventType::GoBlockNet
                | EventType::GoSleep => drop(open.insert(event.g(), event.time())),
                EventType::GoUnblock | EventType::GoUnblockLocal => {
                    let begin = event.target().and_then(|goroutine| open.remove(&goroutine));
                    if let Some(begin) = begin {
                        (count, sum) = (count + 1, sum + (event.time() - begin));
                    }
                }
                _ => {}
            }
        }
        let own = self.waits();
        let own = own.iter().filter(|(name, _)| **name != "syscall").map(|(_, wait)| wait);
        let (own_count, own_sum) = own.fold((0, 0), |(n, sum), wait| (n + wait.0, sum + wait.1));
        // Times there are in units of 64 ns.
        let tolerance = sum / 1000 + 128 * (count + 1);
        let is_same = own_count == count && own_sum.abs_diff(sum) <= tolerance;
        (!is_same).then(|| {
            format!("{own_count} waits of {own_sum} ns, but {count} of {sum} ns: {:?}", self.waits())
        })
    }
}
