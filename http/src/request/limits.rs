//! The limits of the configuration that parameters are checked against.

use std::fmt::Display;

use crate::answer::Refusal;

/// Limits from the configuration.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_seconds: u64,
    pub(crate) symbolize: bool,
}

impl Limits {
    /// Returns the refusal of a capture of `seconds`, which is longer than `max_seconds`.
    pub(crate) fn too_long(self, seconds: impl Display) -> Refusal {
        let max = self.max_seconds;
        Refusal::bad_request(format!(
            "\"seconds\" is {seconds}, but this server captures for at most {max} (Config::max_seconds)"
        ))
    }
}
