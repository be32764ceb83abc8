//! The schedule that a trace shows: goroutines that run on Ps, wait and wake each other.
//!
//! Readers of both of Go's formats track the state of each goroutine and of each P event by event, and accept no event
//! that does not fit. [`Schedule`] keeps the states as a reader sees them, and changes them by events that readers
//! accept; [`Writing`] turns records into such events; [`Procs`] has the Ps; `Names` the strings and stacks. A format
//! implements [`Wire`], which writes the events, and [`Definitions`].

mod called;
mod calls;
mod changes;
mod collector;
mod event;
mod finish;
mod goroutines;
mod id_set;
mod late_names;
mod names;
mod parts;
mod polls;
mod procs;
mod reason;
mod stacks;
mod writing;

pub(crate) use changes::{Schedule, Unmatched};
pub(crate) use collector::CollectorEvent;
pub(crate) use event::{Changed, Event, Introduction, Start};
pub(crate) use goroutines::Phase;
pub(crate) use names::{Definitions, Frame, Names};
pub(crate) use procs::{OUTSIDE, Proc, Procs, Wire};
pub(crate) use reason::Reason;
pub(crate) use stacks::define;
#[cfg(test)]
pub(crate) use writing::OPEN_REGIONS;
pub(crate) use writing::Writing;
