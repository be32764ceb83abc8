//! Reads execution traces in Go's formats as Go's own tools do, and more strictly. For the tests of rtprof; not shipped
//! with it.
//!
//! [`validate()`] reads a whole file, of the first format ("go 1.19 trace") or the second ("go 1.22 trace" and later).
//! [`perfetto::check`] reads a file of Perfetto. [`Checker`] follows events of the first format one by one as they are
//! made, before they are encoded.

#![forbid(unsafe_code)]

mod agreement;
mod checker;
mod event;
mod header;
mod invalid;
mod last_change;
mod merge;
mod parse;
mod parsed;
#[allow(missing_docs, reason = "the fields say what they are")]
pub mod perfetto;
mod record;
mod rules;
mod tasks;
mod transitions;
mod v2;
mod validate;
#[cfg(test)]
mod validate_tests;

pub use agreement::disagreements;
pub use checker::{Checker, EventCheck, event_check};
pub use event::{Argument, ArgumentKind, EventType, NO_PROC};
pub use header::is_go;
pub use invalid::{Consequence, Invalid, Violation};
pub use parsed::{Event, Frame, Parsed};
pub use validate::validate;
