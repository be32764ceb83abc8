//! Profiles that every client asks for and that are not part of rtprof yet. They are empty and say so: a scraper that
//! gets an error for one of its profiles takes the whole program for ill.

use rtprof_pprof_out::{Profile, lookup};

const ABSENT: [(&str, &str); 1] = [(
    "goroutine",
    "rtprof: the goroutine profile is not part of this version yet; this one is empty whatever runs",
)];

/// All of them.
pub(crate) fn profiles() -> impl Iterator<Item = Profile> {
    ABSENT.into_iter().map(|(name, comment)| Profile::absent(name, comment))
}

/// The profile of this name, one of these if there is no other. Go: `pprof.Lookup`.
pub(crate) fn find(name: &str) -> Option<Profile> {
    lookup(name).or_else(|| profiles().find(|profile| profile.name() == name))
}
