//! The entry point of the fuzz target `profile` (`fuzz/`), in builds with `--cfg fuzzing` only.

use prost::Message as _;

use crate::proto::Profile;

/// Decodes a profile, and encodes what was read again: both must have the same contents.
///
/// # Panics
/// If they do not.
pub fn profile(bytes: &[u8]) {
    if let Ok(profile) = Profile::decode(bytes) {
        let again = Profile::decode(&*profile.encode_to_vec()).expect("what was encoded is decoded");
        assert_eq!(profile, again);
    }
}
