//! `/debug/pprof/` over HTTP, for `go tool pprof`, scrapers and browsers. Go: package `net/http/pprof`.

pub use rtprof_http::*;
