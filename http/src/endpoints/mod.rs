//! The endpoints: what each path under `/debug/pprof/` answers.
//!
//! [`answer`] is the table of endpoints. It reads the parameters, answers a HEAD at once, and hands everything else to a
//! request thread. An endpoint is a function that the request thread calls.

pub(crate) mod cpu;
pub(crate) mod delta;
mod flame_graph;
mod html;
mod index;
mod process;
mod profile;
pub(crate) mod symbol;
mod trace;

use std::error::Error;

use http::request::Parts;
use http::{Method, Response, StatusCode};
use rtprof_pprof_out::lookup;

use crate::Config;
use crate::answer::{self, Refusal};
use crate::body::Body;
use crate::request::coding::Coding;
use crate::request::cpu::CpuRequest;
use crate::request::limits::Limits;
use crate::request::names::Names;
use crate::request::query::Query;
use crate::request::route::{Route, delta_name};
use crate::request::trace::{TraceRequest, format};
use crate::work::permits::Purpose;
use crate::work::request_threads::RequestThreads;

/// Answers a request for this endpoint, whose method the endpoint takes.
pub(crate) async fn answer<B>(
    route: Route,
    head: &Parts,
    body: B,
    config: &Config,
    threads: &RequestThreads,
) -> Result<Response<Body>, Refusal>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let query = Query::of(&head.uri);
    let limits = Limits { max_seconds: config.max_seconds, symbolize: config.symbolize };
    let is_head = head.method == Method::HEAD;
    match route {
        // Relative, because only the calling server knows under which path it serves the endpoints.
        Route::Root => Ok(answer::redirect(StatusCode::MOVED_PERMANENTLY, "pprof/")),
        Route::Index if is_head => Ok(answer::page(Body::left_out())),
        Route::Index => {
            let cmdline = config.cmdline;
            threads.run(Purpose::Page, move |response| index::answer(response, cmdline)).await
        }
        Route::Cmdline if config.cmdline => Ok(answer::of_type(answer::TEXT, Body::whole(arguments()))),
        Route::Cmdline => {
            Err(Refusal::new(StatusCode::NOT_FOUND, "cmdline is off; Config::cmdline allows it"))
        }
        Route::Symbol if is_head => Ok(answer::of_type(answer::TEXT, Body::left_out())),
        Route::Symbol => {
            let words = match head.method {
                Method::POST => symbol::Words::of_body(body).await,
                _ => symbol::Words::of_query(&head.uri),
            };
            threads.run(Purpose::Page, move |response| symbol::answer(response, words)).await
        }
        Route::Profile => {
            let request = CpuRequest::of(&query, limits)?;
            if is_head {
                return Ok(cpu::head(request.form));
            }
            threads.run(Purpose::Capture, move |response| cpu::answer(response, request)).await
        }
        Route::Trace => {
            let (request, coding) = (TraceRequest::of(&query, limits)?, Coding::of(head, &query));
            if is_head {
                return Ok(trace::head(request.format, coding));
            }
            threads.run(Purpose::Capture, move |response| trace::answer(response, request, coding)).await
        }
        Route::Flight => {
            let (format, coding) = (format(&query)?, Coding::of(head, &query));
            if is_head {
                return trace::flight_head(format, coding);
            }
            threads.run(Purpose::Capture, move |response| trace::flight(response, format, coding)).await
        }
        Route::Delta(profile) if is_head => Ok(answer::attachment(&delta_name(profile), Body::left_out())),
        Route::Delta(profile) => {
            let publish = profile.name() == "heap" && query.number("gc") > 0;
            let names = Names::of(&query, limits)?;
            // Before a permit is taken, which other requests could use.
            let baseline = threads.on_engine(delta::baseline(profile)).await?;
            threads
                .run(Purpose::Capture, move |response| {
                    delta::answer(response, profile, baseline, publish, names)
                })
                .await
        }
        Route::Named(name) => {
            let profile = lookup(&name).ok_or_else(profile::unknown)?;
            let request = profile::request(&query, &profile, limits)?;
            if is_head {
                return Ok(profile::head(&profile, request));
            }
            threads.run(Purpose::Capture, move |response| profile::answer(response, &profile, request)).await
        }
    }
}

/// Returns the program and its arguments, separated by NUL. Go: `pprof.Cmdline`.
fn arguments() -> Vec<u8> {
    let arguments: Vec<Vec<u8>> = std::env::args_os().map(|argument| argument.into_encoded_bytes()).collect();
    arguments.join(&0)
}
