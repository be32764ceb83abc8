//! Checks events one by one as they are made, before they are encoded.

use std::collections::HashMap;

use super::event::EventType;
use super::invalid::Violation;
use super::rules::Rules;
use super::transitions::{Change, Positions};

/// Follows a trace event by event and reports events that may not follow the events before them.
///
/// Events may come in any order in which each comes after the events on which it depends, and those of one P in their
/// order; the times need not be in order beyond that. The checks of the times are those with which Go's tools restore
/// such an order. Only the ids of ended goroutines are kept.
///
/// [`validate`](super::validate()) checks more, because it knows the strings and the stacks.
#[derive(Debug)]
pub struct Checker {
    positions: Positions,
    rules: Rules,
    /// The tick of the last event of each P.
    procs: HashMap<u64, u64>,
    /// The tick of the last transition of each live goroutine.
    goroutines: HashMap<u64, u64>,
    collection: u64,
}

impl Default for Checker {
    fn default() -> Self {
        Self::new()
    }
}

impl Checker {
    /// A checker at the beginning of a trace.
    pub fn new() -> Self {
        Self {
            positions: Positions::default(),
            rules: Rules::new(super::parse::VERSION),
            procs: HashMap::new(),
            goroutines: HashMap::new(),
            collection: 0,
        }
    }

    /// Checks an event on `pid` at `tick`; `args` are its arguments without the time, the stack included.
    ///
    /// # Errors
    /// If the event may not happen now. The state is then unchanged, unless the violation is not a refusal.
    pub fn event(&mut self, pid: u64, tick: u64, event: EventType, args: &[u64]) -> Result<(), Violation> {
        let wanted = event.arguments().len();
        if args.len() != wanted {
            let (name, got) = (event.name(), args.len());
            let text = format!("{name} has wrong number of arguments: want {wanted}, got {got}");
            return Err(Violation::refused(text));
        }
        if event == EventType::CpuSample {
            // Samples carry their time, and have no order.
            return self.rules.event(pid, tick, event, args);
        }
        self.check_time(self.procs.get(&pid).copied(), tick, event)?;
        let current = self.rules.current(pid);
        let Some(change) = Change::of(event, current, args) else {
            let result = self.rules.event(pid, tick, event, args);
            if !is_refused(&result) {
                self.procs.insert(pid, tick);
                if event.leaves() {
                    self.positions.end(current);
                    self.goroutines.remove(&current);
                }
            }
            return result;
        };
        if !self.positions.allow(&change) {
            return Err(no_order(pid, event, &change, &self.positions));
        }
        let since = if change.is_of_collector() {
            Some(self.collection)
        } else {
            self.goroutines.get(&change.goroutine).copied()
        };
        self.check_time(since, tick, event)?;
        let mut until = tick;
        if event == EventType::GoSysExit && args[2] != 0 {
            self.check_time(since, args[2], event)?;
            until = until.max(args[2]);
        }
        let result = self.rules.event(pid, tick, event, args);
        if is_refused(&result) {
            return result;
        }
        self.procs.insert(pid, tick);
        self.positions.make(&change);
        if change.is_of_collector() {
            self.collection = tick;
        } else {
            self.goroutines.insert(change.goroutine, until);
        }
        result
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// If something is open that must be closed.
    pub fn finish(&self) -> Result<(), Violation> {
        self.rules.finish()
    }

    fn check_time(&self, since: Option<u64>, tick: u64, event: EventType) -> Result<(), Violation> {
        match since {
            Some(since) if tick < since => {
                let text = format!("{TIME_ORDER}: {} at {tick}, what it follows at {since}", event.name());
                Err(Violation::refused(text))
            }
            _ => Ok(()),
        }
    }
}

pub(crate) const TIME_ORDER: &str = "time stamps out of order";

/// Makes the violation of an event without a consistent order. Go's tools print the message without its second half.
pub(crate) fn no_order(pid: u64, event: EventType, change: &Change, positions: &Positions) -> Violation {
    let (name, now) = (event.name(), positions.of(change));
    Violation::refused(format!(
        "no consistent ordering of events possible: {name} on p {pid} wants {change}, it is {now}"
    ))
}

fn is_refused(result: &Result<(), Violation>) -> bool {
    use super::invalid::Consequence::Refused;
    matches!(result, Err(Violation { consequence: Refused, .. }))
}

/// The type of [`event_check`]'s result: it takes the P, the tick, the number and the arguments of an event, and `None`
/// at the end.
pub type EventCheck = Box<dyn FnMut(Option<(u64, u64, u8, &[u64])>) + Send + Sync>;

/// Returns a check of the events of one trace for `rtprof_trace_out::self_check`, with which it shares no type.
///
/// The check panics at the first event that may not happen.
pub fn event_check() -> EventCheck {
    let mut checker = Checker::new();
    Box::new(move |event| {
        let Some((pid, tick, number, args)) = event else {
            return checker.finish().unwrap_or_else(|violation| panic!("at the end: {violation}"));
        };
        let event = EventType::from_number(number).unwrap_or_else(|| panic!("there is no event {number}"));
        if let Err(violation) = checker.event(pid, tick, event, args) {
            panic!("{event:?} {args:?} on P {pid} at {tick}: {violation}");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventType as E;
    use crate::invalid::Consequence;

    fn refusal(result: Result<(), Violation>) -> String {
        let violation = result.unwrap_err();
        assert_eq!(violation.consequence, Consequence::Refused, "{violation}");
        violation.message
    }

    fn running(checker: &mut Checker) {
        checker.event(1, 10, E::Gomaxprocs, &[2, 0]).unwrap();
        checker.event(1, 11, E::ProcStart, &[100]).unwrap();
        checker.event(1, 12, E::GoCreate, &[1, 1, 0]).unwrap();
        checker.event(1, 13, E::GoStartLocal, &[1]).unwrap();
    }

    #[test]
    fn events_of_other_procs_may_come_late_but_not_happen_early() {
        let mut checker = Checker::new();
        running(&mut checker);
        checker.event(1, 50, E::GoCreate, &[2, 2, 0]).unwrap();
        checker.event(1, 90, E::HeapAlloc, &[1]).unwrap();
        // P 2 comes second, with times between those of P 1.
        checker.event(2, 20, E::ProcStart, &[101]).unwrap();
        assert!(refusal(checker.event(2, 49, E::GoStart, &[2, 1])).starts_with(TIME_ORDER));
        checker.event(2, 50, E::GoStart, &[2, 1]).unwrap();
        assert!(refusal(checker.event(2, 49, E::GoEnd, &[])).starts_with(TIME_ORDER));
        checker.event(2, 51, E::GoEnd, &[]).unwrap();
    }

    #[test]
    fn a_refused_event_leaves_everything_as_it_was() {
        let mut checker = Checker::new();
        running(&mut checker);
        let wrong: [(E, &[u64], &str); 8] = [
            (
                E::GoStart,
                &[1, 2],
                "no consistent ordering of events possible: GoStart on p 1 wants g 1 Runnable",
            ),
            (E::GoUnblock, &[7, 1, 0], "no consistent ordering"),
            (E::ProcStart, &[3], "p 1 is running before start"),
            (E::ProcStop, &[], "p 1 is running a goroutine 1 during stop"),
            (E::GcStart, &[1, 0], "no consistent ordering"),
            (E::GcDone, &[], "bogus GC end"),
            (E::GoStart, &[1], "GoStart has wrong number of arguments: want 2, got 1"),
            (E::UserRegion, &[0, 2, 1, 0], "invalid user region mode"),
        ];
        for (event, args, text) in wrong {
            let message = refusal(checker.event(1, 99, event, args));
            assert!(message.starts_with(text), "{event:?}: {message}");
        }
        checker.event(1, 14, E::GoBlockSync, &[0]).unwrap();
        checker.event(1, 15, E::GoUnblockLocal, &[1, 0]).unwrap();
        checker.event(1, 16, E::GoStart, &[1, 3]).unwrap();
        assert_eq!(checker.finish().unwrap_err().consequence, Consequence::Crash);
        checker.event(1, 17, E::GoSched, &[0]).unwrap();
        checker.finish().unwrap();
    }

    #[test]
    fn what_is_only_misread_goes_on() {
        let mut checker = Checker::new();
        running(&mut checker);
        checker.event(1, 20, E::GoSched, &[0]).unwrap();
        let crash = checker.event(1, 21, E::UserRegion, &[0, 0, 1, 0]).unwrap_err();
        assert_eq!(crash.consequence, Consequence::Crash);
        let crash = checker.event(1, 22, E::GoCreate, &[2, 0, 0]).unwrap_err();
        assert!(crash.message.starts_with("invalid go create event: missing stack information"), "{crash}");
        checker.event(1, 23, E::GoStartLocal, &[2]).unwrap();
    }

    #[test]
    fn the_dead_are_forgotten_but_not_their_ids() {
        let mut checker = Checker::new();
        running(&mut checker);
        for g in 2..10_000 {
            let tick = g * 10;
            checker.event(1, tick, E::GoCreate, &[g, 1, 0]).unwrap();
            if g == 2 {
                checker.event(2, tick, E::ProcStart, &[101]).unwrap();
            }
            checker.event(2, tick + 1, E::GoStart, &[g, 1]).unwrap();
            checker.event(2, tick + 2, E::GoEnd, &[]).unwrap();
            assert!(checker.goroutines.len() <= 2);
        }
        for g in [1, 2, 5000, 9999] {
            assert!(refusal(checker.event(1, 200_000, E::GoCreate, &[g, 1, 0])).starts_with("no consistent"));
        }
        let size = format!("{checker:?}").len();
        assert!(size < 2000, "{size} characters describe a checker of two Ps and one goroutine");
    }

    #[test]
    fn a_collection_ends_after_its_beginning_wherever_it_ends() {
        let mut checker = Checker::new();
        running(&mut checker);
        checker.event(1, 20, E::GcStart, &[0, 0]).unwrap();
        assert!(refusal(checker.event(2, 20, E::GcDone, &[])).starts_with("bogus GC end"));
        checker.event(2, 21, E::GcDone, &[]).unwrap();
        checker.event(2, 21, E::GcStart, &[1, 0]).unwrap();
        checker.event(2, 21, E::GcDone, &[]).unwrap();
    }
}
