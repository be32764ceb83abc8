//! The strings and stacks of a generation.

use crate::schedule::{Definitions, Frame};
use crate::varint::{put_bytes, put_number};

use super::batch::Items;
use super::event::EventType;

/// The most bytes of a number.
const NUMBER: usize = 10;

#[derive(Clone)]
pub(crate) struct Tables {
    strings: Items,
    stacks: Items,
}

impl Default for Tables {
    fn default() -> Self {
        Self { strings: Items::new(EventType::Strings), stacks: Items::new(EventType::Stacks) }
    }
}

impl Tables {
    /// Returns the bytes of all definitions so far.
    pub(super) fn len(&self) -> usize {
        self.strings.len() + self.stacks.len()
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
        self_check!(id != 0 && !text.is_empty());
        self.strings.put(text.len() + 1 + 2 * NUMBER, |out| {
            out.push(EventType::String as u8);
            put_number(out, id);
            put_bytes(out, text.as_bytes());
        });
    }

    fn stack(&mut self, id: u64, frames: &[Frame]) {
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
