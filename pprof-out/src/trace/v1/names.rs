//! The strings and stacks of a trace and their ids.
//!
//! Goroutines are named by their stacks: the newest Go takes the outermost frame of the first one it sees, the oldest
//! the only frame of the stack that the goroutine was created with. So a name is a function that calls all others.

use std::collections::HashMap;

use rtprof_tracer::generation::Tables;
use rtprof_tracer::record::{StackId, StringId};

use crate::hash::AddressMap;

use super::wire::{Frame, put_stack, put_string};

/// What a goroutine without a name is called.
const UNNAMED: &str = "thread";

/// Go's tools leave goroutines whose function is of this package out of their lists.
const HIDDEN: &str = "runtime.";

/// Nobody's name: the stack has no root of ours.
const NOBODY: StringId = StringId::MAX;

/// What has an id, and what is to be written of it.
#[derive(Default)]
pub(super) struct Names {
    texts: HashMap<Box<str>, u64>,
    /// By their ids in the records.
    strings: AddressMap<u32, u64>,
    /// The start stacks of goroutines, by name, and their only frame.
    starts: AddressMap<u32, (u64, Frame)>,
    /// The PC of each frame.
    frames: HashMap<(u64, u64, u64), u64>,
    /// Stacks of the program's code with the name beneath them.
    stacks: AddressMap<u64, u64>,
    code: Vec<CodeStack>,
    last_stack: u64,
    /// Definitions that are not in the file yet.
    pub(super) definitions: Vec<u8>,
}

/// A stack of the program's code that events refer to.
#[derive(Clone, Copy)]
pub(super) struct CodeStack {
    pub(super) id: u64,
    pub(super) stack: StackId,
    /// What its goroutine is called, where it is known.
    pub(super) root: Option<Frame>,
}

impl Names {
    /// The id of a text, defined if it is new. 0 is the empty one.
    pub(super) fn text(&mut self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&id) = self.texts.get(text) {
            return id;
        }
        let id = self.texts.len() as u64 + 1;
        put_string(&mut self.definitions, id, text);
        self.texts.insert(text.into(), id);
        id
    }

    /// The id of a string of the records.
    #[inline]
    pub(super) fn string(&mut self, string: StringId, tables: &dyn Tables) -> u64 {
        if let Some(&id) = self.strings.get(&string) {
            return id;
        }
        let id = self.text(tables.string(string));
        self.strings.insert(string, id);
        id
    }

    /// The frame with this function, file and line. Readers know a frame by its PC, and the first one that has it
    /// stands for all: so each has its own, and as small a one as can be.
    pub(super) fn frame(&mut self, function: u64, file: u64, line: u64) -> Frame {
        let next = self.frames.len() as u64 + 1;
        let pc = *self.frames.entry((function, file, line)).or_insert(next);
        Frame { pc, function, file, line }
    }

    /// The id of what a goroutine of this name is called.
    pub(super) fn name_of(&mut self, name: StringId, tables: &dyn Tables) -> u64 {
        self.named(name, tables).1.function
    }

    /// The stack that a goroutine of this name starts with: it has to have one.
    pub(super) fn start(&mut self, name: StringId, tables: &dyn Tables) -> u64 {
        self.named(name, tables).0
    }

    fn named(&mut self, name: StringId, tables: &dyn Tables) -> (u64, Frame) {
        if let Some(&start) = self.starts.get(&name) {
            return start;
        }
        let function = match tables.string(name) {
            "" => self.text(UNNAMED),
            hidden if hidden.starts_with(HIDDEN) => self.text(&format!("{UNNAMED} {hidden}")),
            _ => self.string(name, tables),
        };
        let frame = self.frame(function, 0, 0);
        self.last_stack += 1;
        let start = (self.last_stack, frame);
        put_stack(&mut self.definitions, start.0, &[frame]);
        self.starts.insert(name, start);
        start
    }

    /// The id of a stack of the records, in a goroutine of this name. Without a stack it is the name alone, as the
    /// oldest Go leaves events without one out of its profiles.
    #[inline]
    pub(super) fn stack(&mut self, stack: StackId, name: StringId, tables: &dyn Tables) -> u64 {
        let key = u64::from(stack) << 32 | u64::from(name);
        match self.stacks.get(&key) {
            Some(&id) => id,
            None => self.add_stack(stack, name, tables),
        }
    }

    /// The id of a stack of nobody that is known; 0 for none.
    pub(super) fn nobodys_stack(&mut self, stack: StackId, tables: &dyn Tables) -> u64 {
        if stack == 0 { 0 } else { self.stack(stack, NOBODY, tables) }
    }

    #[cold]
    fn add_stack(&mut self, stack: StackId, name: StringId, tables: &dyn Tables) -> u64 {
        let named = (name != NOBODY).then(|| self.named(name, tables));
        let id = match named {
            Some((start, _)) if stack == 0 => start,
            _ => {
                self.last_stack += 1;
                let root = named.map(|(_, frame)| frame);
                self.code.push(CodeStack { id: self.last_stack, stack, root });
                self.last_stack
            }
        };
        self.stacks.insert(u64::from(stack) << 32 | u64::from(name), id);
        id
    }

    /// All stacks of code that have an id.
    pub(super) fn take_code(&mut self) -> Vec<CodeStack> {
        std::mem::take(&mut self.code)
    }
}
