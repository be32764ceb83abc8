//! The parameters of a request for a profile, checked in the order in which Go checks them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use regex_lite::{Regex, RegexBuilder};
use rtprof_pprof_out::{GoroutineFilter, Snapshot};
use rtprof_profiler::{BlockKinds, GoroutineState};

use crate::answer::Refusal;
use crate::request::limits::Limits;
use crate::request::names::Names;
use crate::request::query::{Query, integer};

/// A valid request for a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProfileRequest {
    /// The length of a delta; `None` for the present state.
    pub(crate) over: Option<Duration>,
    /// Whether everything is to be published first.
    pub(crate) publish: bool,
    pub(crate) form: Form,
    pub(crate) view: View,
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
pub(crate) struct View {
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

impl ProfileRequest {
    /// Reads the parameters. Go: `handler.ServeHTTP` and `serveDeltaProfile`; `format`, `sample_index`, `symbolize`,
    /// `startup`, `leaf`, `kinds`, `show` and `state` are our own.
    pub(crate) fn of(
        query: &Query<'_>,
        subject: &RequestedProfile<'_>,
        limits: Limits,
    ) -> Result<Self, Refusal> {
        let over = over(query, subject, limits)?;
        let debug = query.number("debug");
        let names = Names::of(query, limits)?;
        let form = match query.value("format") {
            Some(_) if debug != 0 => {
                return Err(Refusal::bad_request("format and debug params are incompatible"));
            }
            Some(format) => named_form(&format, query, subject, names)?,
            None if debug >= 2 && subject.has_dump => Form::Dump(names),
            None if debug != 0 => Form::Text(names),
            None => Form::Proto(names),
        };
        // Go ignores `gc` beside `seconds`, and in all other profiles.
        let publish = over.is_none() && subject.name == "heap" && query.number("gc") > 0;
        let goroutines = Goroutines::of(query, form)?;
        Ok(Self { over, publish, form, view: View::of(query, subject)?, goroutines })
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

impl View {
    pub(crate) fn of(query: &Query<'_>, subject: &RequestedProfile<'_>) -> Result<Self, Refusal> {
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

    /// Reduces a profile to this view.
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
pub(crate) fn named_form(
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
        return Err(limits.too_long(seconds));
    }
    if !subject.has_delta {
        return Err(Refusal::bad_request("\"seconds\" parameter is not supported for this profile type"));
    }
    if query.number("debug") != 0 {
        return Err(Refusal::bad_request("seconds and debug params are incompatible"));
    }
    Ok(Some(Duration::from_secs(seconds)))
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

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
