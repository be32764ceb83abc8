//! Encodes records.

use super::{RecordKind, StackId, StringId};

/// Appends records to a buffer's bytes. The caller ensures that [`MAX_RECORD`](super::MAX_RECORD) bytes are free, or as
/// many as the record needs at most.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Begins to write at index `at`.
    #[inline]
    pub fn new(bytes: &'a mut [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Returns the index of the next byte.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Writes a record without a message, `delta` ticks after the one before.
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub fn put<const N: usize>(&mut self, kind: RecordKind, delta: u64, arguments: [u64; N]) {
        debug_assert_eq!(N, kind.arguments(), "{kind:?}");
        self.byte(kind as u8);
        self.number(delta);
        for argument in arguments {
            self.number(argument);
        }
    }

    /// Writes a [`RecordKind::Log`]. `message` has at most [`MAX_STRING`](super::MAX_STRING) bytes.
    ///
    /// # Panics
    /// If there is no room.
    pub fn put_log(&mut self, delta: u64, task: u64, category: StringId, stack: StackId, message: &[u8]) {
        let arguments = [task, u64::from(category), u64::from(stack), message.len() as u64];
        self.put(RecordKind::Log, delta, arguments);
        self.bytes[self.at..][..message.len()].copy_from_slice(message);
        self.at += message.len();
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.bytes[self.at] = byte;
        self.at += 1;
    }

    #[inline]
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }
}
