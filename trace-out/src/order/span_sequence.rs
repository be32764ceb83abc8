//! Collections, and stops of the world: one at a time, in the order of their numbers, across all lanes.

/// The trace's progress with the spans of one kind.
#[derive(Default)]
pub(super) struct SpanSequence {
    /// The number of the next span.
    next: u64,
    pub(super) is_open: bool,
    /// The tick at which the last span began or ended, and its lane.
    pub(super) tick: u64,
    pub(super) lane: u32,
    /// Readings that wait for their turn.
    waiting: Vec<u32>,
}

/// What to do with the record of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanOrder {
    Now,
    Later,
    /// It was overtaken, after a loss.
    Stale,
}

impl SpanSequence {
    pub(super) fn start(&self, number: u64) -> SpanOrder {
        match number {
            number if number < self.next => SpanOrder::Stale,
            number if number == self.next && !self.is_open => SpanOrder::Now,
            _ => SpanOrder::Later,
        }
    }

    pub(super) fn end(&self, number: u64) -> SpanOrder {
        match number + 1 {
            next if next == self.next && self.is_open => SpanOrder::Now,
            next if next <= self.next => SpanOrder::Stale,
            _ => SpanOrder::Later,
        }
    }

    pub(super) fn started(&mut self, number: u64) {
        self.next = number + 1;
        self.is_open = true;
    }

    pub(super) fn wait(&mut self, reading: u32) {
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

    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
    }
}
