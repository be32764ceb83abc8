//! The parameters of a request for a trace.

use std::time::Duration;

use rtprof_trace_out::Format;

use crate::answer::Refusal;
use crate::request::cpu;
use crate::request::limits::Limits;
use crate::request::profile::startup_frames;
use crate::request::query::Query;

/// A valid request for a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceRequest {
    pub(crate) length: Duration,
    pub(crate) format: Format,
    /// Whether std's frames below the program's first function are shown.
    pub(crate) startup_frames: bool,
    /// The number of CPU samples per second of a thread's processor time. With `None` the trace takes no CPU samples
    /// itself, and has only those of a CPU profile.
    pub(crate) cpu_hz: Option<u32>,
}

impl TraceRequest {
    /// Reads the parameters. Go: `pprof.Trace`, which reads only `seconds`; `format`, `hz` and `startup` are our own.
    pub(crate) fn of(query: &Query<'_>, limits: Limits) -> Result<Self, Refusal> {
        let (length, cpu_hz) = (seconds(query, limits)?, cpu::hz(query)?);
        let format = format(query)?.unwrap_or_default();
        Ok(Self { length, format, startup_frames: startup_frames(query), cpu_hz })
    }
}

/// Returns the length of a trace, which may be a fraction of a second. Go: `pprof.Trace`.
fn seconds(query: &Query<'_>, limits: Limits) -> Result<Duration, Refusal> {
    let seconds = query.value("seconds").and_then(|seconds| seconds.parse::<f64>().ok());
    match seconds.filter(|&seconds| seconds > 0.0) {
        Some(seconds) if seconds > limits.max_seconds as f64 => Err(limits.too_long(seconds)),
        Some(seconds) => Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)),
        None => Ok(Duration::from_secs(1.min(limits.max_seconds))),
    }
}

/// Returns the format of a trace (`format=`); `None` if the request does not say.
pub(crate) fn format(query: &Query<'_>) -> Result<Option<Format>, Refusal> {
    let Some(name) = query.value("format") else { return Ok(None) };
    Format::from_name(&name).map(Some).ok_or_else(|| {
        let names: Vec<String> = Format::ALL.iter().map(|format| format!("\"{}\"", format.name())).collect();
        Refusal::bad_request(format!("invalid value for \"format\" - must be {}", names.join(" or ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_seconds: 600, symbolize: true };

    fn uri(query: &str) -> http::Uri {
        format!("/debug/pprof/trace?{query}").parse().unwrap()
    }

    fn request(query: &str, limits: Limits) -> Result<TraceRequest, Refusal> {
        TraceRequest::of(&Query::of(&uri(query)), limits)
    }

    #[test]
    fn a_trace_has_a_length() {
        let length = |query: &str, limits| request(query, limits).map(|request| request.length);
        for query in ["", "seconds=0", "seconds=-4", "seconds=x", "seconds=NaN", "seconds=-inf"] {
            assert_eq!(length(query, LIMITS), Ok(Duration::from_secs(1)), "{query}");
        }
        assert_eq!(length("seconds=0.25", LIMITS), Ok(Duration::from_millis(250)));
        assert_eq!(length("seconds=1e-300", LIMITS), Ok(Duration::ZERO));
        let short = Limits { max_seconds: 10, ..LIMITS };
        for (query, seconds) in [("seconds=10.5", "10.5"), ("seconds=inf", "inf")] {
            let message = format!(
                "\"seconds\" is {seconds}, but this server captures for at most 10 (Config::max_seconds)"
            );
            assert_eq!(length(query, short), Err(Refusal::bad_request(message)));
        }
    }

    #[test]
    fn a_trace_has_a_format() {
        for (query, expected) in [
            ("", None),
            ("format=", None),
            ("format=v2", Some(Format::V2)),
            ("format=v2-go1.22", Some(Format::V2Go122)),
            ("format=v1", Some(Format::V1)),
            ("format=perfetto", Some(Format::Perfetto)),
        ] {
            assert_eq!(format(&Query::of(&uri(query))), Ok(expected), "{query}");
            assert_eq!(
                request(query, LIMITS).map(|request| request.format),
                Ok(expected.unwrap_or_default())
            );
        }
        for query in ["format=v3", "format=V1", "format=flamegraph"] {
            let message =
                "invalid value for \"format\" - must be \"v2\" or \"v2-go1.22\" or \"v1\" or \"perfetto\"";
            assert_eq!(format(&Query::of(&uri(query))), Err(Refusal::bad_request(message)), "{query}");
        }
    }

    #[test]
    fn samples_and_startup_frames_are_optional() {
        let options =
            |query: &str| request(query, LIMITS).map(|request| (request.cpu_hz, request.startup_frames));
        assert_eq!(options(""), Ok((None, false)));
        assert_eq!(options("hz=100&startup=1"), Ok((Some(100), true)));
        assert!(options("hz=0").is_err());
    }
}
