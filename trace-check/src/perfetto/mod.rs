//! Reads Perfetto's traces as trace_processor does, and checks what it does not: it drops what does not fit, and says
//! little about it.

mod counts;
mod proto;
mod read;
mod trace;

use std::collections::HashMap;

use read::Read;

pub use trace::{Event, EventKind, Frame, Sample, Slice, Trace, Track};

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
