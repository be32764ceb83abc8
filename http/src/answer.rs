//! The forms of answers, as in `net/http/pprof`.

use http::header::{
    ALLOW, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION,
    RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};

use crate::body::Body;

/// The type of texts, for people or for clients that parse them.
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
/// The type of profiles. Not `application/gzip`: a client would unpack the profile where it should not.
pub(crate) const BYTES: &str = "application/octet-stream";
const PAGE: &str = "text/html; charset=utf-8";

/// Header that tells `go tool pprof` to show the body as a message.
const X_GO_PPROF: HeaderName = HeaderName::from_static("x-go-pprof");

/// Allows what the pages need and nothing else: no network, no script that is not in the page, no frame around the
/// page.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                           base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns an answer with a body of this type.
pub(crate) fn of_type(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns an answer with a profile that the client saves as a file.
pub(crate) fn attachment(name: &str, body: Body) -> Response<Body> {
    let mut response = of_type(BYTES, body);
    // The name of a program's own profile may contain any character but a space.
    let name: String =
        name.chars().map(|c| if c.is_ascii_graphic() && !"\"\\".contains(c) { c } else { '_' }).collect();
    let disposition = HeaderValue::try_from(format!("attachment; filename=\"{name}\""));
    response
        .headers_mut()
        .insert(CONTENT_DISPOSITION, disposition.expect("nothing but graphic ASCII is left"));
    response
}

/// Returns an answer with a page for a browser.
pub(crate) fn page(body: Body) -> Response<Body> {
    let mut response = of_type(PAGE, body);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    response
}

/// Returns a redirect to another path of this server. It repeats nothing of the request.
pub(crate) fn redirect(status: StatusCode, to: &'static str) -> Response<Body> {
    let mut response = of_type(TEXT, Body::whole(format!("see {to}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    response
}

/// Adds the headers that all answers have.
pub(crate) fn finish(mut response: Response<Body>) -> Response<Body> {
    // A browser must not guess from the content that a text is a page.
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// An answer that is an error. Go: `serveError`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    status: StatusCode,
    message: String,
    header: Option<(HeaderName, &'static str)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), header: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// Refuses a path that is not under `/debug/pprof`.
    pub(crate) fn page_not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "404 page not found")
    }

    pub(crate) fn method_not_allowed(allowed: &'static str) -> Self {
        let refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
        Self { header: Some((ALLOW, allowed)), ..refusal }
    }

    pub(crate) fn busy(message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, message);
        Self { header: Some((RETRY_AFTER, "1")), ..refusal }
    }

    /// Refuses a request whose token is missing or wrong. A browser asks its user for a password when it sees `Basic`.
    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::UNAUTHORIZED, message);
        Self { header: Some((WWW_AUTHENTICATE, "Basic realm=\"rtprof\", Bearer")), ..refusal }
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = of_type(TEXT, Body::whole(self.message + "\n"));
        *response.status_mut() = self.status;
        response.headers_mut().insert(X_GO_PPROF, HeaderValue::from_static("1"));
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
