//! The versions of the second format.

/// The versions that Go 1.27 reads.
pub(crate) const VERSIONS: [u32; 4] = [22, 23, 25, 26];

/// The first version with a snapshot of the clocks.
pub(super) const WITH_SNAPSHOT: u32 = 25;

/// The first version with a mark at the end of a generation.
pub(super) const WITH_END: u32 = 26;
