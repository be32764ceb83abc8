//! The order of a goroutine's changes, which decides whether streams of events can be put in one order.
//!
//! A goroutine has a position: a sequence number and a state. Most changes name the position at which they begin, and a
//! reader takes them when the goroutine is there. So an event that names a wrong position is never taken, and the whole
//! trace is refused without naming the event; this module reports the event.

use std::collections::HashMap;
use std::fmt;

use super::event::EventType;
use rangemap::RangeInclusiveSet;

/// The state of a goroutine between two changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Never seen.
    Unknown,
    Runnable,
    Running,
    Waiting,
    /// It has ended. Its id cannot be used again.
    Ended,
}

/// The owner of the position that a change moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransitionOf {
    /// The goroutine in the first argument.
    Argument,
    /// The goroutine that runs on the P.
    Current,
    /// The collector, whose cycles have sequence numbers too.
    Collector,
}

/// The sequence number at which a change begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// Any.
    Anywhere,
    /// This number.
    At(u64),
    /// The number in this argument.
    AtArgument(usize),
}

/// A change of position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) of: TransitionOf,
    pub(crate) begins: Begins,
    pub(crate) from: State,
    pub(crate) to: State,
    /// Whether it increments the sequence number.
    pub(crate) counts: bool,
}

impl EventType {
    /// Returns the event's change of position, if any. `GoEnd` and `GoStop` have none: they do not affect the order.
    pub(crate) const fn transition(self) -> Option<Transition> {
        use Begins::{Anywhere, At, AtArgument};
        use State::{Runnable, Running, Unknown, Waiting};
        use TransitionOf::{Argument, Collector, Current};
        let (of, begins, from, to, counts) = match self {
            Self::GoCreate => (Argument, At(0), Unknown, Runnable, true),
            Self::GoWaiting | Self::GoInSyscall => (Argument, At(1), Runnable, Waiting, true),
            Self::GoStart | Self::GoStartLabel => (Argument, AtArgument(1), Runnable, Running, true),
            Self::GoStartLocal => (Argument, Anywhere, Runnable, Running, true),
            Self::GoBlock
            | Self::GoBlockSend
            | Self::GoBlockRecv
            | Self::GoBlockSelect
            | Self::GoBlockSync
            | Self::GoBlockCond
            | Self::GoBlockNet
            | Self::GoBlockGc
            | Self::GoSleep
            | Self::GoSysBlock => (Current, Anywhere, Running, Waiting, false),
            Self::GoSched | Self::GoPreempt => (Current, Anywhere, Running, Runnable, false),
            Self::GoUnblock | Self::GoSysExit => (Argument, AtArgument(1), Waiting, Runnable, true),
            Self::GoUnblockLocal | Self::GoSysExitLocal => (Argument, Anywhere, Waiting, Runnable, true),
            Self::GcStart => (Collector, AtArgument(0), Unknown, Unknown, true),
            _ => return None,
        };
        Some(Transition { of, begins, from, to, counts })
    }

    /// Whether it names the goroutine that runs on the P, or the one concerned: Go's tools then attribute the event to
    /// that goroutine.
    pub(crate) const fn happens_on_argument(self) -> bool {
        matches!(
            self,
            Self::GoStart
                | Self::GoStartLocal
                | Self::GoStartLabel
                | Self::GoSysExit
                | Self::GoWaiting
                | Self::GoInSyscall
        )
    }

    /// Whether it starts a goroutine on the P.
    pub(crate) const fn starts(self) -> bool {
        matches!(self, Self::GoStart | Self::GoStartLocal | Self::GoStartLabel)
    }

    /// Whether it leaves the P without a goroutine.
    pub const fn leaves(self) -> bool {
        match self.transition() {
            Some(transition) => matches!(transition.of, TransitionOf::Current),
            None => matches!(self, Self::GoEnd | Self::GoStop),
        }
    }
}

/// The position of a goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) sequence: u64,
    pub(crate) state: State,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at sequence number {}", self.state, self.sequence)
    }
}

/// A change with its goroutine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    transition: Transition,
    /// The goroutine; ignored for the collector.
    pub(crate) goroutine: u64,
    at: Option<u64>,
}

impl Change {
    /// Returns the change that `event` makes when `current` runs on its P.
    pub(crate) fn of(event: EventType, current: u64, args: &[u64]) -> Option<Self> {
        let transition = event.transition()?;
        let goroutine = match transition.of {
            TransitionOf::Argument => args[0],
            TransitionOf::Current => current,
            TransitionOf::Collector => 0,
        };
        let at = match transition.begins {
            Begins::Anywhere => None,
            Begins::At(sequence) => Some(sequence),
            Begins::AtArgument(argument) => Some(args[argument]),
        };
        Some(Self { transition, goroutine, at })
    }

    pub(crate) fn is_of_collector(&self) -> bool {
        self.transition.of == TransitionOf::Collector
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transition.of {
            TransitionOf::Collector => f.write_str("the collector")?,
            _ => write!(f, "g {} {:?}", self.goroutine, self.transition.from)?,
        }
        match self.at {
            Some(sequence) => write!(f, " at sequence number {sequence}"),
            None => Ok(()),
        }
    }
}

/// The positions of all goroutines. Ended goroutines take only a share of a range of ids.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    alive: HashMap<u64, Position>,
    used: RangeInclusiveSet<u64>,
    collections: u64,
}

impl Positions {
    /// Returns the position of the goroutine, or of the collector, of a change.
    pub(crate) fn of(&self, change: &Change) -> Position {
        if change.is_of_collector() {
            return Position { sequence: self.collections, state: State::Unknown };
        }
        match self.alive.get(&change.goroutine) {
            Some(&position) => position,
            None if self.used.contains(&change.goroutine) => Position { sequence: 0, state: State::Ended },
            None => Position { sequence: 0, state: State::Unknown },
        }
    }

    /// Whether the change can happen now.
    pub(crate) fn allow(&self, change: &Change) -> bool {
        let now = self.of(change);
        now.state == change.transition.from && change.at.is_none_or(|sequence| sequence == now.sequence)
    }

    /// Makes a change that is allowed.
    pub(crate) fn make(&mut self, change: &Change) {
        let sequence = self.of(change).sequence.wrapping_add(change.transition.counts.into());
        if change.is_of_collector() {
            self.collections = sequence;
            return;
        }
        if change.transition.from == State::Unknown {
            self.used.insert(change.goroutine..=change.goroutine);
        }
        self.alive.insert(change.goroutine, Position { sequence, state: change.transition.to });
    }

    /// Removes a goroutine that has ended.
    pub(crate) fn end(&mut self, goroutine: u64) {
        self.alive.remove(&goroutine);
    }
}
