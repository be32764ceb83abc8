//! Merges the streams of all Ps into one order, as Go's tools do.
//!
//! A stream is ready if the goroutine of its first event is at the position where that event begins; the oldest such
//! event is taken. A stream that is not ready is put aside until its goroutine moves: with a thousand Ps, checking each
//! again after every event would take minutes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::checker::{TIME_ORDER, no_order};
use super::event::EventType;
use super::invalid::{Invalid, Violation};
use super::parse::{File, RawEvent};
use super::transitions::{Change, Positions};

struct Merge {
    streams: Vec<std::iter::Peekable<std::vec::IntoIter<RawEvent>>>,
    positions: Positions,
    /// Streams whose first event is ready, by its tick.
    ready: BinaryHeap<Reverse<(i64, usize)>>,
    /// Streams whose first event waits for this goroutine; 0 for the collector.
    waiting: HashMap<u64, Vec<usize>>,
}

fn change(raw: &RawEvent) -> Option<Change> {
    Change::of(raw.event, raw.g, raw.args())
}

/// Returns all events in one order. Takes them out of `file`.
pub(crate) fn merge(file: &mut File) -> Result<Vec<RawEvent>, Invalid> {
    let mut samples = std::mem::take(&mut file.samples);
    samples.sort_by_key(|sample| sample.tick);
    let mut streams: Vec<_> = std::mem::take(&mut file.procs).into_values().collect();
    streams.push(samples);
    let count = streams.iter().map(Vec::len).sum();
    let mut merge = Merge {
        streams: streams.into_iter().map(|stream| stream.into_iter().peekable()).collect(),
        positions: Positions::default(),
        ready: BinaryHeap::new(),
        waiting: HashMap::new(),
    };
    for stream in 0..merge.streams.len() {
        merge.look_at(stream);
    }
    let mut events = Vec::with_capacity(count);
    while let Some(Reverse((_, stream))) = merge.ready.pop() {
        merge.take_from(stream, &mut events)?;
    }
    if let Some(stuck) = merge.stuck() {
        return Err(stuck);
    }
    correct_syscall_exits(&mut events)?;
    Ok(events)
}

impl Merge {
    /// Puts a stream into the ready or the waiting streams.
    fn look_at(&mut self, stream: usize) {
        let Some(head) = self.streams[stream].peek() else { return };
        match change(head) {
            Some(change) if !self.positions.allow(&change) => {
                self.waiting.entry(change.goroutine).or_default().push(stream);
            }
            _ => self.ready.push(Reverse((head.tick, stream))),
        }
    }

    fn take_from(&mut self, stream: usize, events: &mut Vec<RawEvent>) -> Result<(), Invalid> {
        let Some(event) = self.streams[stream].next() else { return Ok(()) };
        if events.last().is_some_and(|last: &RawEvent| last.tick > event.tick) {
            let (name, p) = (event.event.name(), event.p);
            let text = format!("{TIME_ORDER}: {name} on p {p} is older than what it follows");
            return Err(Violation::refused(text).at(event.offset));
        }
        let change = change(&event);
        if let Some(change) = change {
            // It was ready when it was checked; another P may have had the same goroutine.
            if !self.positions.allow(&change) {
                let text = "encountered impossible goroutine state transition";
                return Err(Violation::refused(text).at(event.offset));
            }
            self.positions.make(&change);
        }
        if matches!(event.event, EventType::GoEnd | EventType::GoStop) {
            self.positions.end(event.g);
        }
        events.push(event);
        self.look_at(stream);
        if let Some(change) = change {
            for stream in self.waiting.remove(&change.goroutine).unwrap_or_default() {
                self.look_at(stream);
            }
        }
        Ok(())
    }

    /// Returns a fault for the oldest event that could not be taken, if any.
    fn stuck(&mut self) -> Option<Invalid> {
        let heads = self.streams.iter_mut().filter_map(|stream| stream.peek());
        let head = heads.min_by_key(|head| head.tick)?;
        let violation = no_order(head.p, head.event, &change(head)?, &self.positions);
        Some(violation.at(head.offset))
    }
}

/// Gives each `GoSysExit` the time that it names, and moves it to the place of that time.
fn correct_syscall_exits(events: &mut [RawEvent]) -> Result<(), Invalid> {
    let mut blocked: HashMap<u64, i64> = HashMap::new();
    let mut moved = false;
    for event in &mut *events {
        match event.event {
            EventType::GoSysBlock | EventType::GoInSyscall => {
                blocked.insert(event.g, event.tick);
            }
            EventType::GoSysExit if event.args[2] != 0 => {
                let tick = event.args[2] as i64;
                // The tools treat a tick of 0 as none.
                let since = blocked.get(&event.g).copied().filter(|&since| since != 0);
                let since = since.ok_or_else(|| Violation::refused("stray syscall exit").at(event.offset))?;
                if tick < since {
                    let text = format!("{TIME_ORDER}: GoSysExit at {tick}, GoSysBlock at {since}");
                    return Err(Violation::refused(text).at(event.offset));
                }
                event.tick = tick;
                moved = true;
            }
            _ => {}
        }
    }
    if moved {
        events.sort_by_key(|event| event.tick);
    }
    Ok(())
}
