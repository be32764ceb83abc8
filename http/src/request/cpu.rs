//! The parameters of a request for a CPU profile.

use std::time::Duration;

use rtprof_pprof_out::CPU;
use rtprof_profiler::cpu::MAX_HZ;

use crate::answer::Refusal;
use crate::request::limits::Limits;
use crate::request::names::Names;
use crate::request::profile::{Form, RequestedProfile, View, named_form};
use crate::request::query::{Query, integer};

/// A valid request for a CPU profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuRequest {
    pub(crate) length: Duration,
    /// Samples in a second of a thread's processor time; `None` for the default rate.
    pub(crate) hz: Option<u32>,
    pub(crate) form: Form,
    /// Whether samples carry the number and the name of their thread.
    pub(crate) thread_labels: bool,
    pub(crate) view: View,
}

impl CpuRequest {
    /// Reads the parameters. Go: `pprof.Profile`, which reads only `seconds`; `hz`, `format`, `sample_index`,
    /// `symbolize`, `threads`, `startup` and `leaf` are our own.
    pub(crate) fn of(query: &Query<'_>, limits: Limits) -> Result<Self, Refusal> {
        let types: Vec<&str> = CPU.sample_types().iter().map(|(name, _)| *name).collect();
        let subject = RequestedProfile {
            name: CPU.name(),
            has_delta: false,
            has_dump: false,
            sample_types: &types,
            default_sample_type: CPU.shown_first(),
        };
        let (length, hz) = (seconds(query, limits)?, hz(query)?);
        let names = Names::of(query, limits)?;
        let form = match query.value("format") {
            Some(format) => named_form(&format, query, &subject, names)?,
            None => Form::Proto(names),
        };
        let thread_labels = query.number("threads") != 0;
        Ok(Self { length, hz, form, thread_labels, view: View::of(query, &subject)? })
    }
}

/// Returns the length of a CPU profile. Go: `pprof.Profile`.
fn seconds(query: &Query<'_>, limits: Limits) -> Result<Duration, Refusal> {
    let seconds =
        query.value("seconds").and_then(|seconds| integer(&seconds).ok()).filter(|&seconds| seconds > 0);
    match seconds.map(i64::unsigned_abs) {
        Some(seconds) if seconds > limits.max_seconds => Err(limits.too_long(seconds)),
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Ok(Duration::from_secs(30.min(limits.max_seconds))),
    }
}

/// Returns the sampling rate (`hz=`) of a CPU profile or a trace, in samples for a second of processor time; `None` if
/// the request has no rate.
pub(crate) fn hz(query: &Query<'_>) -> Result<Option<u32>, Refusal> {
    let Some(hz) = query.value("hz") else { return Ok(None) };
    let hz = hz.parse().ok().filter(|hz| (1..=MAX_HZ).contains(hz));
    let refusal =
        || Refusal::bad_request(format!("invalid value for \"hz\" - must be a number from 1 to {MAX_HZ}"));
    hz.ok_or_else(refusal).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_seconds: 600, symbolize: true };

    fn request(query: &str, limits: Limits) -> Result<CpuRequest, Refusal> {
        CpuRequest::of(&Query::of(&format!("/debug/pprof/profile?{query}").parse().unwrap()), limits)
    }

    #[test]
    fn a_profile_has_a_length() {
        let length = |query: &str, limits| request(query, limits).map(|request| request.length);
        for query in
            ["", "seconds=0", "seconds=-4", "seconds=x", "seconds=1.5", "seconds=99999999999999999999"]
        {
            assert_eq!(length(query, LIMITS), Ok(Duration::from_secs(30)), "{query}");
        }
        assert_eq!(length("seconds=7&debug=1", LIMITS), Ok(Duration::from_secs(7)));
        let short = Limits { max_seconds: 10, ..LIMITS };
        assert_eq!(length("", short), Ok(Duration::from_secs(10)));
        let too_long = "\"seconds\" is 11, but this server captures for at most 10 (Config::max_seconds)";
        assert_eq!(length("seconds=11", short), Err(Refusal::bad_request(too_long)));
    }

    #[test]
    fn rates_are_those_that_can_be_sampled() {
        let hz = |query: &str| request(query, LIMITS).map(|request| request.hz);
        for (query, expected) in [("", None), ("hz=", None), ("hz=1", Some(1)), ("hz=10000", Some(10_000))] {
            assert_eq!(hz(query), Ok(expected), "{query}");
        }
        for query in ["hz=0", "hz=-1", "hz=10001", "hz=1e3", "hz=x", "hz=99999999999"] {
            let refused = Refusal::bad_request("invalid value for \"hz\" - must be a number from 1 to 10000");
            assert_eq!(hz(query), Err(refused), "{query}");
        }
    }
}
