//! `/debug/pprof/` over HTTP, for `go tool pprof`, scrapers and browsers. Go: package `net/http/pprof`.

#[cfg(feature = "axum")]
pub use rtprof_http::router;
pub use rtprof_http::{Body, Config, Handler, Server, handle, serve, serve_with};
