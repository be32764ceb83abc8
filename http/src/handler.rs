//! Turns a request into an answer, whichever server received it.

use std::error::Error;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use rtprof_pprof_out::{Profile, lookup};
use rtprof_runtime::fork_safe::PerProcess;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::answer::{self, Refusal};
use crate::body::Body;
use crate::coding::Coding;
use crate::engine::{self, GivenUp, Link};
use crate::query::Query;
use crate::request::{self, Asked, CpuAsked, Limits, RequestedProfile};
use crate::route::Route;
use crate::symbol::Words;
use crate::worker::{self, Failure, Worker};
use crate::{Config, capture, cpu, delta, guard, index, trace};

/// Answers requests under `/debug/pprof/` that arrive at the program's own server. Cheap to clone; clones share their
/// [`Config::max_captures`].
///
/// Access control is the task of that server, except for [`Config::token`]; `Host` is not checked. Of [`Config`] the
/// limits and `cmdline` and `symbolize` apply.
#[derive(Clone)]
pub struct Handler(Arc<Inner>);

struct Inner {
    config: Config,
    permits: Permits,
    /// The process that the permits belong to: in a forked child the permits held by its parent may never be returned.
    process: u32,
    /// The engine of a [`Server`](crate::Server). All other handlers share one engine, made for their first request.
    link: Option<Link>,
}

/// Permit for a capture to run.
pub(crate) type CapturePermit = OwnedSemaphorePermit;

/// How long a request waits for a permit.
const PATIENCE: Duration = Duration::from_secs(10);

/// Permits for captures, and separate ones for the index and for names, which must answer even when all captures are
/// busy.
#[derive(Clone)]
struct Permits {
    captures: Arc<Semaphore>,
    looks: Arc<Semaphore>,
}

impl Permits {
    fn new(config: &Config) -> Self {
        // Without a permit no request would ever be answered.
        let total = config.max_captures.clamp(1, Semaphore::MAX_PERMITS);
        Self { captures: Arc::new(Semaphore::new(total)), looks: Arc::new(Semaphore::new(total)) }
    }

    fn capture(&self) -> &Arc<Semaphore> {
        &self.captures
    }

    fn look(&self) -> &Arc<Semaphore> {
        &self.looks
    }
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
        let permits = Permits::new(&config);
        Self(Arc::new(Inner { config, permits, process: std::process::id(), link }))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    /// Answers a request whose path is under `/debug/pprof/`; any other gets 404.
    ///
    /// Works under any executor, and takes microseconds of it: profiles are captured on rtprof's own threads, and the
    /// body streams from there. (The first request of the process waits until a thread is started.) The request body is
    /// read on the caller's executor; only the body of a POST to `symbol` is read, up to 1 MiB. Dropping the future or
    /// the response's body ends the capture.
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
        let config = &self.0.config;
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
        let query = Query::of(&head.uri);
        let limits = Limits { max_seconds: config.max_seconds, symbolize: config.symbolize };
        let is_head = head.method == Method::HEAD;
        match route {
            // Relative, because only the calling server knows under which path it serves the endpoints.
            Route::Root => Ok(answer::redirect(StatusCode::MOVED_PERMANENTLY, "pprof/")),
            Route::Cmdline if config.cmdline => Ok(answer::of_type(answer::TEXT, Body::whole(arguments()))),
            Route::Cmdline => {
                Err(Refusal::new(StatusCode::NOT_FOUND, "cmdline is off; Config::cmdline allows it"))
            }
            Route::Index if is_head => Ok(answer::page(Body::left_out())),
            Route::Index => {
                let cmdline = config.cmdline;
                self.run(Permits::look, move |worker| {
                    worker.take_turn()?;
                    let page = index::page(cmdline);
                    worker.begin(move |_| answer::page(Body::whole(page)))?;
                    Ok(())
                })
                .await
            }
            Route::Symbol if is_head => Ok(answer::of_type(answer::TEXT, Body::left_out())),
            Route::Symbol => {
                let words = match head.method {
                    Method::POST => Words::of_body(body).await,
                    _ => Words::of_query(&head.uri),
                };
                self.run(Permits::look, move |worker| capture::symbols(worker, words)).await
            }
            Route::Profile => {
                let asked = CpuAsked::of(&query, limits)?;
                if is_head {
                    return Ok(cpu::head(asked.form));
                }
                self.run(Permits::capture, move |worker| cpu::answer(worker, asked)).await
            }
            Route::Trace => {
                let (length, hz) = (request::trace_seconds(&query, limits)?, request::cpu_hz(&query)?);
                let format = request::trace_format(&query)?.unwrap_or_default();
                let coding = Coding::of(head, &query);
                if is_head {
                    return Ok(trace::head(format, coding));
                }
                let options = trace::options(format, request::startup_frames(&query), hz);
                self.run(Permits::capture, move |worker| trace::answer(worker, length, options, coding)).await
            }
            Route::Flight => {
                let (format, coding) = (request::trace_format(&query)?, Coding::of(head, &query));
                if is_head {
                    return trace::flight_head(format, coding);
                }
                self.run(Permits::capture, move |worker| trace::flight(worker, format, coding)).await
            }
            Route::Delta(profile) if is_head => {
                Ok(answer::attachment(&delta::name(profile), Body::left_out()))
            }
            Route::Delta(profile) => {
                let publish = profile.name() == "heap" && query.number("gc") > 0;
                let names = request::names(&query, limits)?;
                let last = self.on_engine(delta::last(profile)).await?;
                self.run(Permits::capture, move |worker| delta::answer(worker, profile, last, publish, names))
                    .await
            }
            Route::Named(name) => {
                let profile = lookup(&name).ok_or_else(capture::unknown_profile)?;
                let asked = asked(&query, &profile, limits)?;
                if is_head {
                    return Ok(capture::head(&profile, asked));
                }
                self.run(Permits::capture, move |worker| capture::answer(worker, &profile, asked)).await
            }
        }
    }

    /// Runs `job` on a worker as soon as a permit is free.
    async fn run(
        &self,
        permits: impl FnOnce(&Permits) -> &Arc<Semaphore>,
        job: impl FnOnce(&mut Worker) -> Result<(), Failure> + Send + 'static,
    ) -> Result<Response<Body>, Refusal> {
        let permits = permits(&self.permits()).clone();
        let (link, total) = (self.engine()?, self.0.config.max_captures.max(1));
        let answer = async move {
            // Permits are given in the order of arrival.
            let Ok(Ok(permit)) = timeout(PATIENCE, permits.acquire_owned()).await else {
                return Err(Refusal::busy(format!(
                    "as many captures as allowed are under way (Config::max_captures, {total}); try again"
                )));
            };
            worker::answer(&link, permit, job).await
        };
        self.on_engine(answer).await
    }

    /// Runs `work` on the engine's thread, which has a timer, and from which workers are started: the program's threads
    /// start none.
    async fn on_engine<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.engine()?.run(work).await.map_err(|GivenUp| worker::not_collected())?
    }

    fn engine(&self) -> Result<Link, Refusal> {
        self.link().map_err(|error| Refusal::busy(format!("no thread for the capture: {error}")))
    }

    fn permits(&self) -> Permits {
        /// Shared by all handlers that a forked child has from its parent.
        static INHERITED: PerProcess<Permits> = PerProcess::new();
        match self.0.process == std::process::id() {
            true => self.0.permits.clone(),
            false => INHERITED.get(|| Permits::new(&self.0.config)).clone(),
        }
    }

    fn link(&self) -> io::Result<Link> {
        match &self.0.link {
            Some(link) => Ok(link.clone()),
            None => engine::shared(),
        }
    }
}

fn asked(query: &Query<'_>, profile: &Profile, limits: Limits) -> Result<Asked, Refusal> {
    let sample_types = profile.sample_types();
    let names: Vec<&str> = sample_types.iter().map(|(name, _)| *name).collect();
    let subject = RequestedProfile {
        name: profile.name(),
        has_delta: profile.is_built_in(),
        has_dump: profile.has_dump(),
        sample_types: &names,
        default_sample_type: profile.default_sample_type(),
    };
    Asked::of(query, &subject, limits)
}

/// Returns the program and its arguments, separated by NUL. Go: `pprof.Cmdline`.
fn arguments() -> Vec<u8> {
    let arguments: Vec<Vec<u8>> = std::env::args_os().map(|argument| argument.into_encoded_bytes()).collect();
    arguments.join(&0)
}
