//! What leaves the process, as its readers see it: HTTP clients, `go tool pprof`, browsers; and programs that are built
//! in other ways than this one.
//!
//! Tests that profile run in processes of their own, as in `profilers`.
#![cfg(feature = "http")]

mod browser;
mod browser_recording;
mod builds;
mod endpoints;
mod environment;
mod hostile_files;
mod hostile_memory;
#[cfg(feature = "axum")]
mod http_axum;
mod http_contract;
mod http_server;
mod interop;
mod interop_contention;
mod interop_http;
mod interop_web;
mod link_matrix;
mod unification;

#[global_allocator]
static ALLOC: rtprof::ProfAlloc = rtprof::ProfAlloc::system();
