//! Reads execution traces in Go's format "go 1.19 trace" as Go's own tools do, and more strictly. For the tests of
//! rtprof; not shipped with it.
//!
//! [`validate()`] reads a whole file. [`Checker`] follows events one by one as they are made, before they are encoded.

#![forbid(unsafe_code)]

mod checker;
mod event;
mod invalid;
mod last_change;
mod merge;
mod parse;
mod parsed;
mod record;
mod rules;
mod tasks;
mod transitions;
mod validate;
#[cfg(test)]
mod validate_tests;

pub use checker::{Checker, EventCheck, event_check};
pub use event::{Argument, ArgumentKind, EventType, NO_PROC};
pub use invalid::{Consequence, Invalid, Violation};
pub use parsed::{Event, Frame, Parsed};
pub use validate::validate;
