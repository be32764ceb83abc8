//! Goroutines that are created without a name: threads that the C library was asked for.
//!
//! Such a thread may give itself a name as soon as it runs, as std's do; so the rest of the generation is searched for it. One
//! that does not is called by its first function, which is not known before it has done something. What a trace says of those
//! is written at its end, when its stacks are looked up. They have one name for each stack that creates such threads: what is
//! kept grows with stacks, not with threads.

use std::collections::HashMap;

use rtprof_tracer::generation::Generation;
use rtprof_tracer::record::{Record, StackId, StringId};

use super::wire::Frame;

/// Numbers from here on stand for names that come later. The recorder's count from 1, and are fewer.
const FIRST: StringId = 1 << 31;

/// The last number that stands for one; beyond it are marks.
const LAST: StringId = StringId::MAX - 16;

/// The names that goroutines give themselves in a generation.
pub(super) fn given_in(generation: &Generation<'_>) -> HashMap<u64, StringId> {
    let buffers = generation.lanes.iter().flat_map(|lane| &lane.buffers);
    let records = buffers.flat_map(|buffer| buffer.records.clone());
    let names = records.filter_map(|(_, record)| match record {
        Record::Name { goroutine, name } => Some((goroutine, name)),
        _ => None,
    });
    names.collect()
}

/// What goroutines are called that one stack has created.
#[derive(Clone, Copy)]
pub(super) struct LateName {
    /// The stack that they begin with, in the trace.
    pub(super) start: u64,
    /// The first stack of one of them that was recorded.
    pub(super) runs: Option<StackId>,
    /// What they are called, once that is settled.
    pub(super) frame: Option<Frame>,
}

#[derive(Default)]
pub(super) struct LateNames {
    pub(super) all: Vec<LateName>,
    by_creator: HashMap<StackId, StringId>,
}

impl LateNames {
    /// What stands for the name of a goroutine that this stack has created. `start` makes the id of a stack that is to be
    /// defined.
    pub(super) fn of(&mut self, creator: StackId, start: impl FnOnce() -> u64) -> StringId {
        let Self { all, by_creator } = self;
        *by_creator.entry(creator).or_insert_with(|| {
            all.push(LateName { start: start(), runs: None, frame: None });
            FIRST + (all.len() - 1) as u32
        })
    }

    /// Which of them a name stands for, if for one.
    #[inline]
    pub(super) fn index(name: StringId) -> Option<u32> {
        (FIRST..=LAST).contains(&name).then(|| name - FIRST)
    }

    pub(super) fn start(&self, index: u32) -> u64 {
        self.all[index as usize].start
    }

    /// One of them was found with this stack.
    pub(super) fn runs(&mut self, index: u32, stack: StackId) {
        self.all[index as usize].runs.get_or_insert(stack);
    }

    /// What they are called; `None` before that is settled.
    pub(super) fn frame(&self, index: u32) -> Option<Frame> {
        self.all[index as usize].frame
    }
}
