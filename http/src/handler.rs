//! Turns a request into an answer, whichever server received it.

use std::error::Error;
use std::sync::Arc;

use http::request::Parts;
use http::{Request, Response};
use rtprof_pprof_out::lookup;
use rtprof_runtime::lock::fork_safe::PerProcess;

use crate::answer::{self, Refusal};
use crate::body::Body;
use crate::request::guard;
use crate::request::route::Route;
use crate::work::engine::Link;
use crate::work::request_threads::RequestThreads;
use crate::{Config, endpoints};

/// Answers requests under `/debug/pprof/` that arrive at the program's own server. Cheap to clone; clones share their
/// [`Config::max_captures`].
///
/// That server is responsible for access control, except for [`Config::token`]; `Host` is not checked. Of [`Config`]
/// the limits, `cmdline` and `symbolize` apply.
#[derive(Clone)]
pub struct Handler(Arc<Inner>);

struct Inner {
    config: Config,
    threads: RequestThreads,
}

impl Default for Handler {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

/// Answers a request under `/debug/pprof/` as [`Handler::handle`] does, under the default [`Config`]. All callers share
/// one [`Config::max_captures`].
pub async fn handle<B>(request: Request<B>) -> Response<Body>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    shared().handle(request).await
}

/// Returns the handler of [`handle`] and of axum's routes.
pub(crate) fn shared() -> Handler {
    static SHARED: PerProcess<Handler> = PerProcess::new();
    SHARED.get(Handler::default).clone()
}

impl Handler {
    /// Makes a handler with this configuration.
    pub fn new(config: Config) -> Self {
        Self::linked(config, None)
    }

    /// Makes a handler whose work is done by the engine of `link`.
    pub(crate) fn linked(config: Config, link: Option<Link>) -> Self {
        let threads = RequestThreads::new(config.max_captures, link);
        Self(Arc::new(Inner { config, threads }))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    /// Answers a request whose path is under `/debug/pprof/`; any other gets 404.
    ///
    /// Works under any executor, and occupies it for microseconds: profiles are captured on rtprof's own threads, and
    /// the body streams from there. (The first request of the process waits until a thread is started.) The request
    /// body is read on the caller's executor; only the body of a POST to `symbol` is read, up to 1 MiB. Dropping the
    /// future or the response's body ends the capture.
    ///
    /// Go: the handlers of `net/http/pprof`.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let answer = self.answer(&head, body).await;
        answer::finish(answer.unwrap_or_else(Refusal::into_response))
    }

    async fn answer<B>(&self, head: &Parts, body: B) -> Result<Response<Body>, Refusal>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let Inner { config, threads } = &*self.0;
        if let Some(token) = &config.token {
            guard::token(&head.headers, token)?;
        }
        let route = match Route::of(head.uri.path())? {
            // `go tool pprof` looks here for names of a profile whose own name has a slash.
            Route::Named(name) if name.ends_with("/symbol") && lookup(&name).is_none() => Route::Symbol,
            route => route,
        };
        if !route.takes(&head.method) {
            return Err(Refusal::method_not_allowed(route.methods()));
        }
        endpoints::answer(route, head, body, config, threads).await
    }
}
