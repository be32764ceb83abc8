//! Bytes after their length, as both formats of Go's have strings.

use prost::encoding::encode_varint;

/// Appends a length, and as many bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}
