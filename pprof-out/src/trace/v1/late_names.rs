//! Goroutines whose names are not known when they are created: threads that the C library was asked for. What such a thread is
//! called it says when it runs, if ever; and what it runs is seen in its first stack. So what a trace says of them is written at
//! its end.

use rtprof_tracer::record::{StackId, StringId};

use super::wire::Frame;

/// Numbers from here on stand for names that come later. The recorder's count from 1, and are fewer.
const FIRST: StringId = 1 << 31;

/// The last number that stands for one; beyond it are marks.
const LAST: StringId = StringId::MAX - 16;

/// One of them.
#[derive(Clone, Copy)]
pub(super) struct LateName {
    /// The stack that it was created with.
    pub(super) start: u64,
    /// The name that it has given itself.
    pub(super) given: Option<StringId>,
    /// The first stack of it that was recorded.
    pub(super) runs: Option<StackId>,
    /// What it is called, once that is settled.
    pub(super) frame: Option<Frame>,
}

#[derive(Default)]
pub(super) struct LateNames(pub(super) Vec<LateName>);

impl LateNames {
    /// A goroutine is created with the stack `start`. Returns what stands for its name.
    pub(super) fn begin(&mut self, start: u64) -> StringId {
        self.0.push(LateName { start, given: None, runs: None, frame: None });
        (FIRST + (self.0.len() - 1) as u32).min(LAST)
    }

    /// Which of them a name stands for, if for one.
    #[inline]
    pub(super) fn place(name: StringId) -> Option<u32> {
        (FIRST..=LAST).contains(&name).then(|| name - FIRST)
    }

    pub(super) fn start(&self, place: u32) -> u64 {
        self.0[place as usize].start
    }

    pub(super) fn given(&self, place: u32) -> Option<StringId> {
        self.0[place as usize].given
    }

    /// It has this name, if it is one of them.
    pub(super) fn give(&mut self, name: StringId, given: StringId) {
        if let Some(place) = Self::place(name) {
            self.0[place as usize].given = Some(given);
        }
    }

    /// It was found with this stack.
    pub(super) fn runs(&mut self, place: u32, stack: StackId) {
        self.0[place as usize].runs.get_or_insert(stack);
    }

    /// What it is called; `None` before that is settled.
    pub(super) fn frame(&self, place: u32) -> Option<Frame> {
        self.0[place as usize].frame
    }
}
