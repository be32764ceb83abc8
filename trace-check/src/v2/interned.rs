//! The strings and stacks of all generations, under ids that hold for the whole trace.

use std::collections::HashMap;

use crate::parse::RawFrame;

use super::generation::Generation;

#[derive(Debug, Default)]
pub(super) struct Interned {
    strings: HashMap<String, u64>,
    /// The strings by their ids; the first is the empty one.
    texts: Vec<String>,
    stacks: HashMap<Vec<RawFrame>, u64>,
    pcs: HashMap<(u64, u64, u64), u64>,
}

/// The ids of a generation's strings and stacks.
#[derive(Debug, Default)]
pub(super) struct Ids {
    strings: HashMap<u64, u64>,
    stacks: HashMap<u64, u64>,
}

impl Ids {
    /// Returns the id of a string; `None` if it is not defined.
    pub(super) fn string(&self, id: u64) -> Option<u64> {
        if id == 0 { Some(0) } else { self.strings.get(&id).copied() }
    }

    /// Returns the id of a stack; `None` if it is not defined.
    pub(super) fn stack(&self, id: u64) -> Option<u64> {
        if id == 0 { Some(0) } else { self.stacks.get(&id).copied() }
    }
}

impl Interned {
    pub(super) fn string(&mut self, text: &str) -> u64 {
        if let Some(&id) = self.strings.get(text) {
            return id;
        }
        if self.texts.is_empty() {
            self.texts.push(String::new());
        }
        let id = self.texts.len() as u64;
        self.texts.push(text.to_owned());
        self.strings.insert(text.to_owned(), id);
        id
    }

    /// Returns the string with this id.
    pub(super) fn text(&self, id: u64) -> &str {
        self.texts.get(id as usize).map_or("", String::as_str)
    }

    /// Returns the ids of a generation's strings and stacks.
    pub(super) fn ids(&mut self, generation: &Generation<'_>) -> Ids {
        let mut ids = Ids::default();
        for (&id, text) in &generation.strings {
            ids.strings.insert(id, self.string(text));
        }
        for (&id, frames) in &generation.stacks {
            let frame = |frame: &RawFrame| {
                let function = ids.string(frame.function).unwrap_or(0);
                let file = ids.string(frame.file).unwrap_or(0);
                let next = self.pcs.len() as u64 + 1;
                let pc = *self.pcs.entry((function, file, frame.line)).or_insert(next);
                RawFrame { pc, function, file, line: frame.line }
            };
            let frames: Vec<RawFrame> = frames.iter().map(frame).collect();
            let next = self.stacks.len() as u64 + 1;
            let stack = *self.stacks.entry(frames).or_insert(next);
            ids.stacks.insert(id, stack);
        }
        ids
    }

    /// Returns all strings and stacks by their ids.
    pub(super) fn tables(self) -> (HashMap<u64, String>, HashMap<u64, Vec<RawFrame>>) {
        let strings = self.strings.into_iter().map(|(text, id)| (id, text));
        let stacks = self.stacks.into_iter().map(|(frames, id)| (id, frames));
        (strings.collect(), stacks.collect())
    }
}
