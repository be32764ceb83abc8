//! Entry points of the fuzz targets (`fuzz/`), in builds with `--cfg fuzzing` only.

use http::Request;
use http::header::{HeaderName, HeaderValue};

use crate::answer;
use crate::endpoints::symbol::Words;
use crate::request::cpu::CpuRequest;
use crate::request::guard;
use crate::request::limits::Limits;
use crate::request::names::Names;
use crate::request::profile::{ProfileRequest, RequestedProfile};
use crate::request::query::Query;
use crate::request::route::Route;
use crate::request::trace::{self, TraceRequest};

/// Parses a request: the first line is its target, each further line a header. Whatever is refused becomes an answer.
pub fn request(bytes: &[u8]) {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let Some(request) = lines.next().and_then(|target| Request::builder().uri(target).body(()).ok()) else {
        return;
    };
    let (mut head, ()) = request.into_parts();
    for line in lines {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let (name, value) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(&line[colon + 1..]));
        if let (Ok(name), Ok(value)) = (name, value) {
            head.headers.append(name, value);
        }
    }
    let answered = |result: Result<(), answer::Refusal>| _ = result.map_err(answer::Refusal::into_response);
    answered(guard::host(&head, &["proxy.example".to_owned()]));
    answered(guard::site(&head.headers));
    answered(guard::token(&head.headers, "secret"));
    answered(Route::of(head.uri.path()).map(drop));
    let query = Query::of(&head.uri);
    for symbolize in [true, false] {
        let limits = Limits { max_seconds: 600, symbolize };
        let profile = RequestedProfile {
            name: "heap",
            has_delta: true,
            has_dump: true,
            sample_types: &["alloc_objects", "alloc_space"],
            default_sample_type: 1,
        };
        answered(ProfileRequest::of(&query, &profile, limits).map(drop));
        answered(CpuRequest::of(&query, limits).map(drop));
        answered(TraceRequest::of(&query, limits).map(drop));
        answered(trace::format(&query).map(drop));
        answered(Names::of(&query, limits).map(drop));
    }
}

/// Parses the addresses of a request for names.
pub fn symbol_words(bytes: &[u8]) {
    drop(Words { bytes: bytes.to_vec(), error: None }.addresses());
}
