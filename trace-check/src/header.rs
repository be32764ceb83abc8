//! The header of a file, which tells the formats apart.

/// Returns the version of Go that the header of a file names.
pub(crate) fn version(bytes: &[u8]) -> Option<u32> {
    let header = bytes.get(..16)?.strip_prefix(b"go 1.")?.strip_suffix(b" trace\0\0\0")?;
    std::str::from_utf8(header).ok()?.parse().ok()
}

/// Whether a file is in one of Go's formats, of whatever version.
pub fn is_go(bytes: &[u8]) -> bool {
    version(bytes).is_some()
}
