//! Internal to the crate `rtprof`, whose interface programs use: this one promises no stability.
//!
//! `/debug/pprof/` over HTTP: Go's `net/http/pprof` for a Rust program.
//!
//! `go tool pprof http://localhost:6060/debug/pprof/heap`, Parca, Grafana Alloy and a browser work on it as on a Go
//! program:
//!
//! ```no_run
//! rtprof_http::serve("127.0.0.1:6060")?; // on a separate thread; runs on when the result is dropped
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A service that has a server can serve the same endpoints on its own port: [`handle`] answers a request of any server
//! that uses the types of the `http` crate, under any executor; `router` (feature `axum`) has routes for axum.
//!
//! # Endpoints
//! Under `/debug/pprof/`: the index page; `heap`, `allocs`, `block`, `mutex`, `threadcreate`, `goroutine`,
//! `goroutineleak`, and every profile that the program makes, by its name; `symbol`; `cmdline` if allowed;
//! `delta_heap`, `delta_mutex` and `delta_block`. Parameters are Go's (`debug=`, `gc=1`, `seconds=`), and
//! `format=flamegraph`, `format=collapsed`, `sample_index=`, `symbolize=none` and `=full`, `startup=1`. The index page
//! explains them.
//!
//! `profile` takes a CPU profile for `seconds=` (30). `trace` streams a trace of `seconds=` (1), for `go tool trace` of
//! Go 1.26 and later; with `format=v2-go1.22` of Go 1.22 and later, with `format=v1` of Go 1.19 and later;
//! with `format=perfetto` it is for Perfetto. The process has one CPU profile and one trace at a time. `flight` has the
//! window of the flight recorder, if the program has enabled one, in the recorder's format. Both are compressed for
//! clients that accept it, and into a file with `gzip=1`.
//!
//! # Costs
//! Without requests two threads sleep; one wakes every two seconds to look at its descriptors. Each request gets a thread
//! at the program's own priority, so that a program whose cores are all busy still answers. When answers have taken
//! more than a hundredth of a core in the long run, request threads give way to the program (nice 10).
//! Captures take milliseconds. Names that are not known yet are found by another thread, which gives way to the program
//! (nice 10). A profile waits for them for 6 s, or for 2 s after its `seconds=`. Then it is sent with addresses and
//! build ids in place of the missing names, and with a comment that says so. Pages and texts, and with `symbolize=full`
//! all answers, wait until every name is found, or until the file with the names does not answer.
//!
//! # Your responsibilities
//! - Profiles contain names of functions, paths and labels. [`serve`] refuses addresses that other machines reach;
//!   endpoints that you serve on your own port are as public as that port.
//! - Use one scraper for the `delta_` endpoints: each answer begins where the last one ended.
//! - A forked child without `exec` has the listening socket but not the thread that answers on it.
//!
//! # Platforms
//! The server works on every platform; the contents of profiles depend on the recorders.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod answer;
mod at_exit;
mod body;
mod config;
mod endpoints;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod handler;
mod init;
mod request;
#[cfg(feature = "axum")]
mod router;
mod serve;
mod work;

pub use body::Body;
pub use config::Config;
pub use handler::{Handler, handle};
pub use init::{InitError, init};
#[cfg(feature = "axum")]
pub use router::router;
pub use serve::server::{Server, serve, serve_with};
