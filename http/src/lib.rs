//! `/debug/pprof/` over HTTP: what Go's `net/http/pprof` is, for a Rust program.
//!
//! `go tool pprof http://localhost:6060/debug/pprof/heap`, Parca, Grafana Alloy and a browser work on it as on a Go
//! program:
//!
//! ```no_run
//! rtprof_http::serve("127.0.0.1:6060")?; // on a thread of its own; runs on when the result is dropped
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A service that has a server mounts the same on its own port: [`handle`] answers a request of any server that speaks
//! the types of the `http` crate, under any executor; `router` (feature `axum`) has routes for axum.
//!
//! # What is answered
//! Under `/debug/pprof/`: the index page; `heap`, `allocs`, `block`, `mutex`, `threadcreate`, `goroutine`, `goroutineleak`, and every
//! profile of the program's own by its name; `symbol`; `cmdline` if allowed; `delta_heap`, `delta_mutex` and
//! `delta_block`. Parameters are Go's: `debug=`, `gc=1`, `seconds=`; and `format=flamegraph`, `format=collapsed`,
//! `sample_index=`, `symbolize=none` and `=full`, `startup=1`. The index page explains them.
//!
//! `trace` streams what is recorded for `seconds=` (1), for `go tool trace`; one trace goes on at a time, whoever has
//! started it. `profile` answers as Go does when it cannot be begun, until CPU profiles are part of rtprof.
//!
//! # What it costs
//! Nothing while nobody asks: two threads sleep. A request is worked on by threads apart from the program's, at the same
//! priority, so that a program whose cores are all busy still answers; beyond a hundredth of a core in the long run answers
//! give way to the program (nice 10). Captures are computed one at a time, in milliseconds. Names that are not known yet are found by a thread that gives way to the program's (nice 10). A profile
//! waits for them for 6 s, after its `seconds=` for 2 s. Then it goes out with addresses and build ids in their place, and
//! with a comment that says so. Pages and texts, and with `symbolize=full` all, wait until every name is found or its file
//! does not answer.
//!
//! # Your responsibilities
//! - Profiles tell names of functions, paths, labels. [`serve`] refuses addresses that others reach; what you mount on
//!   your own port is as public as that.
//! - One scraper for the `delta_` endpoints: each request ends where the last one began.
//! - A forked child without `exec` has the listening socket but not the thread that answers on it.
//!
//! # Platforms
//! It serves everywhere; what profiles hold is the recorders' matter.

#![forbid(unsafe_code)]

mod answer;
mod body;
mod budget;
mod capture;
mod config;
mod connection;
mod cpu;
mod delta;
mod engine;
mod flame_graph;
mod guard;
mod handler;
mod html;
mod index;
mod listen;
mod names;
mod process;
mod query;
mod recording;
mod request;
mod route;
#[cfg(feature = "axum")]
mod router;
mod server;
mod slots;
mod socket;
mod stream;
mod symbol;
mod trace;

pub use body::Body;
pub use config::Config;
pub use handler::{Handler, handle};
#[cfg(feature = "axum")]
pub use router::router;
pub use server::{Server, serve, serve_with};
