//! What a trace says: tracks, events, slices and samples.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;

use crate::event::EventType;
use crate::parsed::Parsed;

/// A trace that was found right.
#[derive(Debug)]
pub struct Trace {
    pub(super) tracks: HashMap<u64, Track>,
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
