//! The parameters of a request for a profile, checked in the order in which Go checks them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use regex_lite::{Regex, RegexBuilder};
use rtprof_pprof_out::{CPU, GoroutineFilter, Snapshot};
use rtprof_profiler::cpu::MAX_HZ;
use rtprof_profiler::{BlockKinds, GoroutineState};
use rtprof_trace_out::Format;

use crate::answer::Refusal;
use crate::names::Names;
use crate::query::{Query, integer};

/// A valid request for a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The length of a delta; `None` for the present state.
    pub(crate) over: Option<Duration>,
    /// Whether everything is to be published first.
    pub(crate) publish: bool,
    pub(crate) form: Form,
    pub(crate) part: Part,
    /// `None` for all goroutines.
    pub(crate) goroutines: Option<Goroutines>,
}

/// Which goroutines are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Goroutines {
    states: Vec<String>,
    /// A regular expression.
    show: Option<String>,
}

/// Which of a profile's waits, and which of its frames are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Whether std's frames below the program's first function are shown.
    pub(crate) startup_frames: bool,
    /// Whether stacks begin at the program's own code.
    pub(crate) from_program: bool,
    /// The kinds of waits; `None` for all.
    pub(crate) kinds: Option<BlockKinds>,
}

/// How a profile is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Proto(Names),
    Text(Names),
    /// Goroutines, each listed separately.
    Dump(Names),
    /// Goroutines with equal stacks as one.
    Groups(Names),
    /// The sample type at this index.
    Collapsed(usize),
    Top(usize),
    FlameGraph(usize),
}

/// The properties of the requested profile.
pub(crate) struct RequestedProfile<'a> {
    pub(crate) name: &'a str,
    /// Whether a delta over a time can be requested.
    pub(crate) has_delta: bool,
    /// Whether the profile can list each goroutine separately.
    pub(crate) has_dump: bool,
    pub(crate) sample_types: &'a [&'a str],
    pub(crate) default_sample_type: usize,
}

/// Limits from the configuration.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_seconds: u64,
    pub(crate) symbolize: bool,
}

impl Asked {
    /// Reads the parameters. Go: `handler.ServeHTTP` and `serveDeltaProfile`; `format`, `sample_index`, `symbolize`,
    /// `startup`, `leaf`, `kinds`, `show` and `state` are our own.
    pub(crate) fn of(
        query: &Query<'_>,
        subject: &RequestedProfile<'_>,
        limits: Limits,
    ) -> Result<Self, Refusal> {
        let over = over(query, subject, limits)?;
        let debug = query.number("debug");
        let names = names(query, limits)?;
        let form = match query.value("format") {
            Some(_) if debug != 0 => {
                return Err(Refusal::bad_request("format and debug params are incompatible"));
            }
            Some(format) => form(&format, query, subject, names)?,
            None if debug >= 2 && subject.has_dump => Form::Dump(names),
            None if debug != 0 => Form::Text(names),
            None => Form::Proto(names),
        };
        // Go ignores `gc` beside `seconds`, and in all other profiles.
        let publish = over.is_none() && subject.name == "heap" && query.number("gc") > 0;
        let goroutines = Goroutines::of(query, form)?;
        Ok(Self { over, publish, form, part: Part::of(query, subject)?, goroutines })
    }
}

impl Goroutines {
    fn of(query: &Query<'_>, form: Form) -> Result<Option<Self>, Refusal> {
        let (state, show) = (query.value("state"), query.value("show"));
        if state.is_none() && show.is_none() {
            return Ok(None);
        }
        if !matches!(form, Form::Dump(_) | Form::Groups(_)) {
            let message =
                "\"state\" and \"show\" are parameters of goroutine?debug=2 and goroutine?format=groups";
            return Err(Refusal::bad_request(message));
        }
        if let Some(Err(error)) = show.as_deref().map(regex) {
            return Err(Refusal::bad_request(format!("invalid value for \"show\" - {error}")));
        }
        let states: Vec<_> =
            state.iter().flat_map(|states| states.split(',')).map(|state| state.trim().to_owned()).collect();
        if let Some(unknown) = states.iter().find(|state| !GoroutineState::is_known(state)) {
            let message = format!("invalid value for \"state\" - {unknown:?} is none of goroutine?debug=2");
            return Err(Refusal::bad_request(message));
        }
        Ok(Some(Self { states, show: show.map(Cow::into_owned) }))
    }

    pub(crate) fn filter(&self) -> GoroutineFilter {
        let mut filter = GoroutineFilter::default();
        filter.states.clone_from(&self.states);
        // It was checked when the request was read.
        if let Some(show) = self.show.as_deref().and_then(|show| regex(show).ok()) {
            filter.show = Some(Arc::new(move |name| show.is_match(name)));
        }
        filter
    }
}

impl Part {
    fn of(query: &Query<'_>, subject: &RequestedProfile<'_>) -> Result<Self, Refusal> {
        let from_program = match query.value("leaf").as_deref() {
            None => false,
            Some("program") => true,
            Some(_) => return Err(Refusal::bad_request("invalid value for \"leaf\" - must be \"program\"")),
        };
        let kinds = query.value("kinds").map(|names| kinds(&names)).transpose()?;
        if kinds.is_some() && subject.name != "block" {
            return Err(Refusal::bad_request("\"kinds\" is a parameter of block only"));
        }
        Ok(Self { startup_frames: startup_frames(query), from_program, kinds })
    }

    /// Reduces a profile to this part.
    pub(crate) fn of_profile(self, mut snapshot: Snapshot) -> Snapshot {
        if self.startup_frames {
            snapshot = snapshot.with_startup_frames();
        }
        if self.from_program {
            snapshot = snapshot.from_program();
        }
        match self.kinds {
            Some(kinds) => snapshot.with_kinds(kinds),
            None => snapshot,
        }
    }
}

/// Compiles a regular expression of a client. Its time grows with its size, which a few bytes of repetitions can make large.
fn regex(show: &str) -> Result<Regex, regex_lite::Error> {
    RegexBuilder::new(show).size_limit(32 << 10).build()
}

/// Returns the kinds of waits that `sync,join` names.
fn kinds(names: &str) -> Result<BlockKinds, Refusal> {
    let all = names.split(',').map(|name| BlockKinds::named(name.trim())).collect::<Option<BlockKinds>>();
    all.ok_or_else(|| {
        let known: Vec<_> = BlockKinds::ALL.iter_names().map(|(name, _)| name.to_lowercase()).collect();
        Refusal::bad_request(format!("invalid value for \"kinds\" - must be some of {}", known.join(",")))
    })
}

/// Returns the form that `format` names.
fn form(
    format: &str,
    query: &Query<'_>,
    subject: &RequestedProfile<'_>,
    names: Names,
) -> Result<Form, Refusal> {
    match format {
        "collapsed" => Ok(Form::Collapsed(sample_index(query, subject)?)),
        "flamegraph" => Ok(Form::FlameGraph(sample_index(query, subject)?)),
        "top" => Ok(Form::Top(sample_index(query, subject)?)),
        "groups" if subject.has_dump => Ok(Form::Groups(names)),
        _ => {
            let groups = if subject.has_dump { "\"groups\", " } else { "" };
            let all = format!("{groups}\"top\", \"collapsed\" or \"flamegraph\"");
            Err(Refusal::bad_request(format!("invalid value for \"format\" - must be {all}")))
        }
    }
}

fn over(
    query: &Query<'_>,
    subject: &RequestedProfile<'_>,
    limits: Limits,
) -> Result<Option<Duration>, Refusal> {
    let Some(seconds) = query.value("seconds") else { return Ok(None) };
    let seconds = match integer(&seconds) {
        Ok(seconds) if seconds > 0 => seconds.unsigned_abs(),
        _ => {
            let message = "invalid value for \"seconds\" - must be a positive integer";
            return Err(Refusal::bad_request(message));
        }
    };
    if seconds > limits.max_seconds {
        return Err(too_long(seconds, limits));
    }
    if !subject.has_delta {
        return Err(Refusal::bad_request("\"seconds\" parameter is not supported for this profile type"));
    }
    if query.number("debug") != 0 {
        return Err(Refusal::bad_request("seconds and debug params are incompatible"));
    }
    Ok(Some(Duration::from_secs(seconds)))
}

fn too_long(seconds: impl std::fmt::Display, limits: Limits) -> Refusal {
    let max = limits.max_seconds;
    Refusal::bad_request(format!(
        "\"seconds\" is {seconds}, but this server captures for at most {max} (Config::max_seconds)"
    ))
}

pub(crate) fn names(query: &Query<'_>, limits: Limits) -> Result<Names, Refusal> {
    match query.value("symbolize").as_deref() {
        None if limits.symbolize => Ok(Names::InTime),
        None | Some("none") => Ok(Names::None),
        Some("full") => Ok(Names::All),
        Some(_) => {
            Err(Refusal::bad_request("invalid value for \"symbolize\" - must be \"none\" or \"full\""))
        }
    }
}

/// Returns whether the request asks for std's frames below the program's first function (`startup=1`).
pub(crate) fn startup_frames(query: &Query<'_>) -> bool {
    query.number("startup") != 0
}

fn sample_index(query: &Query<'_>, subject: &RequestedProfile<'_>) -> Result<usize, Refusal> {
    let Some(wanted) = query.value("sample_index") else { return Ok(subject.default_sample_type) };
    let by_name = subject.sample_types.iter().position(|&name| name == wanted);
    let by_number = || wanted.parse().ok().filter(|&at| at < subject.sample_types.len());
    by_name.or_else(by_number).ok_or_else(|| {
        let types = subject.sample_types.join(", ");
        Refusal::bad_request(format!("invalid value for \"sample_index\" - {} has {types}", subject.name))
    })
}

/// A valid request for a CPU profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuAsked {
    pub(crate) length: Duration,
    /// Samples in a second of a thread's processor time; `None` for the default rate.
    pub(crate) hz: Option<u32>,
    pub(crate) form: Form,
    /// Whether samples carry the number and the name of their thread.
    pub(crate) thread_labels: bool,
    pub(crate) part: Part,
}

impl CpuAsked {
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
        let (length, hz) = (cpu_seconds(query, limits)?, cpu_hz(query)?);
        let names = names(query, limits)?;
        let form = match query.value("format") {
            Some(format) => form(&format, query, &subject, names)?,
            None => Form::Proto(names),
        };
        let thread_labels = query.number("threads") != 0;
        Ok(Self { length, hz, form, thread_labels, part: Part::of(query, &subject)? })
    }
}

/// Returns the length of a CPU profile. Go: `pprof.Profile`.
fn cpu_seconds(query: &Query<'_>, limits: Limits) -> Result<Duration, Refusal> {
    let asked =
        query.value("seconds").and_then(|seconds| integer(&seconds).ok()).filter(|&seconds| seconds > 0);
    match asked.map(i64::unsigned_abs) {
        Some(seconds) if seconds > limits.max_seconds => Err(too_long(seconds, limits)),
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Ok(Duration::from_secs(30.min(limits.max_seconds))),
    }
}

/// Returns the sampling rate (`hz=`) of a CPU profile or a trace, in samples for a second of processor time; `None` if
/// the request has no rate.
pub(crate) fn cpu_hz(query: &Query<'_>) -> Result<Option<u32>, Refusal> {
    let Some(hz) = query.value("hz") else { return Ok(None) };
    let hz = hz.parse().ok().filter(|hz| (1..=MAX_HZ).contains(hz));
    let refusal =
        || Refusal::bad_request(format!("invalid value for \"hz\" - must be a number from 1 to {MAX_HZ}"));
    hz.ok_or_else(refusal).map(Some)
}

/// Returns the length of a trace, which may be a fraction of a second. Go: `pprof.Trace`.
pub(crate) fn trace_seconds(query: &Query<'_>, limits: Limits) -> Result<Duration, Refusal> {
    let asked = query.value("seconds").and_then(|seconds| seconds.parse::<f64>().ok());
    match asked.filter(|&seconds| seconds > 0.0) {
        Some(seconds) if seconds > limits.max_seconds as f64 => Err(too_long(seconds, limits)),
        Some(seconds) => Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)),
        None => Ok(Duration::from_secs(1.min(limits.max_seconds))),
    }
}

/// Returns the format of a trace (`format=`).
pub(crate) fn trace_format(query: &Query<'_>) -> Result<Option<Format>, Refusal> {
    let Some(name) = query.value("format") else { return Ok(None) };
    Format::from_name(&name).map(Some).ok_or_else(|| {
        let names: Vec<String> = Format::ALL.iter().map(|format| format!("\"{}\"", format.name())).collect();
        Refusal::bad_request(format!("invalid value for \"format\" - must be {}", names.join(" or ")))
    })
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
