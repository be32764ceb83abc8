//! Faults of a trace.

use std::fmt;

/// The consequence of a broken rule for a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Consequence {
    /// `go tool trace` of Go 1.27 or of Go 1.21 does not open it.
    Refused,
    /// `go tool trace` opens it, and one of its pages, or the server, crashes.
    Crash,
    /// `go tool trace` shows it wrongly.
    Misread,
}

/// An event that may not follow the events before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The consequence for the trace.
    pub consequence: Consequence,
    /// The fault: in the words of Go's tools, where they have any.
    pub message: String,
}

impl Violation {
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { consequence: Consequence::Refused, message: message.into() }
    }

    pub(crate) fn crash(message: impl Into<String>) -> Self {
        Self { consequence: Consequence::Crash, message: message.into() }
    }

    pub(crate) fn misread(message: impl Into<String>) -> Self {
        Self { consequence: Consequence::Misread, message: message.into() }
    }

    /// Adds the position of the fault.
    pub(crate) fn at(self, offset: usize) -> Invalid {
        Invalid { violation: self, offset: Some(offset) }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.consequence {
            Consequence::Refused => "go tool trace refuses it: ",
            Consequence::Crash => "go tool trace crashes: ",
            Consequence::Misread => "go tool trace misreads it: ",
        })?;
        f.write_str(&self.message)
    }
}

impl std::error::Error for Violation {}

/// A fault of a trace, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invalid {
    /// The fault.
    pub violation: Violation,
    /// The first byte of the record where it was found. `None` if the fault concerns the trace as a whole.
    pub offset: Option<usize>,
}

impl From<Violation> for Invalid {
    fn from(violation: Violation) -> Self {
        Self { violation, offset: None }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.violation.fmt(f)?;
        match self.offset {
            Some(offset) => write!(f, " (byte {offset})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Invalid {}
