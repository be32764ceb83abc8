//! Encoding of the format's records.

use super::event::{EventType, LENGTH_PREFIXED};

/// The beginning of a trace. Go 1.20 wrote this too; no tool accepts "go 1.20".
pub(super) const HEADER: &[u8; 16] = b"go 1.19 trace\0\0\0";

/// Appends a number: unsigned LEB128.
#[inline]
pub(super) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

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

/// Appends the length of a message, and the message.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a string. It must not be empty, nor `id` 0 or used twice.
pub(super) fn put_string(out: &mut Vec<u8>, id: u64, text: &str) {
    self_check!(id != 0 && !text.is_empty());
    out.push(EventType::String.first_byte());
    put_number(out, id);
    put_bytes(out, text.as_bytes());
}

/// A frame of a stack: the ids of strings, and a PC that no other frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Frame {
    pub(super) pc: u64,
    pub(super) function: u64,
    pub(super) file: u64,
    pub(super) line: u64,
}

/// Appends a stack, leaf first.
pub(super) fn put_stack(out: &mut Vec<u8>, id: u64, frames: &[Frame]) {
    let mut body = Vec::with_capacity(16 + frames.len() * 16);
    put_number(&mut body, id);
    put_number(&mut body, frames.len() as u64);
    for frame in frames {
        put_frame(&mut body, frame);
    }
    self_check!(body.len() as u64 <= super::event::MAX_LENGTH);
    out.push(EventType::Stack.first_byte());
    put_bytes(out, &body);
}

fn put_frame(out: &mut Vec<u8>, frame: &Frame) {
    for number in [frame.pc, frame.function, frame.file, frame.line] {
        put_number(out, number);
    }
}

/// Returns the number of bytes of a frame in a stack.
pub(super) fn frame_len(frame: &Frame) -> usize {
    [frame.pc, frame.function, frame.file, frame.line].into_iter().map(number_len).sum()
}

fn number_len(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
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

    #[test]
    fn lengths_are_known_before() {
        for value in [0, 1, 127, 128, 16383, 16384, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(number_len(value), bytes(|out| put_number(out, value)).len(), "{value}");
        }
        let frame = Frame { pc: 300, function: 1, file: 0, line: 70_000 };
        assert_eq!(frame_len(&frame), bytes(|out| put_frame(out, &frame)).len());
    }
}
