//! Spans of a goroutine or a P that may not be open twice. Go: `rangeState`.

use crate::invalid::Violation;

/// A kind of span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// A stop of the world, with the id of its reason.
    Stop(u64),
    Sweep,
    Assist,
}

impl Span {
    fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// The open spans of a goroutine or a P.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<Span>);

impl Ranges {
    pub(super) fn begin(&mut self, span: Span) -> Result<(), Violation> {
        if self.0.contains(&span) {
            return Err(Violation::refused(format!(
                "discovered {span:?} already in-flight when starting it"
            )));
        }
        self.0.push(span);
        Ok(())
    }

    /// Notes that a span is open at the beginning of a generation.
    pub(super) fn active(&mut self, span: Span, is_first: bool) -> Result<(), Violation> {
        match (self.0.contains(&span), is_first) {
            (true, true) => {
                Err(Violation::refused(format!("found active range already in first gen: {span:?}")))
            }
            (false, false) => Err(Violation::refused(format!("resource is missing active range: {span:?}"))),
            (true, false) => Ok(()),
            (false, true) => {
                self.0.push(span);
                Ok(())
            }
        }
    }

    /// Ends the span of this kind.
    pub(super) fn end(&mut self, kind: Span) -> Result<Span, Violation> {
        match self.0.iter().position(|open| open.is_like(kind)) {
            Some(at) => Ok(self.0.swap_remove(at)),
            None => Err(Violation::refused(format!("tried to end {kind:?}, but not in-flight"))),
        }
    }
}
