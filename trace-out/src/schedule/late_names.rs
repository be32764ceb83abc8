//! Names of goroutines that are created without one: threads that were created through the C library.
//!
//! Such a thread may name itself as soon as it runs, as std's threads do; so the rest of the generation is searched for
//! its name. A thread that does not is named by its first function, which is unknown until it has recorded an event.
//! These names are written at the end of the trace, when its stacks are looked up. All threads that one stack creates
//! share one name, so that memory grows with stacks, not with threads.

use std::collections::HashMap;

use rtprof_tracer::generation::Generation;
use rtprof_tracer::record::{Record, StackId, StringId};

use super::names::Frame;

/// Ids from here on stand for late names. The recorder's ids count from 1, and are fewer.
const FIRST: StringId = 1 << 31;

/// The last id that stands for a late name; larger ones are special marks.
const LAST: StringId = StringId::MAX - 16;

/// Returns the names that goroutines give themselves in a generation.
pub(super) fn given_in(generation: &Generation<'_>) -> HashMap<u64, StringId> {
    let buffers = generation.lanes.iter().flat_map(|lane| &lane.buffers);
    let records = buffers.flat_map(|buffer| buffer.records.clone());
    let names = records.filter_map(|(_, record)| match record {
        Record::Name { goroutine, name } => Some((goroutine, name)),
        _ => None,
    });
    names.collect()
}

/// The number of stacks that are looked at for a name.
const RUNS: usize = 4;

/// The name of the goroutines that one stack has created.
#[derive(Clone, Copy)]
pub(super) struct LateName {
    /// The id of their start stack; 0 while none is needed.
    pub(super) start: u64,
    /// The first different stacks of them that were recorded. One alone may be that of a thread that ends, which has left its
    /// function.
    pub(super) runs: [Option<StackId>; RUNS],
    /// The frame that names them, once it is known.
    pub(super) frame: Option<Frame>,
}

#[derive(Clone, Default)]
pub(super) struct LateNames {
    pub(super) all: Vec<LateName>,
    by_creator: HashMap<StackId, StringId>,
}

impl LateNames {
    /// Returns the id that stands for the name of a goroutine that this stack has created.
    pub(super) fn of(&mut self, creator: StackId) -> StringId {
        let Self { all, by_creator } = self;
        *by_creator.entry(creator).or_insert_with(|| {
            all.push(LateName { start: 0, runs: [None; RUNS], frame: None });
            FIRST + (all.len() - 1) as u32
        })
    }

    /// Returns the index of the late name for which `name` stands, if any.
    #[inline]
    pub(super) fn index(name: StringId) -> Option<u32> {
        (FIRST..=LAST).contains(&name).then(|| name - FIRST)
    }

    /// Returns the id of the start stack, which `make` makes if there is none yet.
    pub(super) fn start(&mut self, index: u32, make: impl FnOnce() -> u64) -> u64 {
        let start = &mut self.all[index as usize].start;
        if *start == 0 {
            *start = make();
        }
        *start
    }

    /// Returns the memory that it takes, roughly.
    pub(super) fn memory(&self) -> usize {
        self.all.len() * (size_of::<LateName>() + 2 * size_of::<StackId>())
    }

    /// Forgets all ids, for a part of the trace that has its own.
    pub(super) fn forget_ids(&mut self) {
        for late in &mut self.all {
            (late.start, late.frame) = (0, None);
        }
    }

    /// Notes that one of the goroutines was found with this stack.
    pub(super) fn runs(&mut self, index: u32, stack: StackId) {
        for known in &mut self.all[index as usize].runs {
            if *known.get_or_insert(stack) == stack {
                return;
            }
        }
    }

    /// Returns the frame that names them; `None` until it is known.
    pub(super) fn frame(&self, index: u32) -> Option<Frame> {
        self.all[index as usize].frame
    }
}
