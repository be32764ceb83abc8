//! The parameter `symbolize`.

use rtprof_pprof_out::Symbolization;

use crate::answer::Refusal;
use crate::request::limits::Limits;
use crate::request::query::Query;

/// The names that an answer should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Addresses only (`symbolize=none`).
    None,
    /// The names that are found in time.
    InTime,
    /// All names that can be found, however long that takes (`symbolize=full`).
    All,
}

impl Names {
    pub(crate) fn of(query: &Query<'_>, limits: Limits) -> Result<Self, Refusal> {
        match query.value("symbolize").as_deref() {
            None if limits.symbolize => Ok(Self::InTime),
            None | Some("none") => Ok(Self::None),
            Some("full") => Ok(Self::All),
            Some(_) => {
                Err(Refusal::bad_request("invalid value for \"symbolize\" - must be \"none\" or \"full\""))
            }
        }
    }

    /// Returns how an export writes these names, after the search for them.
    pub(crate) fn symbolization(self) -> Symbolization {
        match self {
            Self::None => Symbolization::None,
            Self::InTime | Self::All => Symbolization::Known,
        }
    }
}
