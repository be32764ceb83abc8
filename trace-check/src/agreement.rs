//! Compares two traces of one recording in different formats, event by event.
//!
//! The formats differ in these ways, which are no disagreement:
//! - Times in the second format are multiples of 64 ns. The first one moves events of one moment apart; and to later
//!   times what happens outside of threads and on Ps that stand in for a moment, and what follows from that.
//! - Ps stop and start more often in the first format. Its end has an end for everything that is open.
//! - The second format shows a goroutine that lived before the trace in its state, without the stack that created it.
//! - In the second format no event is older than its generation, or younger than the cut at its end. The first one may
//!   show later that a goroutine has ended before.
//! - A call that goes on from one generation to another has no stack in the second format. (If its record is lost, it is
//!   in that format alone: such traces cannot be compared.)
//! - A wake-up without a known waker has the goroutine's name for a stack in the second format, and none in the first.
//! - A stop of the world ends in the second format with each generation, and when its goroutine waits.
//! - After a loss the second format may show the end of a system call later, where its thread has recorded events
//!   since, and what follows from that.
//! - The end of a system call without the goroutine's start is followed by a start and a stop without a reason.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{EventType as E, NO_PROC};
use super::parsed::{Event, Parsed};

/// The largest difference of two times, in nanoseconds, without the moves of the first format.
const TOLERANCE: u64 = 256;

/// The most nanoseconds by which the first format moves events for each goroutine that it introduces.
const TOLERANCE_OF_GOROUTINE: u64 = 8;

/// The events that introduce a goroutine, whose times the first format moves further.
const INTRODUCTION: usize = 4;

/// The ticks of the second format within which the effects of an event are that had to be moved to this event.
const EFFECTS: u64 = 16;

/// What happened to a goroutine, or through it.
struct Story<'a>(Vec<Event<'a>>);

/// Returns the first disagreements of a trace in the first format and one of the same recording in the second.
pub fn disagreements(first: &Parsed, second: &Parsed) -> Vec<String> {
    let mut found = Vec::new();
    let (left, right) = (stories(first), stories(second));
    let tolerance = TOLERANCE + TOLERANCE_OF_GOROUTINE * left.len() as u64;
    let offset = offset((first, &left), (second, &right));
    let times = |x: Event<'_>, y: Event<'_>, may_be_later: bool| {
        let is_first =
            second.generations().iter().any(|begin| (*begin..=begin + EFFECTS).contains(&y.tick()));
        let later = nanos(first, x) - nanos(second, y) - offset;
        later >= -i128::from(tolerance) || is_first || may_be_later
    };
    let late_ends: Vec<_> =
        second.events_of(E::GoSysExit).filter(|exit| exit.p() == NO_PROC).map(|exit| exit.tick()).collect();
    let follows_late_end =
        |y: Event<'_>| late_ends.iter().any(|end| (*end..=end + EFFECTS).contains(&y.tick()));
    let all: BTreeSet<u64> = left.keys().chain(right.keys()).copied().collect();
    for goroutine in all {
        let empty = Story(Vec::new());
        let (a, b) = (left.get(&goroutine).unwrap_or(&empty), right.get(&goroutine).unwrap_or(&empty));
        if goroutine == 0 {
            let kinds = |story: &Story<'_>| {
                let mut kinds: Vec<_> = story.0.iter().map(|event| general(event.event_type())).collect();
                kinds.retain(|kind| *kind != E::GcDone);
                kinds.sort_unstable();
                kinds
            };
            if kinds(a) != kinds(b) {
                found.push(format!("outside of goroutines: {:?} and {:?}", a.0, b.0));
            }
            continue;
        }
        let mut was_in_syscall = false;
        for (at, (&x, &y)) in a.0.iter().zip(&b.0).enumerate() {
            was_in_syscall |= y.event_type() == E::GoSysExit && y.p() == NO_PROC;
            let is_same = general(x.event_type()) == general(y.event_type())
                && x.target() == y.target()
                && x.name() == y.name()
                && x.message() == y.message();
            let is_introduction = at < INTRODUCTION && b.0[0].event_type() == E::GoCreate && is_bare(b.0[0]);
            let is_unknown_wake =
                general(x.event_type()) == E::GoUnblock && is_bare(x) && y.stack().len() == 1;
            let goes_on = is_call(y) && lasts_beyond_generation(second, &b.0[at..]);
            let has_stack = x.functions() == y.functions()
                || is_introduction && at == 0
                || is_unknown_wake
                || is_bare(y) && goes_on;
            if !is_same
                || !has_stack
                || !is_introduction && !times(x, y, was_in_syscall) && !follows_late_end(y)
            {
                let before: Vec<_> = b.0[..at].iter().rev().take(3).collect();
                found.push(format!("goroutine {goroutine}, event {at}: {x:?} and {y:?}, after {before:?}"));
                break;
            }
        }
        let common = a.0.len().min(b.0.len());
        let is_end = |event: &Event<'_>| match general(event.event_type()) {
            E::GoSched | E::GcDone | E::GcSweepDone | E::GcMarkAssistDone => true,
            // A goroutine that has stopped the world and waits.
            E::GoUnblock | E::GoStart => first.count(E::StwStart) > 0,
            _ => false,
        };
        if !a.0[common..].iter().all(is_end) || b.0.len() > common {
            found.push(format!(
                "goroutine {goroutine} goes on: {:?} and {:?}",
                &a.0[common..],
                &b.0[common..]
            ));
        }
    }
    if samples(first) != samples(second) {
        found.push(format!("samples: {:?} and {:?}", samples(first), samples(second)));
    }
    found
}

/// Whether an event may begin a call that is recorded when it is over.
fn is_call(event: Event<'_>) -> bool {
    matches!(event.event_type(), E::GoSysCall | E::GoSleep | E::GoBlockNet)
}

/// Whether a generation begins between the first of a goroutine's events and the next one.
fn lasts_beyond_generation(trace: &Parsed, events: &[Event<'_>]) -> bool {
    let begin = events[0].tick();
    // A system call in progress is two events.
    let next = events[1..].iter().find(|event| event.event_type() != E::GoSysBlock);
    let end = next.map_or(u64::MAX, |event| event.tick());
    trace.generations().iter().any(|generation| (begin..=end).contains(generation))
}

/// Whether an event has no stack.
fn is_bare(event: Event<'_>) -> bool {
    event.stack().len() == 0
}

/// Returns how much later the times of the first trace are, because their frequency is rounded. Most differences are
/// that much; the first format makes some larger, and a few may be smaller.
fn offset(
    (first, left): (&Parsed, &BTreeMap<u64, Story<'_>>),
    (second, right): (&Parsed, &BTreeMap<u64, Story<'_>>),
) -> i128 {
    let pairs = left.iter().filter_map(|(goroutine, story)| Some((story, right.get(goroutine)?)));
    let events = pairs.flat_map(|(a, b)| a.0.iter().zip(&b.0));
    let mut offsets: Vec<_> = events.map(|(&x, &y)| nanos(first, x) - nanos(second, y)).collect();
    offsets.sort_unstable();
    offsets.get(offsets.len() / 10).copied().unwrap_or(0)
}

fn nanos(trace: &Parsed, event: Event<'_>) -> i128 {
    i128::from(event.tick()) * 1_000_000_000 / i128::from(trace.ticks_per_second())
}

/// Returns the number of samples of each goroutine at each leaf.
fn samples(trace: &Parsed) -> BTreeMap<(u64, String), usize> {
    let mut all = BTreeMap::new();
    for sample in trace.events_of(E::CpuSample) {
        let leaf = sample.functions().first().copied().unwrap_or_default().to_owned();
        *all.entry((sample.target().unwrap_or(0), leaf)).or_default() += 1;
    }
    all
}

/// Returns the event without distinction of where it happened.
fn general(event: E) -> E {
    match event {
        E::GoStartLocal | E::GoStartLabel => E::GoStart,
        E::GoUnblockLocal => E::GoUnblock,
        event => event,
    }
}

fn stories(trace: &Parsed) -> BTreeMap<u64, Story<'_>> {
    let mut all: BTreeMap<u64, Story<'_>> = BTreeMap::new();
    for event in trace.events() {
        if matches!(
            event.event_type(),
            E::ProcStart | E::ProcStop | E::Gomaxprocs | E::CpuSample | E::StwStart | E::StwDone
        ) {
            continue;
        }
        // An event that names a goroutine is told there: its order among the namer's own is a matter of ticks.
        let goroutine = event.target().unwrap_or(event.g());
        all.entry(goroutine).or_insert_with(|| Story(Vec::new())).0.push(event);
    }
    for story in all.values_mut() {
        story.shorten();
    }
    all
}

impl Story<'_> {
    /// Leaves out the start and the stop after a system call whose goroutine did not continue.
    fn shorten(&mut self) {
        let mut at = 0;
        while at + 2 < self.0.len() {
            let [exit, start, stop] = [at, at + 1, at + 2].map(|at| self.0[at]);
            let is_stop = stop.event_type() == E::GoSched && is_bare(stop) && stop.reason().is_empty();
            if exit.event_type() == E::GoSysExit
                && general(start.event_type()) == E::GoStart
                && is_stop
                && stop.tick() == start.tick()
            {
                self.0.drain(at + 1..at + 3);
            }
            at += 1;
        }
    }
}
