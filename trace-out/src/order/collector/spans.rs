//! Collections, and stops of the world: one of each at a time, in the order of their numbers, across all lanes.

/// What is numbered across all lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::order) enum Numbered {
    Collection,
    Stop,
}

/// The trace's progress with both.
#[derive(Default)]
pub(in crate::order) struct CollectorSpans {
    collections: SpanSequence,
    stops: SpanSequence,
}

impl CollectorSpans {
    pub(in crate::order) fn of(&mut self, of: Numbered) -> &mut SpanSequence {
        match of {
            Numbered::Collection => &mut self.collections,
            Numbered::Stop => &mut self.stops,
        }
    }

    pub(in crate::order) fn forget_waiting(&mut self) {
        self.collections.waiting.clear();
        self.stops.waiting.clear();
    }
}

/// The trace's progress with the spans of one kind.
#[derive(Default)]
pub(in crate::order) struct SpanSequence {
    /// The number of the next span.
    next: u64,
    is_open: bool,
    /// The tick at which the last span began or ended, and its lane.
    pub(super) cause: (u64, u32),
    /// Readings that wait for their turn.
    waiting: Vec<u32>,
}

/// The beginning or the end of a span, by its number.
#[derive(Clone, Copy)]
pub(super) enum Edge {
    Start(u64),
    End(u64),
}

impl Edge {
    /// Returns the number of the next span after this edge and all before it.
    pub(super) fn first_needed(self) -> u64 {
        match self {
            Self::Start(number) => number,
            Self::End(number) => number + 1,
        }
    }
}

/// What to do with the record of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanOrder {
    Now,
    Later,
    /// It was overtaken, after a loss.
    Stale,
}

impl SpanSequence {
    pub(super) fn order(&self, edge: Edge) -> SpanOrder {
        match edge {
            Edge::Start(number) if number < self.next => SpanOrder::Stale,
            Edge::Start(number) if number == self.next && !self.is_open => SpanOrder::Now,
            Edge::End(number) if number + 1 == self.next && self.is_open => SpanOrder::Now,
            Edge::End(number) if number < self.next => SpanOrder::Stale,
            Edge::Start(_) | Edge::End(_) => SpanOrder::Later,
        }
    }

    pub(super) fn pass(&mut self, edge: Edge) {
        match edge {
            Edge::Start(number) => (self.next, self.is_open) = (number + 1, true),
            Edge::End(_) => self.is_open = false,
        }
    }

    pub(in crate::order) fn wait(&mut self, reading: u32) {
        self.waiting.push(reading);
    }

    pub(super) fn wake(&mut self, ready: impl FnMut(u32)) {
        self.waiting.drain(..).for_each(ready);
    }

    pub(super) fn waiting(&self) -> &[u32] {
        &self.waiting
    }

    /// Skips the spans before `number`, which were lost.
    pub(super) fn skip_to(&mut self, number: u64) {
        self.next = number;
        self.is_open = false;
    }
}
