//! Maps a path to the endpoint that it names.

use http::StatusCode;
use percent_encoding::percent_decode_str;
use rtprof_pprof_out::{BuiltIn, CPU, scraped_deltas};

use crate::answer::Refusal;
use crate::request::query::escapes_are_whole;

/// The path under which all endpoints lie, without the slash at its end.
pub(crate) const ROOT: &str = "/debug/pprof";
/// The index page.
pub(crate) const INDEX: &str = "/debug/pprof/";

/// What the names of scraped deltas begin with, as in godeltaprof.
const DELTA: &str = "delta_";

/// Returns the name of the profile's delta, as in its endpoint.
pub(crate) fn delta_name(profile: &BuiltIn) -> String {
    format!("{DELTA}{}", profile.name())
}

/// Methods that read.
pub(crate) const READING: &str = "GET, HEAD";
/// Methods of the endpoint that also takes addresses in its body.
pub(crate) const ASKING: &str = "GET, HEAD, POST";

/// An endpoint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Route {
    /// The index without the final slash; relative links would be wrong there.
    Root,
    Index,
    Cmdline,
    Profile,
    Trace,
    Flight,
    Symbol,
    /// The changes of a profile since the last request.
    Delta(&'static BuiltIn),
    /// A profile by its name.
    Named(String),
}

impl Route {
    /// Finds the endpoint that a path names. Go: the patterns that `net/http/pprof` registers.
    pub(crate) fn of(path: &str) -> Result<Self, Refusal> {
        if path == ROOT {
            return Ok(Self::Root);
        }
        if !path.starts_with(INDEX) {
            return Err(Refusal::page_not_found());
        }
        let path = shortened(path);
        if path == ROOT {
            return Ok(Self::Index);
        }
        let Some(name) = path.strip_prefix(INDEX) else { return Err(Refusal::page_not_found()) };
        if !escapes_are_whole(name) {
            return Err(Refusal::bad_request("invalid URL escape in the path"));
        }
        let name = percent_decode_str(name).decode_utf8();
        let name = name.map_err(|_| Refusal::new(StatusCode::NOT_FOUND, "Unknown profile"))?;
        if let Some(delta) = name.strip_prefix(DELTA)
            && let Some(profile) = scraped_deltas().find(|profile| profile.name() == delta)
        {
            return Ok(Self::Delta(profile));
        }
        Ok(match &*name {
            "" => Self::Index,
            "cmdline" => Self::Cmdline,
            name if name == CPU.name() => Self::Profile,
            "trace" => Self::Trace,
            "flight" => Self::Flight,
            "symbol" => Self::Symbol,
            name => Self::Named(name.to_owned()),
        })
    }

    /// Returns the allowed methods, as in the header `Allow`.
    pub(crate) fn methods(&self) -> &'static str {
        match self {
            Self::Symbol => ASKING,
            _ => READING,
        }
    }

    pub(crate) fn takes(&self, method: &http::Method) -> bool {
        self.methods().split(", ").any(|known| known == method.as_str())
    }
}

/// Removes empty and dotted parts from a path. They come from clients that join `http://HOST/debug/pprof/` and `/heap`.
/// Go redirects these clients (`http.ServeMux`); here the request is answered at once, because only the calling server
/// knows under which path it serves the endpoints.
fn shortened(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut shortest: String = parts.iter().flat_map(|part| ["/", part]).collect();
    if path.ends_with('/') {
        shortest.push('/');
    }
    shortest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_go() {
        let named = |name: &str| Ok(Route::Named(name.to_owned()));
        let cases = [
            ("/debug/pprof", Ok(Route::Root)),
            ("/debug/pprof/", Ok(Route::Index)),
            ("/debug/pprof/heap", named("heap")),
            ("/debug/pprof/heap/", named("heap/")),
            ("/debug/pprof/app/open%5Ffiles", named("app/open_files")),
            ("/debug/pprof/%70rofile", Ok(Route::Profile)),
            ("/debug/pprof/symbol", Ok(Route::Symbol)),
            ("/debug/pprof/flight", Ok(Route::Flight)),
            ("/debug/pprof/delta_allocs", named("delta_allocs")),
            ("/debug/pprof//heap", named("heap")),
            ("/debug/pprof/./x/../heap", named("heap")),
            ("/debug/pprof//", Ok(Route::Index)),
            ("/debug/pprof/x/..", Ok(Route::Index)),
            ("/debug/pprof/../../..", Err(Refusal::page_not_found())),
            ("/debug/pprof/../../../../etc/", Err(Refusal::page_not_found())),
            ("/debug/pprof/%zz", Err(Refusal::bad_request("invalid URL escape in the path"))),
            ("/debug/pprof/%ff", Err(Refusal::new(StatusCode::NOT_FOUND, "Unknown profile"))),
            ("/debug/pprofx", Err(Refusal::page_not_found())),
            ("/debug", Err(Refusal::page_not_found())),
            ("/", Err(Refusal::page_not_found())),
            ("*", Err(Refusal::page_not_found())),
            ("", Err(Refusal::page_not_found())),
        ];
        for (path, expected) in cases {
            assert_eq!(Route::of(path), expected, "{path}");
        }
        for name in ["heap", "mutex", "block"] {
            let route = Route::of(&format!("/debug/pprof/delta_{name}"));
            assert!(matches!(route, Ok(Route::Delta(profile)) if profile.name() == name), "{route:?}");
        }
    }

    #[test]
    fn only_symbol_takes_a_body() {
        let heap = Route::Named("heap".into());
        for (method, reads, asks) in [("GET", true, true), ("HEAD", true, true), ("POST", false, true)] {
            let method = http::Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!((heap.takes(&method), Route::Symbol.takes(&method)), (reads, asks));
        }
        for method in ["PUT", "DELETE", "OPTIONS", "get", "TRACE", "PATCH", "CONNECT", "X"] {
            let method = http::Method::from_bytes(method.as_bytes()).unwrap();
            assert!(!heap.takes(&method) && !Route::Symbol.takes(&method));
        }
    }
}
