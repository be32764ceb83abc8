//! The strings and stacks of a generation.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::numbers::{put_bytes, put_number};
use crate::schedule::{Definitions, Frame};

use super::batch::Items;
use super::event::EventType;

/// The most bytes of a number.
const NUMBER: usize = 10;

/// The bits of a frame's PC in the file, the most of six bytes.
const PC_BITS: u32 = 42;

#[derive(Clone)]
pub(crate) struct Tables {
    strings: Items,
    stacks: Items,
    /// The hash of each string, by its id.
    hashes: Vec<u64>,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            strings: Items::new(EventType::Strings),
            stacks: Items::new(EventType::Stacks),
            // 0 is the empty string.
            hashes: vec![0],
        }
    }
}

impl Tables {
    /// Returns the bytes of all definitions so far.
    pub(super) fn len(&self) -> usize {
        self.strings.len() + self.stacks.len() + size_of_val(&*self.hashes)
    }

    /// Returns the PC of a frame in the file. `go tool trace -pprof` takes frames of one PC for the same, in all
    /// generations; so the PC is made of what distinguishes frames, and not of ids, which each generation has again.
    fn pc(&self, frame: &Frame) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.hashes[frame.function as usize], self.hashes[frame.file as usize], frame.line)
            .hash(&mut hasher);
        hasher.finish() >> (64 - PC_BITS) | 1
    }

    /// Moves all batches to the end of `out`.
    pub(super) fn close(&mut self, out: &mut Vec<u8>, generation: u64, time: u64) {
        self.strings.close(out, generation, time);
        self.stacks.close(out, generation, time);
    }
}

impl Definitions for Tables {
    /// Readers limit the frames, but not their bytes.
    const STACK_BYTES: usize = usize::MAX;
    const HAS_ROOTS: bool = true;

    fn string(&mut self, id: u64, text: &str) {
        self_check!(id == self.hashes.len() as u64 && !text.is_empty());
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        self.hashes.push(hasher.finish());
        self.strings.put(text.len() + 1 + 2 * NUMBER, |out| {
            out.push(EventType::String as u8);
            put_number(out, id);
            put_bytes(out, text.as_bytes());
        });
    }

    fn stack(&mut self, id: u64, frames: &[Frame]) {
        let frames: Vec<Frame> = frames.iter().map(|frame| Frame { pc: self.pc(frame), ..*frame }).collect();
        self.stacks.put((2 + 4 * frames.len()) * NUMBER + 1, |out| {
            out.push(EventType::Stack as u8);
            put_number(out, id);
            put_number(out, frames.len() as u64);
            for number in frames.iter().flat_map(Frame::numbers) {
                put_number(out, number);
            }
        });
    }
}
