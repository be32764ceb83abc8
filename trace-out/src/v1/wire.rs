//! Encoding of the format's records.

use crate::numbers::{put_bytes, put_number};
use crate::schedule::{Definitions, Frame};

use super::event::{EventType, LENGTH_PREFIXED, MAX_LENGTH};

/// The beginning of a trace. Go 1.20 wrote this too; no tool accepts "go 1.20".
pub(super) const HEADER: &[u8; 16] = b"go 1.19 trace\0\0\0";

/// Appends a timed event, `delta` ticks after the previous one in its batch.
#[inline]
pub(super) fn put_event<const N: usize>(out: &mut Vec<u8>, event: EventType, delta: u64, args: [u64; N]) {
    // Computed from `N`, which is constant, instead of a look-up in the table for each event.
    let has_length = N >= LENGTH_PREFIXED as usize;
    let argument_bits = if has_length { LENGTH_PREFIXED } else { N as u8 };
    out.push(event.number() | argument_bits << 6);
    // At most five numbers of ten bytes: their length fits in one byte.
    let length = out.len();
    if has_length {
        out.push(0);
    }
    put_number(out, delta);
    for arg in args {
        put_number(out, arg);
    }
    if has_length {
        out[length] = (out.len() - length - 1) as u8;
    }
}

/// Begins a batch: the following events are of this P, and the delta of the first one counts from `ticks`.
pub(super) fn put_batch(out: &mut Vec<u8>, pid: u64, ticks: u64) {
    out.push(EventType::Batch.first_byte());
    put_number(out, pid);
    put_number(out, ticks);
}

pub(super) fn put_frequency(out: &mut Vec<u8>, ticks_per_second: u64) {
    out.push(EventType::Frequency.first_byte());
    put_number(out, ticks_per_second);
}

/// The definitions of strings and stacks, as records.
#[derive(Default)]
pub(super) struct Records(pub(super) Vec<u8>);

/// The most bytes of a stack's id and its number of frames.
const STACK_HEAD: usize = 10 + 2;

impl Definitions for Records {
    const STACK_BYTES: usize = MAX_LENGTH as usize - STACK_HEAD;
    const HAS_ROOTS: bool = true;

    fn string(&mut self, id: u64, text: &str) {
        self_check!(id != 0 && !text.is_empty());
        self.0.push(EventType::String.first_byte());
        put_number(&mut self.0, id);
        put_bytes(&mut self.0, text.as_bytes());
    }

    fn stack(&mut self, id: u64, frames: &[Frame]) {
        let mut body = Vec::with_capacity(16 + frames.len() * 16);
        put_number(&mut body, id);
        put_number(&mut body, frames.len() as u64);
        for number in frames.iter().flat_map(Frame::numbers) {
            put_number(&mut body, number);
        }
        self_check!(body.len() as u64 <= MAX_LENGTH);
        self.0.push(EventType::Stack.first_byte());
        put_bytes(&mut self.0, &body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out);
        out
    }

    #[test]
    fn events_are_written_as_go_writes_them() {
        let heap = bytes(|out| put_event(out, EventType::HeapAlloc, 5, [4 << 20]));
        assert_eq!(heap, [0x61, 5, 0x80, 0x80, 0x80, 2]);
        let create = bytes(|out| put_event(out, EventType::GoCreate, 10, [2, 3, 2]));
        assert_eq!(create, [0xcd, 4, 10, 2, 3, 2]);
        let start = bytes(|out| put_event(out, EventType::GoStartLocal, 5, [1]));
        assert_eq!(start, [0x66, 5, 1]);
        let log = bytes(|out| {
            put_event(out, EventType::UserLog, 5, [1, 9, 6]);
            put_bytes(out, b"hi");
        });
        assert_eq!(log, [0xf0, 4, 5, 1, 9, 6, 2, b'h', b'i']);
    }
}
