//! Numbers and texts as both formats of Go's have them.

use prost::encoding::encode_varint;

/// Appends a number of 7 bits a byte, the low ones first (LEB128).
///
/// Most numbers of events are small. Without the short way for them an event takes an eighth longer.
#[inline]
pub(crate) fn put_number(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x80 => out.push(value as u8),
        _ => encode_varint(value, out),
    }
}

/// Appends a length, and as many bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
